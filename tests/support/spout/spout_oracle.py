"""A naive spout: it keeps every record of every shard in one list with its status, and walks the
list for each answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LIMIT = 1
FIRST_DELAY_MS = 100


@dataclass
class Entry:
    """One record. `status`: unread, pending, queued, exhausted or acked. `held`: its payload is in
    memory.
    """

    number: int
    status: str = "unread"
    attempts: int = 0
    due_ms: int = 0
    deadline_ms: int | None = None
    held: bool = True
    gone: bool = False

    @property
    def is_unresolved(self) -> bool:
        return self.status in {"pending", "queued", "exhausted"}

    @property
    def deliveries(self) -> int:
        """Attempts for which an ack still counts."""
        return {
            "pending": self.attempts + 1,
            "queued": self.attempts,
            "exhausted": self.attempts,
        }.get(self.status, 0)

    def fail(self, now_ms: int, *, retry: bool) -> str:
        self.attempts += 1
        self.due_ms = now_ms + FIRST_DELAY_MS * 2 ** (self.attempts - 1)
        self.deadline_ms = None
        self.status = "queued" if retry and self.attempts <= LIMIT else "exhausted"
        return self.status


@dataclass
class ShardOracle:
    """One shard. `closed`: its last page was put. `in_a_row`: retries since the last new record.
    `unbroken`: the same, and since the last idle turn.
    """

    entries: list[Entry] = field(default_factory=list)
    closed: bool = False
    in_a_row: int = 0
    unbroken: int = 0

    def find(self, number: int) -> Entry:
        return next(entry for entry in self.entries if entry.number == number)

    def of(self, *statuses: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.status in statuses]

    @property
    def unresolved(self) -> int:
        return sum(entry.is_unresolved for entry in self.entries)

    @property
    def checkpoint(self) -> int | None:
        """The last acked number before the first record that is not acked."""
        found = None
        for entry in self.entries:
            if entry.status != "acked":
                break
            found = entry.number
        return found

    def due(self, now_ms: int) -> list[Entry]:
        """Due retries, in their order."""
        found = [entry for entry in self.of("queued") if entry.due_ms <= now_ms]
        return sorted(found, key=lambda entry: (entry.due_ms, entry.number))
