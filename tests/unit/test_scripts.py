"""The scripts: what the set-up finds on a machine and says when it cannot go on, what an offline
bundle has, and what `make audit` finds: pins and hashes by our own code, advisories by pip-audit,
whose place a stub takes here, or from a checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
import zipfile
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from scripts import native_wheel
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
from scripts.debian_packages import JAVA, NODE, Need, sentence_for, unpack
from scripts.runtimes import Java, find_java, find_node
from scripts.steps import SetUpError, reason_in, run_logged
from scripts.virtual_environment import Environment
from tests.architecture.source_tree import PACKAGES, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def test_a_loose_requirement_fails_the_audit_and_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "lock.txt").write_text(f"{PINNED}moto==5.1\n")
    stub(monkeypatch, dependencies(CLEAN), 0)
    assert main([str(folder)]) == FOUND
    assert "lock.txt: moto==5.1 has no exact version with a hash" in capsys.readouterr().err


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
    checkout = advisories(tmp_path / "valid")
    assert main([str(folder), "--advisories", str(checkout)], today=TODAY) == FOUND
    assert "kazoo 2.10.0  PYSEC-1   CVE-1  2.11      lock.txt  no" in capsys.readouterr().err
    withdrawn = advisories(tmp_path / "withdrawn", withdrawn="2026-02-28T10:00:00Z")
    assert main([str(folder), "--advisories", str(withdrawn)], today=TODAY) == 0


def test_old_advisories_and_none_are_no_clean_result(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(folder), "--advisories", str(tmp_path)], today=TODAY) == UNREACHABLE
    assert "holds no advisories" in capsys.readouterr().err
    checkout = advisories(tmp_path, modified="2026-01-01", affected=[])
    assert main([str(folder), "--advisories", str(checkout)], today=TODAY) == UNREACHABLE
    captured = capsys.readouterr()
    assert "the newest advisory" in captured.err
    assert "is of 2026-01-01: it knows nothing of 1 pins" in captured.err
    assert not captured.out


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


NO_JVMS = Path("/nonexistent")


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


def program(path: Path, *lines: str, stream: int = 1) -> Path:
    """An executable that prints these lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines)
    path.write_text(f"#!/bin/sh\ncat >&{stream} <<'end'\n{text}\nend\n")
    path.chmod(0o755)
    return path


def java(home: Path, release: str) -> Path:
    """A made-up Java: the properties that a real one prints to its error stream."""
    program(
        home / "bin" / "java",
        "Picked up JAVA_TOOL_OPTIONS: -Xmx1g",
        f"    java.home = {home}",
        f"    java.specification.version = {release}",
        stream=2,
    )
    return home


def test_the_java_of_java_home_goes_before_the_one_in_path(tmp_path: Path) -> None:
    """A user who has set JAVA_HOME has chosen."""
    chosen, other = java(tmp_path / "chosen", "21"), java(tmp_path / "other", "17")
    environ = {"JAVA_HOME": str(chosen), "PATH": f"{other / 'bin'}:{os.defpath}"}
    assert find_java(environ, NO_JVMS) == Java(chosen, 21)


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    """Java 8 in JAVA_HOME and 11 in PATH do not hide the 17 that Debian has installed."""
    old, older, jvms = (
        java(tmp_path / "old", "11"),
        java(tmp_path / "older", "1.8"),
        tmp_path / "jvm",
    )
    good = java(jvms / "java-17", "17")
    environ = {"JAVA_HOME": str(older), "PATH": f"{old / 'bin'}:{os.defpath}"}
    assert find_java(environ, jvms) == Java(good, 17)
    assert find_java(environ, NO_JVMS) is None


@pytest.mark.parametrize(
    ("said", "found"), [("v18.0.0", 18), ("v22.11.0", 22), ("v16.20.2", None), ("18", None)]
)
def test_node_is_taken_from_18_on(tmp_path: Path, said: str, found: int | None) -> None:
    """And only together with npm."""
    program(tmp_path / "node", said)
    environ = {"PATH": f"{tmp_path}:{tmp_path / 'with-npm'}:/bin"}
    if not Path("/bin/npm").exists():
        assert find_node(environ) is None
    program(tmp_path / "with-npm" / "npm", "10.0.0")
    assert find_node(environ) == found


def test_a_user_who_may_not_install_is_told_all_that_is_missing_in_one_sentence() -> None:
    """One command brings everything, not one per attempt."""
    sentence = sentence_for([JAVA, NODE])
    assert sentence.startswith(
        "this machine has no Java 17 or newer, no Node 18 or newer with npm, and this user may not "
        "install"
    )
    assert "\n" not in sentence
    assert "no such thing" in sentence_for(
        [Need(what="such thing", alternatives=(("a-package-that-nobody-has",),))]
    )


