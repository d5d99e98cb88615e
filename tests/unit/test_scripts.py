"""The scripts whose faults nobody would see: when an environment is ready, what an offline bundle
has, and what `make audit` finds: pins and hashes by our own code, advisories by pip-audit, whose
place a stub takes here, or from a checkout. The rest of the set-up shows its faults when it runs.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
import zipfile
from datetime import date
from typing import TYPE_CHECKING

import pytest
import yaml

from scripts.advisories import is_affected, read_accepted
from scripts.audit import (
    ACCEPTED,
    FOUND,
    RUNNER_VARIABLE,
    UNREACHABLE,
    check_pins,
    loose_requirements,
    main,
)
from scripts.bundle import EXTRAS, OF_SPARK, PROJECT, requirement_lines
from scripts.steps import SetUpError
from scripts.virtual_environment import Environment
from tests.architecture.source_tree import PACKAGES, ROOT

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
    """And the accepted vulnerabilities of the project can be read."""
    assert check_pins(ROOT / "requirements") == []
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


NOT_AUDITED = "lock.txt was not audited: "
REFUSED = "requests.exceptions.ConnectionError: Max retries exceeded"


@pytest.mark.parametrize(
    ("listed", "code", "says", "ends", "said"),
    [
        ([CLEAN], 0, "", 0, "1 lock files with 1 pins, all pinned with hashes, no known"),
        ([VULNERABLE], 1, "", FOUND, "kazoo 2.10.0  PYSEC-1   CVE-1  2.11      lock.txt  no"),
        # Skipped ones are not taken for clean: pip-audit ends with 0 also where it got no answer.
        (
            [CLEAN, SKIPPED],
            0,
            "No known vulnerabilities found",
            UNREACHABLE,
            "1 packages were not audited, as the advisories have no answer for them: rich; run",
        ),
        (
            [SKIPPED],
            0,
            "",
            UNREACHABLE,
            f"{NOT_AUDITED}the advisories have no answer for any of its 1",
        ),
        # A failure looks neither like a clean result nor like a vulnerability.
        *(
            (None, 1, says, UNREACHABLE, f"{NOT_AUDITED}pip-audit failed ({says})")
            for says in (REFUSED, "HTTPError: 404")
        ),
    ],
)
def test_what_pip_audit_finds_and_what_it_does_not_know_are_told_apart(
    *,
    listed: list[Mapping[str, object]] | None,
    code: int,
    says: str,
    ends: int,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stub(monkeypatch, "" if listed is None else dependencies(*listed), code, says=says)
    assert main([str(folder)]) == ends
    captured = capsys.readouterr()
    assert said in (captured.err if ends else captured.out)
    assert not (captured.out if ends == UNREACHABLE else "")


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


# a checkout of advisories


def test_a_checkout_of_advisories_is_read_without_pip_audit(
    tmp_path: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(RUNNER_VARIABLE, "no-such-program")
    checkout = advisories(tmp_path / "valid")
    assert main([str(folder), "--advisories", str(checkout)], today=TODAY) == FOUND
    assert "kazoo 2.10.0  PYSEC-1   CVE-1  2.11      lock.txt  no" in capsys.readouterr().err
    withdrawn = advisories(tmp_path / "withdrawn", withdrawn="2026-02-28T10:00:00Z")
    assert main([str(folder), "--advisories", str(withdrawn)], today=TODAY) == 0


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


@pytest.fixture
def project(tmp_path: Path) -> Environment:
    """A made-up project, and the environment that its lock asks for, which is not made yet."""
    requirements = tmp_path / "requirements"
    requirements.mkdir()
    for name in ("lock.txt", "docs.txt", "localstack.txt", "build.txt", "../pyproject.toml"):
        (requirements / name).write_text("one")
    return Environment(
        root=tmp_path,
        folder=tmp_path / ".venv",
        lock=requirements / "lock.txt",
        log=tmp_path / "set-up.log",
    )


def test_an_environment_is_ready_only_for_what_it_was_made_from(project: Environment) -> None:
    """Another lock means new packages, another pyproject.toml a new installation of the project, a
    half-made one is not ready.
    """
    assert not project.is_ready()
    assert project.needs_new_packages()
    project.folder.mkdir()
    project.write_stamp(project.wanted())
    assert project.is_ready()
    (project.root / "pyproject.toml").write_text("two")
    assert not project.is_ready()
    assert not project.needs_new_packages()
    project.lock.write_text("two")
    assert project.needs_new_packages()


def test_an_environment_of_another_checkout_is_not_emptied_through_a_link(
    project: Environment, tmp_path: Path
) -> None:
    """It was made from the same locks, for another folder."""
    others = tmp_path / "other" / ".venv"
    others.mkdir(parents=True)
    kept = others / "set-up.json"
    kept.write_text("{}")
    project.folder.symlink_to(others)
    with pytest.raises(SetUpError, match="is a link"):
        project.make()
    assert kept.exists()


def wheels(folder: Path, *names: str) -> list[Path]:
    paths = [folder / f"{name}-py3-none-any.whl" for name in names]
    for path in paths:
        path.write_bytes(path.name.encode())
    return paths


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_each_wheel_is_asked_for_by_version_and_hash(tmp_path: Path) -> None:
    """The project with its extras, so that pip compares what they bring with the list."""
    spout, boto = wheels(tmp_path, "kinesis_spout-0.1.0", "boto3-1.44.5")
    assert requirement_lines([spout, boto], with_spark=True) == [
        f"boto3==1.44.5 --hash=sha256:{digest(boto)}",
        f"kinesis-spout[{','.join(EXTRAS)}]==0.1.0 --hash=sha256:{digest(spout)}",
    ]


def test_the_lock_has_what_a_bundle_leaves_out(tmp_path: Path) -> None:
    """A name that changed would put a second Spark on a cluster."""
    lock = (ROOT / "requirements" / "deploy.txt").read_text("utf-8")
    assert all(f"\n{name}==" in lock for name in OF_SPARK)


def test_the_wheel_has_all_that_a_user_needs_and_nothing_else(wheel: Path) -> None:
    """Every file of the packages, their `py.typed`, the commands, the license."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(info)} == files
    assert {f"{package}/py.typed" for package in PACKAGES} <= files
    assert f"{info}/licenses/LICENSE" in names
    assert "kinesis-spout = kinesis_spout.cli.entry:main" in entry_points
    assert all(f"{name} = spark_job." in entry_points for name in ("run", "demo", "redrive"))
    assert f"Name: {PROJECT}\n" in metadata
    assert all(f"Provides-Extra: {extra}\n" in metadata for extra in EXTRAS)
