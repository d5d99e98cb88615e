"""A naive tracker: it keeps every record that was ever read in one list, and walks the list for
each answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from state.shard_state import TIMED_OUT
from state.tracker.inflight_record_tracker import UNANSWERED
from state.tracker.transitions import Effect

if TYPE_CHECKING:
    from state.shard_state import ShardState

LIMIT = 2
MAX_AGE_MS = 1_500
FIRST_DELAY_MS = 100

UNRESOLVED = ("pending", "queued", "exhausted")


@dataclass
class Entry:
    """Records that share an outcome: one, or those of a span. `known`: the numbers among them that
    the tracker was given. `announced_ms`: when it was announced; None when it is not.
    `postponed_ms`: when it is tried again, if that is another time than the stored one.
    """

    numbers: list[int]
    status: str = "pending"
    attempts: int = 0
    due_ms: int = 0
    first_failure_ms: int | None = None
    last_failure_ms: int | None = None
    reason: str | None = None
    deadline_ms: int | None = None
    known: list[int] = field(default_factory=list)
    found_alone: bool = False
    has_failed: bool = False
    uncounted: bool = False
    rejected: bool = False
    announced_ms: int | None = None
    postponed_ms: int | None = None

    @property
    def next_ms(self) -> int:
        return self.due_ms if self.postponed_ms is None else self.postponed_ms

    @property
    def first(self) -> int:
        return self.numbers[0]

    @property
    def unresolved(self) -> bool:
        return self.status in UNRESOLVED

    @property
    def deliveries(self) -> int:
        if self.status == "pending":
            return self.attempts + 1
        return self.attempts + self.uncounted if self.unresolved else 0

    @property
    def as_if_unread(self) -> bool:
        return (
            self.status == "pending"
            and not self.has_failed
            and not self.found_alone
            and self.announced_ms is None
        )

    def stored(self) -> tuple[object, ...]:
        told = replace(self)
        told.end_unanswered()
        return (
            told.numbers[0],
            told.numbers[-1],
            len(told.numbers),
            told.attempts,
            told.due_ms,
            told.first_failure_ms,
            told.last_failure_ms,
            told.reason,
            told.rejected,
        )

    def end_unanswered(self) -> None:
        """The process ends: an announced delivery counts as failed."""
        if self.announced_ms is not None:
            self.attempts += 1
            self.due_ms = self.announced_ms
            if self.first_failure_ms is None:
                self.first_failure_ms = self.announced_ms
            self.last_failure_ms, self.reason = self.announced_ms, UNANSWERED
            self.has_failed, self.announced_ms = True, None


class Oracle:
    """The expected answers of the tracker. Times are in milliseconds, numbers are plain integers.
    `group` neighbouring numbers are of one Kinesis record.
    """

    def __init__(self, group: int = 1) -> None:
        self.group = group
        self.shard: list[int] = []
        self.read = 0
        self.entries: list[Entry] = []
        self.exhausted: list[int] = []

    def find(self, first: int) -> Entry | None:
        return next(
            (entry for entry in self.entries if entry.numbers and entry.first == first), None
        )

    def in_status(self, *statuses: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.status in statuses]

    @property
    def checkpoint(self) -> int | None:
        """A Kinesis record: the greatest known one before the first that has a record which is
        unresolved, or not emitted yet.
        """
        known: list[int] = []
        open_records = set() if self.rest is None else {self.rest // self.group}
        for entry in self.entries:
            if entry.unresolved:
                open_records.add(entry.first // self.group)
                break
            known += entry.known
        records = {number // self.group for number in known} - open_records
        return max(records, default=None)

    @property
    def rest(self) -> int | None:
        """The next number, if it is of the same Kinesis record as the last one that was read."""
        after = self.shard[self.read - 1 : self.read + 1] if self.read else []
        is_rest = len(after) == 2 and after[0] // self.group == after[1] // self.group
        return after[1] if is_rest else None

    def lengthen(self, *, more: bool) -> None:
        """Let one more number follow in the same Kinesis record, if there can be one."""
        if more and self.read == len(self.shard) and (self.shard[-1] + 1) % self.group:
            self.shard.append(self.shard[-1] + 1)

    def unread_tail(self) -> list[Entry]:
        """The pending first attempts at the end of the list, in the order read."""
        tail: list[Entry] = []
        for entry in reversed(self.entries):
            if not entry.as_if_unread:
                break
            tail.insert(0, entry)
        return tail

    def to_deliver_again(self) -> set[int]:
        """The numbers that a restart must deliver again, exactly."""
        return {
            number for entry in self.entries if entry.unresolved for number in entry.numbers
        } | set(self.shard[self.read :])

    def take_unread(self, count: int, step: int) -> list[int]:
        while len(self.shard) < self.read + count:
            last = self.shard[-1] if self.shard else 0
            if self.read == len(self.shard):  # an aggregate without a rest was read as a whole
                last += (self.group - 1 - last) % self.group
            self.shard.append(last + step)
        numbers = self.shard[self.read : self.read + count]
        self.read += count
        return numbers

    def emit(self, numbers: list[int], deadline_ms: int | None = None) -> None:
        self.entries.append(
            Entry(numbers, deadline_ms=deadline_ms, known=[numbers[0], numbers[-1]])
        )

    def ack(self, first: int, attempt: int) -> Effect:
        entry = self.find(first)
        if entry is None or not 1 <= attempt <= entry.deliveries:
            return Effect.UNKNOWN
        self.resolve(entry)
        return Effect.ACKED

    def resolve(self, entry: Entry) -> None:
        entry.status, entry.announced_ms = "acked", None
        self.exhausted = [first for first in self.exhausted if first != entry.first]

    def fail(
        self,
        first: int,
        attempt: int,
        now_ms: int,
        *,
        retry: bool = True,
        counts: bool = True,
        reason: str | None = None,
    ) -> Effect:
        entry = self.find(first)
        if entry is None or not 1 <= attempt <= entry.deliveries:
            return Effect.UNKNOWN
        if entry.status != "pending" or attempt <= entry.attempts:
            return Effect.IGNORED
        entry.has_failed, entry.uncounted, entry.rejected = True, not counts, not retry
        entry.announced_ms, entry.last_failure_ms, entry.reason = None, now_ms, reason
        if counts:
            entry.attempts += 1
            entry.first_failure_ms = (
                now_ms if entry.first_failure_ms is None else entry.first_failure_ms
            )
        entry.due_ms = now_ms + FIRST_DELAY_MS * 2 ** max(entry.attempts - 1, 0)
        old = entry.first_failure_ms is not None and now_ms - entry.first_failure_ms > MAX_AGE_MS
        if retry and not (counts and (entry.attempts > LIMIT or old)):
            entry.status = "queued"
            return Effect.QUEUED
        self.exhaust(entry)
        return Effect.EXHAUSTED

    def exhaust(self, entry: Entry) -> None:
        entry.status = "exhausted"
        self.exhausted.append(entry.first)

    def queue_again(self, span: Entry, runs: list[list[int]], attempts: int, due_ms: int) -> None:
        """Replace a span by the given queued entries, and one acked entry for each other record."""
        place = self.entries.index(span)
        entries = []
        for number in span.numbers:
            run = next((run for run in runs if number in run), None)
            if run is None:
                entries.append(
                    Entry([number], "acked", known=[number] if number in span.known else [])
                )
            elif number == run[0]:
                ends = [run[0], run[-1]]
                entries.append(
                    Entry(
                        run,
                        "queued",
                        attempts,
                        due_ms,
                        known=ends,
                        found_alone=True,
                        has_failed=True,
                    )
                )
        self.entries[place : place + 1] = entries

    def extend(self, first: int, attempt: int, deadline_ms: int | None) -> bool:
        entry = self.find(first)
        if entry is None or entry.status != "pending" or attempt != entry.deliveries:
            return False
        entry.deadline_ms = deadline_ms
        return True

    def take_retry(self, now_ms: int, deadline_ms: int | None = None) -> tuple[int, int] | None:
        """First number and attempt of the next retry."""
        for entry in sorted(
            self.in_status("queued"), key=lambda entry: (entry.next_ms, entry.first)
        ):
            if entry.next_ms > now_ms:
                return None
            old = (
                entry.first_failure_ms is not None and now_ms - entry.first_failure_ms > MAX_AGE_MS
            )
            if old or entry.attempts > LIMIT:
                self.exhaust(entry)
            else:
                return self.retry(entry, deadline_ms)
        return None

    def retry(self, entry: Entry, deadline_ms: int | None = None) -> tuple[int, int]:
        entry.status = "pending"
        entry.deadline_ms, entry.postponed_ms = deadline_ms, None
        return entry.first, entry.attempts + 1

    def expire(self, now_ms: int) -> list[tuple[int, int]]:
        late = [
            (e.deadline_ms, e.first, e)
            for e in self.in_status("pending")
            if e.deadline_ms is not None and e.deadline_ms <= now_ms
        ]
        expired = []
        for _, first, entry in sorted(late, key=lambda item: item[:2]):
            expired.append((first, entry.attempts + 1))
            self.fail(first, entry.attempts + 1, now_ms, reason=TIMED_OUT)
        return expired

    def restart(self, state: ShardState) -> None:
        """Forget everything that is not stored: the end of the list is unread again, and only
        stored numbers are known.
        """
        for entry in self.unread_tail():
            self.entries.remove(entry)
            self.read -= len(entry.numbers)
        kept = {
            number.sequence
            for number in (state.checkpoint, state.read_position.sequence)
            if number is not None
        }
        self.exhausted = []
        for entry in self.entries:
            entry.end_unanswered()
            entry.deadline_ms = entry.postponed_ms = None
            entry.found_alone = True
            entry.uncounted = False
            if not entry.unresolved:
                entry.known = [one for one in entry.known if one // self.group in kept]
            elif entry.rejected or entry.attempts > LIMIT:
                self.exhaust(entry)
            else:
                entry.status = "queued"
