"""`make audit`: pins and hashes by our own code, advisories by pip-audit, whose place a stub takes
here, or from a checkout.
"""

from __future__ import annotations

import json
import shlex
import sys
from datetime import date
from typing import TYPE_CHECKING

import pytest
import yaml

from scripts.advisories import is_affected, read_accepted
from scripts.audit import (
    ACCEPTED,
    FOUND,
    ROOT,
    RUNNER_VARIABLE,
    UNREACHABLE,
    check_pins,
    loose_requirements,
    main,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PINNED = "kazoo==2.10.0 \\\n    --hash=sha256:00ff\n    # via kinesis-spout\n"


def stub(monkeypatch: pytest.MonkeyPatch, answers: str, code: int, *, says: str = "") -> None:
    """A pip-audit that prints these words and ends with this code."""
    program = f"import sys; print({answers!r}); print({says!r}, file=sys.stderr); sys.exit({code})"
    monkeypatch.setenv(RUNNER_VARIABLE, shlex.join([sys.executable, "-c", program]))


def dependencies(*listed: Mapping[str, object]) -> str:
    return json.dumps({"dependencies": listed, "fixes": []})


CLEAN = {"name": "kazoo", "version": "2.10.0", "vulns": []}
SKIPPED = {"name": "rich", "skip_reason": "Dependency not found on PyPI: rich (15.0.0)"}
VULNERABLE = {
    "name": "kazoo",
    "version": "2.10.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.11"], "aliases": ["CVE-1"]}],
}
TODAY = date(2026, 3, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    locks = tmp_path / "locks"
    locks.mkdir()
    (locks / "lock.txt").write_text(PINNED)
    return locks


def accept(folder: Path, **changed: str) -> None:
    entry = {
        "package": '"kazoo"',
        "advisory": '"CVE-1"',
        "reason": '"we never call it"',
        "until": "2026-06-01",
    } | changed
    lines = [f"{name} = {value}" for name, value in entry.items()]
    (folder / ACCEPTED).write_text("\n".join(["[[accepted]]", *lines]))


def advisories(tmp_path: Path, *, modified: str = "2026-02-28", **more: object) -> Path:
    """A checkout with one advisory on kazoo up to, and without, 2.11."""
    checkout = tmp_path / "database"
    (checkout / "vulns" / "kazoo").mkdir(parents=True)
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.11"}]}]
    entry = {
        "id": "PYSEC-1",
        "modified": f"{modified}T10:00:00Z",
        "aliases": ["CVE-1"],
        "affected": [{"package": {"name": "Kazoo", "ecosystem": "PyPI"}, "ranges": ranges}],
    } | more
    (checkout / "vulns" / "kazoo" / "PYSEC-1.yaml").write_text(yaml.safe_dump(entry))
    return checkout


def test_all_requirements_are_pinned_with_hashes() -> None:
    assert check_pins(ROOT / "requirements") == []


def test_the_accepted_vulnerabilities_of_the_project_can_be_read() -> None:
    assert (ROOT / "requirements" / ACCEPTED).exists()
    read_accepted(ROOT / "requirements" / ACCEPTED)


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
    stub(monkeypatch, dependencies(CLEAN), 0)
    assert main([str(folder)]) == FOUND
    assert "lock.txt: moto==5.1 has no exact version with a hash" in capsys.readouterr().err


def test_nothing_found_is_said_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub(monkeypatch, dependencies(CLEAN), 0)
    assert main([str(folder)]) == 0
    assert "1 lock files with 1 pins, all pinned with hashes, no known" in capsys.readouterr().out


def test_a_vulnerability_fails_the_audit_and_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub(monkeypatch, dependencies(VULNERABLE), 1)
    assert main([str(folder)]) == FOUND
    assert "kazoo 2.10.0  PYSEC-1   CVE-1  2.11      lock.txt  no" in capsys.readouterr().err


def test_packages_that_pip_audit_skips_are_not_taken_for_clean(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 0 and says that nothing is known, also where it got no answer at all."""
    stub(monkeypatch, dependencies(CLEAN, SKIPPED), 0, says="No known vulnerabilities found")
    assert main([str(folder)]) == UNREACHABLE
    captured = capsys.readouterr()
    assert "1 packages were not audited" in captured.err
    assert ": rich; run it where" in captured.err
    assert not captured.out


def test_a_lock_file_without_any_answer_ends_the_audit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub(monkeypatch, dependencies(SKIPPED), 0)
    assert main([str(folder)]) == UNREACHABLE
    error = capsys.readouterr().err
    assert "lock.txt was not audited: the advisories have no answer for any of its 1" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "says", ["requests.exceptions.ConnectionError: Max retries exceeded", "HTTPError: 404"]
)
def test_a_failed_pip_audit_says_that_nothing_is_known(
    says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It must not look like a clean result, nor like a vulnerability."""
    stub(monkeypatch, "", 1, says=says)
    assert main([str(folder)]) == UNREACHABLE
    error = capsys.readouterr().err
    assert f"lock.txt was not audited: pip-audit failed ({says})" in error
    assert len(error.splitlines()) == 1


def test_a_program_that_is_not_there_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(RUNNER_VARIABLE, "no-such-program")
    assert main([str(folder)]) == UNREACHABLE
    assert "no-such-program cannot be run" in capsys.readouterr().err


# accepted vulnerabilities


def test_an_accepted_vulnerability_is_shown_with_its_reason_and_does_not_fail(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub(monkeypatch, dependencies(VULNERABLE), 1)
    accept(folder)
    assert main([str(folder)], today=TODAY) == 0
    captured = capsys.readouterr()
    assert "until 2026-06-01: we never call it" in captured.err
    assert "no known vulnerability but 1 accepted" in captured.out


@pytest.mark.parametrize(
    ("changed", "listed", "told"),
    [
        ({"until": "2026-02-28"}, VULNERABLE, "was accepted until 2026-02-28"),
        ({}, CLEAN, "CVE-1 of kazoo is accepted and was not found: remove the entry"),
        ({"package": '"rich"'}, VULNERABLE, "CVE-1 of rich is accepted and was not found"),
    ],
)
def test_an_acceptance_that_has_ended_or_is_not_needed_fails(
    *,
    changed: dict[str, str],
    listed: Mapping[str, object],
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stub(monkeypatch, dependencies(listed), 0)
    accept(folder, **changed)
    assert main([str(folder)], today=TODAY) == FOUND
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "changed", [{"reason": '" "'}, {"until": '"soon"'}, {"package": "1"}, {"why": '"x"'}]
)
def test_an_acceptance_without_a_reason_or_a_date_is_refused(
    changed: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accept(folder, **changed)
    with pytest.raises(SystemExit, match="2"):
        main([str(folder)])
    assert f"entry 1 has a wrong or missing {next(iter(changed))}" in capsys.readouterr().err


# a checkout of advisories


def test_a_checkout_of_advisories_is_read_without_pip_audit(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(RUNNER_VARIABLE, "no-such-program")
    checkout = advisories(tmp_path)
    assert main([str(folder), "--advisories", str(checkout)], today=TODAY) == FOUND
    assert "kazoo 2.10.0  PYSEC-1   CVE-1  2.11      lock.txt  no" in capsys.readouterr().err


def test_a_withdrawn_advisory_counts_for_nothing(tmp_path: Path, folder: Path) -> None:
    checkout = advisories(tmp_path, withdrawn="2026-02-28T10:00:00Z")
    assert main([str(folder), "--advisories", str(checkout)], today=TODAY) == 0


def test_old_advisories_are_no_clean_result(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = advisories(tmp_path, modified="2026-01-01", affected=[])
    assert main([str(folder), "--advisories", str(checkout)], today=TODAY) == UNREACHABLE
    captured = capsys.readouterr()
    assert "the newest advisory" in captured.err
    assert "is of 2026-01-01: it knows nothing of 1 pins" in captured.err
    assert not captured.out


def test_a_folder_without_advisories_is_no_clean_result(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), "--advisories", str(tmp_path)], today=TODAY) == UNREACHABLE
    assert "holds no advisories" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("events", "versions", "expected"),
    [
        ([{"introduced": "0"}, {"fixed": "2.11"}], [], True),
        ([{"introduced": "0"}, {"fixed": "2.10.0"}], [], False),
        ([{"introduced": "2.10.0"}], [], True),
        ([{"introduced": "2.10.1"}], [], False),
        ([{"introduced": "1"}, {"last_affected": "2.10.0"}], [], True),
        ([{"introduced": "1"}, {"last_affected": "2.9"}], [], False),
        ([{"fixed": "2.9"}, {"introduced": "1"}, {"introduced": "2.10"}], [], True),
        ([], ["2.10.0"], True),
        ([], ["2.1"], False),
    ],
)
def test_a_version_is_affected_by_oscillating_ranges_as_osv_defines_them(
    events: list[dict[str, str]], versions: list[str], *, expected: bool
) -> None:
    affected = {
        "package": {"name": "kazoo", "ecosystem": "PyPI"},
        "ranges": [{"type": "ECOSYSTEM", "events": events}, {"type": "GIT", "events": events}],
        "versions": versions,
    }
    assert is_affected(affected, "kazoo", "2.10.0") is expected
