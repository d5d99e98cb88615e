"""Finds the records that make a function fail on its whole batch, by running it on parts: pure,
over positions.

The whole has failed before. Level by level, each part that failed is halved, and the halves are
run; a part of one record that fails is poison. A half that must fail, as the other one succeeded,
is not run as a whole again (one record is: it may be that only both together fail). The calls are
bounded; what is not resolved then comes again with the next batches, smaller.

A sink that is down is not taken for poison: when most quarters of the batch fail the batch fails,
and where nothing at all succeeded (in a batch too small for quarters) the records that failed by
themselves are told apart from poison.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_RECORDS_FOR_QUARTERS = 4
Part = tuple[int, int]
"""Positions from the first up to, not including, the second."""


@dataclass(slots=True)
class Bisection:
    """What was found. `failed`: most of the batch fails, so nothing is known. `calls` counts the
    runs, without the first one.

    `alone`: records that failed by themselves where nothing succeeded.
    """

    poison: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    unresolved: list[Part] = field(default_factory=list)
    failed: bool = False
    calls: int = 0


def max_calls(count: int) -> int:
    """How many runs, besides one per poison record, a batch of `count` records may cost."""
    return 4 * max(1, (count - 1).bit_length())


def bisect(count: int, succeeds: Callable[[Part], bool]) -> Bisection:
    """Find the poison among `count` records; `succeeds` runs a part. The whole is taken to have
    failed.
    """
    search = _Search(count, succeeds)
    level: list[Part] = [(0, count)] if count else []
    depth = 0
    while level and not search.found.failed:
        level = search.halve(level, may_skip=depth >= 2)
        depth += 1
        if depth == 2 and count >= MIN_RECORDS_FOR_QUARTERS and search.quarters_failed(level) > 2:
            search.found.failed = True
    return search.result()


class _Search:
    def __init__(self, count: int, succeeds: Callable[[Part], bool]) -> None:
        self._count = count
        self._succeeds = succeeds
        self._any_success = False
        self.found = Bisection()

    def halve(self, level: list[Part], *, may_skip: bool) -> list[Part]:
        """Run the halves of these parts; those that failed, in their order."""
        failed: list[Part] = []
        for first, last in level:
            middle = (first + last + 1) // 2
            halves = [(first, middle), (middle, last)] if last - first > 1 else [(first, last)]
            outcomes: list[bool | None] = []
            for half in halves:
                must_fail = may_skip and outcomes == [True] and half[1] - half[0] > 1
                outcomes.append(False if must_fail else self._run(half))
            failed += [
                half
                for half, outcome in zip(halves, outcomes, strict=True)
                if outcome is False and not self._is_poison(half)
            ]
        return failed

    def quarters_failed(self, level: list[Part]) -> int:
        """How many of the four quarters have failed, where those that are single records are poison
        already.
        """
        return len(level) + len(self.found.poison)

    def result(self) -> Bisection:
        found = self.found
        if not found.failed and not self._any_success:
            found.poison, found.alone = [], sorted(found.poison)
        found.poison.sort()
        found.unresolved.sort()
        return found

    def _is_poison(self, part: Part) -> bool:
        if part[1] - part[0] == 1:
            self.found.poison.append(part[0])
            return True
        return False

    def _run(self, part: Part) -> bool | None:
        """Whether the part succeeds; None when there are no calls left for it."""
        if self.found.calls >= max_calls(self._count) + len(self.found.poison):
            self.found.unresolved.append(part)
            return None
        self.found.calls += 1
        succeeded = self._succeeds(part)
        self._any_success |= succeeded
        return succeeded
