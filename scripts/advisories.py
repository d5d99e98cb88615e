"""Known vulnerabilities of pinned packages: what pip-audit answers, what a folder of advisories
holds, and which of them are accepted.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import yaml
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

OLD = timedelta(days=30)
"""Advisories older than this say nothing of what has been published since."""
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[\w,.-]+\])?==([^\s;\\]+)", re.MULTILINE)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A vulnerability of one pinned version. `fixed_in` is empty where no version is free of it."""

    package: str
    version: str
    advisory: str
    fixed_in: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is known of a lock file: what was found, and the pins of which nothing is known."""

    findings: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()
    asked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A vulnerability that does not fail the audit, why, and until when."""

    package: str
    advisory: str
    reason: str
    until: date

    def covers(self, finding: Finding) -> bool:
        names = {finding.advisory, *finding.aliases}
        return self.advisory in names and canonicalize_name(self.package) == finding.package


def pins(text: str) -> list[tuple[str, str]]:
    """Names and versions of a lock file."""
    return [(canonicalize_name(name), version) for name, version in _PIN.findall(text)]


def pip_audit_answer(said: str) -> Answer:
    """The answer in pip-audit's JSON.

    Raises:
        ValueError: it is not that JSON.

    """
    try:
        listed = json.loads(said)["dependencies"]
        return Answer(
            findings=tuple(
                Finding(
                    canonicalize_name(one["name"]),
                    one["version"],
                    found["id"],
                    tuple(found["fix_versions"]),
                    tuple(found.get("aliases", ())),
                )
                for one in listed
                for found in one.get("vulns", ())
            ),
            unknown=tuple(one["name"] for one in listed if "skip_reason" in one),
            asked=len(listed),
        )
    except (KeyError, TypeError) as exc:
        message = f"pip-audit's JSON has no {exc}"
        raise ValueError(message) from exc


# a folder of advisories


class AdvisoryFolder:
    """A checkout of the PyPA's advisory database: YAML files in the OSV format, a folder a package.

    Reads the files of a package when it is asked for. `published` is the newest change of any
    advisory, so it reads them all once.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "vulns" if (folder / "vulns").is_dir() else folder

    def published(self) -> datetime | None:
        """When the newest advisory was changed; None without any."""
        dates = re.compile(r"^modified: ['\"]?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", re.MULTILINE)
        found = [
            found[1]
            for path in self._folder.glob("*/*.yaml")
            if (found := dates.search(path.read_text("utf-8"))) is not None
        ]
        return datetime.fromisoformat(max(found)).replace(tzinfo=UTC) if found else None

    def answer(self, text: str) -> Answer:
        """What the advisories say of a lock file's pins."""
        pinned = pins(text)
        findings = [found for name, version in pinned for found in self._findings(name, version)]
        return Answer(findings=tuple(findings), asked=len(pinned))

    def _findings(self, name: str, version: str) -> Iterator[Finding]:
        for path in sorted((self._folder / name).glob("*.yaml")):
            advisory = yaml.load(path.read_text("utf-8"), _LOADER)  # noqa: S506  # a safe loader
            if "withdrawn" in advisory:
                continue
            for affected in advisory.get("affected", ()):
                if is_affected(affected, name, version):
                    yield Finding(
                        name,
                        version,
                        advisory["id"],
                        tuple(_fixes(affected)),
                        tuple(advisory.get("aliases", ())),
                    )


def is_affected(affected: Mapping[str, Any], name: str, version: str) -> bool:
    """Whether an `affected` entry of an OSV advisory covers a version: it lists it, or one of its
    ranges holds it.
    """
    package = affected.get("package", {})
    if package.get("ecosystem") != "PyPI" or canonicalize_name(package.get("name", "")) != name:
        return False
    if version in affected.get("versions", ()):
        return True
    return any(_in_range(one["events"], version) for one in _version_ranges(affected))


def _version_ranges(affected: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in affected.get("ranges", ()) if one.get("type") == "ECOSYSTEM"]


def _in_range(events: Iterable[Mapping[str, Any]], version: str) -> bool:
    """By OSV's rule: the last event at or before the version says whether it is affected.
    `last_affected` ends a range after its version, `fixed` before it.
    """
    wanted, is_inside = Version(version), False
    for at, kind in sorted(_events(events)):
        if at > wanted or (at == wanted and kind == _LAST):
            break
        is_inside = kind == _INTRODUCED
    return is_inside


_FIXED, _INTRODUCED, _LAST = 0, 1, 2
_KINDS = {"introduced": _INTRODUCED, "fixed": _FIXED, "last_affected": _LAST}


def _events(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Version, int]]:
    for event in events:
        for word, value in event.items():
            try:
                yield Version(str(value)), _KINDS[word]
            except (InvalidVersion, KeyError):
                continue


def _fixes(affected: Mapping[str, Any]) -> list[str]:
    return [
        str(event["fixed"])
        for one in _version_ranges(affected)
        for event in one["events"]
        if "fixed" in event
    ]


# what is accepted


def read_accepted(path: Path) -> list[Accepted]:
    """The file of accepted vulnerabilities; none where it is not there.

    Raises:
        ValueError: an entry lacks a field, or has one too many; the message names it.

    """
    if not path.exists():
        return []
    entries = tomllib.loads(path.read_text("utf-8")).get("accepted", [])
    found = []
    for number, entry in enumerate(entries, 1):
        wanted = {"package": str, "advisory": str, "reason": str, "until": date}
        wrong = [name for name, kind in wanted.items() if not isinstance(entry.get(name), kind)]
        wrong += [name for name in entry if name not in wanted]
        if wrong or not entry["reason"].strip():
            what = ", ".join(wrong) or "reason"
            message = (
                f"{path.name}: entry {number} has a wrong or missing {what}; it needs package, "
                "advisory, reason and until (a date)"
            )
            raise ValueError(message)
        found.append(Accepted(**entry))
    return found


def stale(accepted: Sequence[Accepted], findings: Iterable[Finding], today: date) -> list[str]:
    """A sentence for each acceptance that has ended, or that nothing needs any more."""
    findings = list(findings)
    told = []
    for one in accepted:
        name = f"{one.advisory} of {one.package}"
        if one.until < today:
            told.append(f"{name} was accepted until {one.until}: upgrade, or say why not again")
        elif not any(one.covers(finding) for finding in findings):
            told.append(f"{name} is accepted and was not found: remove the entry")
    return told
