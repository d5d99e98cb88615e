"""The set-up scripts: what they find on a machine, what they say when they can't go on, when they
do nothing.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.debian_packages import JAVA, NODE, Need, sentence_for, unpack
from scripts.runtimes import Java, find_java, find_node
from scripts.set_up import localstack_environment
from scripts.steps import SetUpError, reason_in, run_logged
from scripts.virtual_environment import Environment, pip_version

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


def test_a_java_home_without_java_is_no_java(tmp_path: Path) -> None:
    """Nor is a java that can't be run or says nothing."""
    broken = program(tmp_path / "broken" / "bin" / "java", "hello")
    assert (
        find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(broken.parent)}, NO_JVMS)
        is None
    )


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


@pytest.mark.parametrize(
    ("output", "reason"),
    [("", "it printed nothing"), ("one\ntwo\n\n", "two"), ("E: no\nnotice\n", "E: no")],
)
def test_the_reason_is_never_empty(output: str, reason: str) -> None:
    """Whatever the program has printed."""
    assert reason_in(output) == reason


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


def test_a_tools_environment_is_not_created_again_for_the_project(project: Environment) -> None:
    """LocalStack's holds its lock's packages and nothing of the project, so pyproject.toml is none
    of its business.
    """
    environment = localstack_environment(project.root)
    assert environment.folder == project.root / ".tools" / "localstack" / "venv"
    environment.folder.mkdir(parents=True)
    environment.write_stamp(environment.wanted())
    (project.root / "pyproject.toml").write_text("two")
    assert environment.is_ready()
    environment.lock.write_text("two")
    assert environment.needs_new_packages()


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


def test_the_version_of_pip_is_read(tmp_path: Path) -> None:
    """An old pip can't install into another environment, so it is as good as none."""
    assert pip_version(
        [str(program(tmp_path / "pip", "pip 22.0.2 from /usr/lib (python 3.10)"))]
    ) == (22, 0)
    assert pip_version([str(tmp_path / "nothing")]) is None
    assert pip_version([sys.executable, "-c", "print('hello')"]) is None