@pytest.mark.parametrize("network", ["up", "down"])
def test_a_package_is_unpacked_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str
) -> None:
    """Without installing it: Debian's package of promtool starts a server. A failure is a line."""
    downloads = network == "up"
    fake = tmp_path / "bin"
    fake.mkdir()
    for name, text in (
        ("apt-get", "touch $2.deb" if downloads else "echo E: no network; exit 100"),
        ("dpkg-deb", 'mkdir -p "$3"; touch "$3/promtool"'),
    ):
        (fake / name).write_text(f"#!/bin/sh\n{text}\n")
        (fake / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    folder = tmp_path / "tools" / "prometheus"
    unpack("prometheus", folder, log=tmp_path / "set-up.log")
    assert (folder / "promtool").exists() is downloads
    assert [entry.name for entry in folder.parent.iterdir()] == ["prometheus"] * downloads


def test_sparks_zip_gives_way_to_the_package_beside_it(project: Environment) -> None:
    """Python keeps no compiled files for a zip."""
    package = project.folder / "lib" / "python3.11" / "site-packages" / "pyspark"
    archive = package / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    archive.touch()
    for _ in range(2):
        project.take_pyspark_from_its_folder()
        assert not archive.exists()


def test_a_step_that_fails_says_why_in_one_sentence_and_where_the_rest_is(tmp_path: Path) -> None:
    """The line that calls itself an error, not the last one; output of earlier steps does not
    count.
    """
    log = tmp_path / "set-up.log"
    run_logged(["sh", "-c", "echo ERROR: of an earlier step"], what="an earlier step", log=log)
    with pytest.raises(SetUpError) as raised:
        run_logged(["sh", "-c", "echo ERROR: no disk; echo bye; exit 3"], what="copying", log=log)
    assert (
        str(raised.value) == "copying failed: ERROR: no disk (all of its output is in set-up.log)"
    )
    assert "ERROR: of an earlier step" in log.read_text()


def test_a_network_that_is_down_is_named() -> None:
    """Pip's last line only says that it found no matching distribution."""
    output = (
        "ERROR: Could not find a version of a==1 (from versions: none)\n"
        "ERROR: No matching distribution found for a==1\n"
    )
    assert "check the network" in reason_in(output)
    assert "check the network" not in reason_in("ERROR: No space left on device")


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


def test_the_packages_of_a_second_lock_are_added_and_stay(project: Environment) -> None:
    """`make docs` adds Sphinx to what `make setup` made; the next `make setup` does nothing."""
    docs = project.lock.with_name("docs.txt")
    with_docs = replace(project, added_lock=docs)
    project.folder.mkdir()
    project.write_stamp(project.wanted())
    assert not with_docs.is_ready()
    assert not with_docs.needs_new_packages()
    with_docs.write_stamp(with_docs.wanted())
    assert with_docs.is_ready()
    assert project.is_ready()
    docs.write_text("two")
    assert project.is_ready()
    assert not with_docs.is_ready()


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


def test_a_security_update_of_python_leaves_the_environment_as_it_is(
    project: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's keep the version and change the build; the environment links to the interpreter, so
    it has the update.
    """
    project.folder.mkdir()
    project.write_stamp(project.wanted())
    monkeypatch.setattr(sys, "version", f"{sys.version} of another day")
    assert project.is_ready()


@pytest.fixture
def native_sources(project: Environment, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up native decoder, on a machine with a cargo and without all else."""
    monkeypatch.setenv("HOME", str(project.root))
    monkeypatch.setenv("PATH", str(program(project.root / "bin" / "cargo").parent))
    source = project.root / "native" / "src" / "lib.rs"
    source.parent.mkdir(parents=True)
    for path in (source, source.parent.parent / "Cargo.toml", source.parent.parent / "Cargo.lock"):
        path.write_text("one")
    return source


def test_a_native_decoder_that_has_changed_is_built_again(
    project: Environment, native_sources: Path
) -> None:
    """Where there is a Rust; elsewhere nothing is missing."""
    project.folder.mkdir()
    project.write_stamp(project.wanted())
    assert project.is_ready()
    native_sources.write_text("two")
    assert not project.is_ready()
    assert not project.needs_new_packages()
    Path(os.environ["PATH"], "cargo").unlink()
    assert project.is_ready()


@pytest.mark.parametrize("cargo", ["missing", "fails"])
def test_the_set_up_goes_on_without_a_native_decoder(
    project: Environment, native_sources: Path, cargo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says that decoding is slower, and why or what to install. The next run tries
    again.
    """
    if cargo == "missing":
        Path(os.environ["PATH"], "cargo").unlink()
    else:  # maturin would say what cargo says
        program(project.python).write_text("#!/bin/sh\necho error: no crates\nexit 1\n")
    found = native_wheel.build(project.python, project.root, project.folder, project.log)
    assert found is None
    line = capsys.readouterr().out.splitlines()[-1]
    assert "so pages are decoded by the slower path in Python" in line
    assert ("install cargo" if cargo == "missing" else "failed: error: no crates") in line


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


def test_a_machine_that_has_spark_is_not_asked_for_another(tmp_path: Path) -> None:
    found = wheels(tmp_path, "kinesis_spout-0.1.0", "pyspark-4.3.0", "py4j-0.10.9.9")
    (line,) = requirement_lines(found, with_spark=False)
    assert line.startswith("kinesis-spout[cbor,metrics]==0.1.0 ")
    assert len(requirement_lines(found, with_spark=True)) == 3


def test_a_file_that_is_not_a_wheel_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetUpError, match=r"x\.whl is not named as a wheel; remove it"):
        requirement_lines([tmp_path / "x.whl"], with_spark=True)


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
