"""The lock files hold what pyproject.toml asks for, by hash, and name no place to get it from."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.architecture.source_tree import ROOT

LOCKS = (
    *("build.txt", "deploy.txt", "docs.txt", "localstack.txt", "lock.txt", "lock-tool.txt"),
    "lowest.txt",
)
ENTRY = re.compile(
    r"^([a-z0-9][a-z0-9._-]*)==(\S+)((?:.*\\\n)(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.MULTILINE,
)


def locked(text: str) -> dict[str, list[Version]]:
    """Package names and locked versions (several where Python versions differ); an entry without
    hashes is not found.
    """
    found: dict[str, list[Version]] = {}
    for name, version, _ in ENTRY.findall(text):
        found.setdefault(name, []).append(Version(version))
    return found


def requirements_without_a_hash(text: str) -> list[str]:
    """Lines of a lock that would be installed, and are no entry with hashes."""
    lines = [
        line
        for line in ENTRY.sub("", text).splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    ]
    return [line.strip() for line in lines]


def direct() -> list[Requirement]:
    """What pyproject.toml asks for, with all extras but `docs`: users do not run that one, so its
    oldest packages are not tried.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    groups = [project["dependencies"], *(extras[name] for name in extras if name != "docs")]
    return [Requirement(line) for group in groups for line in group]


def for_docs() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(line) for line in project["optional-dependencies"]["docs"]]


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_its_hashes(name: str) -> None:
    """What a package index serves later under the same version is refused."""
    bad = "good==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\nbad==2.0\n    # via good\n"
    assert requirements_without_a_hash(bad) == ["bad==2.0"]
    text = (ROOT / "requirements" / name).read_text()
    assert locked(text)
    assert requirements_without_a_hash(text) == []


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_names_a_host(name: str) -> None:
    """Where packages come from is the machine's business: a mirror works as well as the public
    index.
    """
    names_a_host = re.compile(r"://|--(?:extra-)?index-url|--find-links|--trusted-host")
    assert names_a_host.search("--index-url x")
    assert not names_a_host.search((ROOT / "requirements" / name).read_text())


def outside(requirement: Requirement, versions: list[Version]) -> bool:
    """Whether a lock lacks the package, or has a version of it that is not asked for."""
    return not versions or not all(requirement.specifier.contains(version) for version in versions)


def above_the_bound(requirement: Requirement, versions: list[Version]) -> bool:
    """Whether the oldest locked version is not of the release that `>=` names: 6.0.1 is of 6, and
    is not of 6.0.0.
    """
    bound = next(Version(part.version) for part in requirement.specifier if part.operator == ">=")
    return not versions or min(versions).release[: len(bound.release)] != bound.release


@pytest.mark.parametrize("requirement", direct(), ids=lambda requirement: requirement.name)
def test_the_lock_is_within_what_is_asked_for(requirement: Requirement) -> None:
    """A dependency added to pyproject.toml without `make lock` shows here."""
    assert outside(Requirement("a>=2"), [Version("1.9")])
    assert outside(Requirement("a>=2"), [])
    assert not outside(
        requirement,
        locked((ROOT / "requirements" / "lock.txt").read_text()).get(requirement.name, []),
    )


@pytest.mark.parametrize("requirement", direct(), ids=lambda requirement: requirement.name)
def test_the_oldest_packages_are_the_lower_bounds(requirement: Requirement) -> None:
    """What `make test-lowest` passes with is what pyproject.toml promises."""
    assert above_the_bound(Requirement("a>=2"), [Version("3.0")])
    assert above_the_bound(Requirement("a>=2"), [])
    assert not above_the_bound(
        requirement,
        locked((ROOT / "requirements" / "lowest.txt").read_text()).get(requirement.name, []),
    )


@pytest.mark.parametrize("requirement", for_docs(), ids=lambda requirement: requirement.name)
def test_the_lock_of_the_site_is_within_what_is_asked_for(requirement: Requirement) -> None:
    """Likewise."""
    docs = locked((ROOT / "requirements" / "docs.txt").read_text())
    assert not outside(requirement, docs.get(requirement.name, []))


def disagreements(added: dict[str, list[Version]], base: dict[str, list[Version]]) -> list[str]:
    """Packages that two locks have in other versions."""
    return [name for name in added if name in base and not set(added[name]) <= set(base[name])]


def test_what_is_deployed_is_what_was_tested() -> None:
    """The lock of the offline bundle has no version that the project's lock does not have."""
    deploy = locked((ROOT / "requirements" / "deploy.txt").read_text())
    lock = locked((ROOT / "requirements" / "lock.txt").read_text())
    assert set(deploy) <= set(lock)
    assert disagreements(deploy, lock) == []


def test_the_lock_of_the_site_changes_no_package_of_the_project() -> None:
    """Its packages are installed over the others: another version would be one that no test ran
    with.
    """
    assert disagreements({"a": [Version("2")]}, {"a": [Version("1")]}) == ["a"]
    docs = locked((ROOT / "requirements" / "docs.txt").read_text())
    assert disagreements(docs, locked((ROOT / "requirements" / "lock.txt").read_text())) == []
