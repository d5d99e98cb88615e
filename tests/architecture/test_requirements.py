"""The lock files hold what pyproject.toml asks for, by hash, and name no place to get it from."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.architecture.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOCKS = {path.name: path.read_text("utf-8") for path in (ROOT / "requirements").glob("*.txt")}
HOST = re.compile(r"://|--(?:extra-)?index-url|--find-links|--trusted-host")
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


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def asked_for(extras: Iterable[str]) -> list[Requirement]:
    """What pyproject.toml asks for in these extras, and always."""
    groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][one] for one in extras)]
    return [Requirement(line) for group in groups for line in group]


# Users do not run the extra `docs`, so its oldest packages are not tried.
DIRECT = asked_for(PROJECT["optional-dependencies"].keys() - {"docs"})
OF_DOCS = asked_for(["docs"])


@pytest.mark.parametrize("name", sorted(LOCKS))
def test_every_locked_package_has_its_hashes_and_no_host(name: str) -> None:
    """What a package index serves later under the same version is refused; where packages come from
    is the machine's business: a mirror works as well as the public index.
    """
    bad = "good==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\nbad==2.0\n    # via good\n"
    assert requirements_without_a_hash(bad) == ["bad==2.0"]
    assert locked(LOCKS[name])
    assert requirements_without_a_hash(LOCKS[name]) == []
    assert HOST.search("--index-url x")
    assert not HOST.search(LOCKS[name])


def outside(requirement: Requirement, versions: list[Version]) -> bool:
    """Whether a lock lacks the package, or has a version of it that is not asked for."""
    return not versions or not all(requirement.specifier.contains(version) for version in versions)


def above_the_bound(requirement: Requirement, versions: list[Version]) -> bool:
    """Whether the oldest locked version is not of the release that `>=` names: 6.0.1 is of 6, and
    is not of 6.0.0.
    """
    bound = next(Version(part.version) for part in requirement.specifier if part.operator == ">=")
    return not versions or min(versions).release[: len(bound.release)] != bound.release


@pytest.mark.parametrize(
    ("requirements", "lock", "is_wrong"),
    [
        (DIRECT, "lock.txt", outside),
        (OF_DOCS, "docs.txt", outside),
        (DIRECT, "lowest.txt", above_the_bound),
    ],
    ids=["lock", "docs", "lowest"],
)
def test_a_lock_has_what_is_asked_for(
    requirements: list[Requirement],
    lock: str,
    is_wrong: Callable[[Requirement, list[Version]], bool],
) -> None:
    """A dependency added to pyproject.toml without `make lock` shows here, and a lower bound that
    `make test-lowest` does not try.
    """
    assert is_wrong(Requirement("a>=2"), [])
    assert is_wrong(Requirement("a>=2"), [Version("1.9" if is_wrong is outside else "3.0")])
    versions = locked(LOCKS[lock])
    assert [one.name for one in requirements if is_wrong(one, versions.get(one.name, []))] == []


def disagreements(added: dict[str, list[Version]], base: dict[str, list[Version]]) -> list[str]:
    """Packages that two locks have in other versions."""
    return [name for name in added if name in base and not set(added[name]) <= set(base[name])]


def test_what_is_deployed_is_what_was_tested() -> None:
    """The lock of the offline bundle has no version that the project's lock does not have. Nor has
    that of the site, whose packages are installed over the others.
    """
    deploy, docs, lock = (locked(LOCKS[f"{name}.txt"]) for name in ("deploy", "docs", "lock"))
    assert disagreements({"a": [Version("2")]}, {"a": [Version("1")]}) == ["a"]
    assert set(deploy) <= set(lock)
    assert disagreements(deploy, lock) == disagreements(docs, lock) == []


def test_each_crate_of_the_native_decoder_has_its_notice_in_the_wheel() -> None:
    native = ROOT / "native"
    lock = tomllib.loads((native / "Cargo.lock").read_text("utf-8"))
    crates = {package["name"] for package in lock["package"]} - {"kinesis-spout-native"}
    files = tomllib.loads((native / "pyproject.toml").read_text("utf-8"))["project"]
    (notices,) = files["license-files"]

    named = set(re.findall(r"[\w-]+", (native / notices).read_text("utf-8")))

    assert crates
    assert crates - named == set()
