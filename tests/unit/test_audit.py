"""`make audit`: pins and hashes by our own code, advisories by pip-audit, whose place a stub takes
here.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from scripts.audit import (
    FOUND,
    ROOT,
    RUNNER_VARIABLE,
    UNREACHABLE,
    check_pins,
    loose_requirements,
    main,
)

if TYPE_CHECKING:
    from pathlib import Path

PINNED = "kazoo==2.10.0 \\\n    --hash=sha256:00ff\n    # via kinesis-spout\n"


def stub(monkeypatch: pytest.MonkeyPatch, says: str, code: int) -> None:
    program = f"import sys; print({says!r}, file=sys.stderr); sys.exit({code})"
    monkeypatch.setenv(RUNNER_VARIABLE, shlex.join([sys.executable, "-c", program]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lock.txt").write_text(PINNED)
    return tmp_path


def test_all_requirements_are_pinned_with_hashes() -> None:
    assert check_pins(ROOT / "requirements") == []


@pytest.mark.parametrize(
    "loose",
    [
        "kazoo>=2.10 --hash=sha256:00ff",
        "kazoo==2.10.0",
        "kazoo @ https://example.org/kazoo.whl --hash=sha256:00ff",
        "https://example.org/kazoo.whl --hash=sha256:00ff",
    ],
)
def test_a_requirement_without_a_pin_or_a_hash_is_found(loose: str) -> None:
    assert loose_requirements(f"# a lock\n--index-url x\n{PINNED}{loose}\n") == [
        loose.split(maxsplit=1)[0]
    ]


def test_a_loose_requirement_fails_the_audit_and_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "lock.txt").write_text(f"{PINNED}moto==5.1\n")
    stub(monkeypatch, "No known vulnerabilities found", 0)
    assert main([str(folder)]) == FOUND
    assert "lock.txt: moto==5.1 has no exact version with a hash" in capsys.readouterr().err


def test_nothing_found_is_said_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub(monkeypatch, "No known vulnerabilities found", 0)
    assert main([str(folder)]) == 0
    assert "1 lock files, all pinned with hashes, no known" in capsys.readouterr().out


def test_a_vulnerability_fails_the_audit_and_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub(monkeypatch, "Found 1 known vulnerability in 1 package\nkazoo 2.10.0 PYSEC-1", 1)
    assert main([str(folder)]) == FOUND
    assert "PYSEC-1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "says", ["requests.exceptions.ConnectionError: Max retries exceeded", "HTTPError: 404"]
)
def test_without_an_answer_the_audit_says_that_nothing_is_known(
    says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It must not look like a clean result, nor like a vulnerability."""
    stub(monkeypatch, says, 1)
    assert main([str(folder)]) == UNREACHABLE
    error = capsys.readouterr().err
    assert "lock.txt was not audited: the advisories did not answer" in error
    assert len(error.splitlines()) == 1


def test_a_program_that_is_not_there_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(RUNNER_VARIABLE, "no-such-program")
    assert main([str(folder)]) == UNREACHABLE
    assert "no-such-program cannot be run" in capsys.readouterr().err
