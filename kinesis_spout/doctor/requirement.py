"""Lower bounds of packages, as a distribution's metadata gives them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Requirement:
    """`name` in at least version `lowest` (`""`: any), for an extra or for all (None)."""

    name: str
    lowest: str
    extra: str | None = None

    def is_met_by(self, version: str) -> bool:
        return numbers_of(version) >= numbers_of(self.lowest)


def requirements(lines: Iterable[str]) -> list[Requirement]:
    """Of the lines of a distribution's `Requires-Dist`. Bounds from above are left out."""
    found = []
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        if match is None:
            continue
        name, bounds, marker = match.groups()
        lowest = next(
            (one.strip()[2:].strip() for one in bounds.split(",") if one.strip()[:2] == ">="), ""
        )
        extra = _EXTRA.search(marker or "")
        found.append(Requirement(name, lowest, None if extra is None else extra[1]))
    return found


def numbers_of(version: str) -> tuple[int, ...]:
    """The release's numbers without the zeros at its end: `4.2.0.dev1` is (4, 2)."""
    numbers = []
    for part in version.split("."):
        match = _NUMBERS.match(part)
        if match is None:
            break
        numbers.append(int(match[0]))
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
