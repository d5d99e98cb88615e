"""Finds the poison records of a batch, on which a function fails as a whole. Pure, over positions.

The search starts after the whole batch has failed. It halves each part that failed and runs the
halves: level by level down to eighths, then one part after the other down to single records, so
that some poison is found however much there is. A single record that fails is poison. If one half
succeeded, the other half must contain the poison, so from the third level on it is halved without
being run. A single record is always run: perhaps the function fails only if both records are in one
part.

The number of runs is bounded by `max_calls`. Parts that are then left over are queued again and
come with later batches.

A sink that is down must not be taken for poison:

- if more than four of the eight eighths fail, the whole batch counts as failed, after at most 14
  runs. A few poison records are in at most as many eighths, wherever they are;
- if nothing succeeded, the single records that failed are `alone` and not `poison`. This decides
  in batches that are too small for eighths, which are searched to single records while calls are
  left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_RECORDS_FOR_EIGHTHS = 16
_EIGHTHS_DEPTH = 3
_MOST_FAILED_EIGHTHS = 4
Part = tuple[int, int]
"""A range of positions: the first is included, the second is not."""


@dataclass(slots=True)
class Bisection:
    """The result of the search.

    - `poison`: records that failed by themselves, while others succeeded.
    - `alone`: records that failed by themselves, while nothing succeeded.
    - `unresolved`: parts that were not searched to the end.
    - `failed`: most of the batch fails, so nothing is known of single records.
    - `calls`: the number of runs, without the one of the whole batch.
    """

    poison: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    unresolved: list[Part] = field(default_factory=list)
    failed: bool = False
    calls: int = 0


def max_calls(count: int) -> int:
    """The limit on runs for a batch of `count` records, to which each poison record adds one."""
    return 4 * max(1, (count - 1).bit_length())


def bisect(count: int, succeeds: Callable[[Part], bool]) -> Bisection:
    """Find the poison among `count` records. The run of the whole batch must have failed.

    `succeeds` runs the function on a part and says whether it succeeded.
    """
    search = _Search(count, succeeds)
    parts: list[Part] = [(0, count)] if count else []
    for depth in range(_EIGHTHS_DEPTH):
        parts = search.halve(parts, may_skip=depth >= 2)
    if count >= MIN_RECORDS_FOR_EIGHTHS and len(parts) > _MOST_FAILED_EIGHTHS:
        search.found.failed = True
        return search.result()
    while parts and search.has_calls_left:
        parts = [*search.halve(parts[:1], may_skip=True), *parts[1:]]
    search.found.unresolved += parts
    return search.result()


class _Search:
    def __init__(self, count: int, succeeds: Callable[[Part], bool]) -> None:
        self._count = count
        self._succeeds = succeeds
        self._any_success = False
        self.found = Bisection()

    @property
    def has_calls_left(self) -> bool:
        return self.found.calls < max_calls(self._count) + len(self.found.poison)

    def halve(self, level: list[Part], *, may_skip: bool) -> list[Part]:
        """Run the halves of these parts. Returns those that failed and are not poison, in order.

        `may_skip`: a half is not run if it must fail because the other half succeeded.
        """
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
        """Whether the part succeeds; None if no calls are left."""
        if not self.has_calls_left:
            self.found.unresolved.append(part)
            return None
        self.found.calls += 1
        succeeded = self._succeeds(part)
        self._any_success |= succeeded
        return succeeded
