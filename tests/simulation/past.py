"""The past of a history, the batches that make it go on, and which records fail in it: once, often,
or always; during an outage, all of them.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.errors import DataLossError
from kinesis_spout.testing import empty_at_tip, gone
from state.errors import StoreUnavailableError
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.simulated.played_outcomes import LateRejection, Rejection, is_whole

if TYPE_CHECKING:
    from random import Random

    from kinesis_spout.drills.history.checks import Place
    from kinesis_spout.inspection.snapshot import Snapshot
    from state.shard_state import ShardState
    from state.znodes.tree import Znode
    from tests.simulation.job import StreamJob
    from tests.simulation.query import StreamsQuery
    from tests.simulation.world import World
    from tests.support.simulated.played_outcomes import PlayedOutcomes, Row

ALWAYS = 99
REJECTED = 0.25
PATIENCE = (
    12  # after so many failures in one attempt it is an outage without end, and the record passes
)


@dataclass
class Failing:
    """The failures of a function, drawn when a record is first seen.

    `failed_in`: by record, the attempts in which it failed. `failed_in_outage`: failures during an
    outage. A batch that died may have dead-lettered such a record, and its replay may process it.
    Some of the failing records are rejected from their first or second failure on: `rejects` gives
    the reason, and `rejected_in` the attempts in which they were rejected.
    """

    world: World
    random: Random
    weights: tuple[int, ...]
    outage_until_s: float = 0.0
    times: dict[str, int] = field(default_factory=dict)
    failed_in: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    spared: set[str] = field(default_factory=set)
    failed_in_outage: set[str] = field(default_factory=set)
    rejects: dict[str, tuple[int, Rejection]] = field(default_factory=dict)
    rejected_in: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    _calls: Counter[str] = field(default_factory=Counter)

    def start_over(self) -> None:
        """Forget the records: others come."""
        for told in (
            self.times,
            self.failed_in,
            self.spared,
            self.failed_in_outage,
            self.rejects,
            self.rejected_in,
            self._calls,
        ):
            told.clear()

    def __call__(self, row: Row) -> str | None:
        record = f"{row['shardId']}:{row['sequenceNumber']}"
        if is_whole(row):  # the others that are in it neither fail nor pass by themselves
            self.spared.update(name for name in self.world.names(row) if name != record)
        if record not in self.times:
            self._draw(record)
        out = self.world.clock.monotonic_s() < self.outage_until_s
        if row["attempt"] > self.times[record] and not out:
            return None
        self._calls[row["messageId"]] += 1
        if self._calls[row["messageId"]] > PATIENCE:
            self.spared.add(record)
            return None
        if out:
            self.failed_in_outage |= {record, *self.world.names(row)}
        from_attempt, rejection = self.rejects.get(record, (ALWAYS, None))
        if not out and row["attempt"] >= from_attempt:
            self.rejected_in[record].add(row["attempt"])
            return rejection
        self.failed_in[record].add(row["attempt"])
        return "an outage" if out else "as drawn"

    def _draw(self, record: str) -> None:
        times = self.times[record] = self.random.choices((0, 1, 2, ALWAYS), weights=self.weights)[0]
        if times and self.random.random() < REJECTED:
            kind = self.random.choice((Rejection, LateRejection))
            self.rejects[record] = self.random.randint(1, min(times, 2)), kind("rejected")

    def must_be_dead(self, limit: int) -> set[str]:
        """Records that fail in every attempt that they get, or were rejected. An outage may have
        given them further attempts.
        """
        rejected = self.rejected_in.keys() - self.failed_in_outage
        return (
            {record for record, times in self.times.items() if times > limit} | rejected
        ) - self.spared

    def may_be_dead(self, limit: int) -> set[str]:
        """Records that failed in the last attempt that they get, or were rejected."""
        return {
            record for record, attempts in self.failed_in.items() if limit + 1 in attempts
        } | self.rejected_in.keys()


FALSE_ANSWERS = (gone(), empty_at_tip())
DAY_S = 86_400.0
DAY_MS = 86_400_000
LISTED_MS = 65_000  # a new shard may have been there for so long when it is listed
SHARD = re.compile(r"shardId-\d{12}")


@dataclass
class Days:
    """Whether the retention period has passed: for all streams alike."""

    passed: bool = False


@dataclass
class Past:
    """Steps are noted in `log`.

    - `lost_in`: the shards for which the product reported that records may be lost, and when it
      did so last.
    - `thrown_away`: the checkpoint location or ZooKeeper was replaced, so records come twice.
    - `days_passed`: the retention period has passed. `days_pass`: it may pass.
    - `begun_ms`: the start of an application on a backlog that expires; None without one.
      `touched_ms`: when the states first said of its shards that records of them were read.
    - `loss_is_possible`: the store has lost what would show that nothing is lost.
    - `spout_letters`: records that a standalone spout has dead-lettered in its turn.
    - `heard_faults`: how many faults had struck when the warnings were last read.
    - `steps`: how many were checked. `looked`: the last look from outside.
    - `moments`: times, by the service's clock, and what was resolved then.
    - `left_unread`: the product reported that an AvailableNow run ended with unread shards.
    - `complete_ms`: the start of the last AvailableNow run that has read all that was there.
      `least_retention_ms`: the shortest retention since then.
    """

    world: World
    random: Random
    job: StreamJob
    failing: Failing | None = None
    log: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    checkpoints: dict[str, Place] = field(default_factory=dict)
    seen: dict[str, ShardState] = field(default_factory=dict)
    location: tuple[list[dict[str, object]], int, dict[int, list[Row]]] | None = None
    backup: dict[str, Znode] | None = None
    lost_in: dict[str, int] = field(default_factory=dict)
    thrown_away: bool = False
    days: Days = field(default_factory=Days)
    days_pass: bool = False
    begun_ms: int | None = None
    touched_ms: dict[str, int] = field(default_factory=dict)
    loss_is_possible: bool = False
    spout_letters: set[str] = field(default_factory=set)
    heard_faults: int = 0
    left_unread: bool = False
    complete_ms: int | None = None
    least_retention_ms: int = DAY_MS
    steps: int = 0
    looked: Snapshot | None = None
    moments: list[tuple[int, set[str]]] = field(default_factory=list)

    @property
    def query(self) -> StreamsQuery:
        """The query that reads the stream, if Spark does."""
        return self.job.query

    @property
    def days_passed(self) -> bool:
        return self.days.passed

    @days_passed.setter
    def days_passed(self, passed: bool) -> None:
        self.days.passed = passed

    @property
    def starts_at_latest(self) -> bool:
        return "LATEST" in self.world.settings.starting_position.text

    @property
    def outcomes(self) -> PlayedOutcomes | None:
        return self.job.tracked

    def start_over(self) -> None:
        """The application has forgotten everything; the books start empty as well."""
        self.done, self.lost_in = set(), {}
        self.spout_letters = set()
        self.checkpoints, self.seen = {}, {}
        self.location = self.backup = self.looked = None
        self.moments = []
        self.world.warnings.said.clear()
        self.thrown_away = False
        self.begun_ms, self.touched_ms = None, {}
        self.complete_ms, self.least_retention_ms = None, DAY_MS

    def note_touched(self) -> None:
        if self.begun_ms is not None:
            for shard, state in self.world.states().items():
                if state.read_position.sequence is not None or state.read_position.is_end:
                    self.touched_ms.setdefault(shard, self.world.clock.now_ms())

    def do_lose_answers(self) -> None:
        self.world.backend.answers_to_lose = self.random.choice((1, 2))
        self.count("answers of the store that were lost")

    def written(self) -> dict[str, Znode]:
        """The application's nodes, without those that only hold others."""
        return {path: node for path, node in self.world.znodes().items() if node.data}

    def note(self, text: object) -> None:
        self.log[-1] += f" {text}"

    def count(self, what: str, times: int = 1) -> None:
        self.world.counts[what] += times

    def letters(self) -> set[str]:
        if self.outcomes is None:
            return self.spout_letters
        gone = {
            f"{shard}:{number}"
            for shard, first, last in self.outcomes.gone
            for number in self.world.records[shard]
            if first <= number <= last
        }
        return (
            gone
            | self.spout_letters
            | {
                name
                for message, _, _ in self.outcomes.letters
                if message.count(":") > 1
                for name in self._names(message)
            }
        )

    def _names(self, message_id: str) -> list[str]:
        """The records in a dead letter."""
        record = message_id.rpartition(":")[0]
        assert self.outcomes is not None
        if message_id not in self.outcomes.whole_letters:
            return [record]
        shard, _, number = record.partition(":")
        return [f"{shard}:{one}" for one in self.world.users.get(int(number), [number])]

    def resolved(self) -> set[str]:
        """Records that need not come again: a finished batch has them, or a dead letter."""
        return self.done | self.letters()

    def run_batch(self, crash_at: str | None = None) -> bool | str:
        try:
            ran = self.query.run_of(self.job, crash_at)
        except Crash as crash:
            self.count(f"crash: {crash}")
            self.job.stop()
            return f"died {crash}"
        except DataLossError as error:
            return self.go_on_after(error)
        except StoreUnavailableError:
            self.count("queries that an outage of the store has ended")
            self.job.stop()
            return "ended by an outage of the store"
        if not isinstance(ran, str):
            self.count("batches" if ran else "polls that find nothing")
        return ran

    def on_committed(self, rows: list[Row]) -> None:
        ids = [name for row in rows for name in self.world.names(row)]
        self.done.update(ids)
        self.count("records in finished batches", len(ids))
        self.count("retries in finished batches", sum(row["attempt"] > 1 for row in rows))
        self.count("empty batches", not rows)

    def go_on_after(self, error: DataLossError) -> str:
        """The query ended with a data loss; its user restarts it without the lost records."""
        if self.was_misled() and not self.days_passed:
            self.count("queries that a false answer has ended")
            self.job.stop()
            return "ended by a false answer"
        assert self.days_passed or self.loss_is_possible, (
            f"a loss was reported though nothing can have expired: {error}"
        )
        self.count("losses that ended the query")
        self.note_loss(str(error))
        self.job.stop()
        self.world.change(fail_on_data_loss=False)
        return "ended by a loss"

    def note_loss(self, sentence: str) -> None:
        """The product reports a loss. The records from before a complete run were read, and
        a later record expires only after the retention has passed since then.
        """
        now_ms = self.world.clock.now_ms()
        self.lost_in |= dict.fromkeys(SHARD.findall(sentence), now_ms)
        if self.complete_ms is not None and sentence.startswith("records may be lost"):
            horizon_ms = now_ms - self.least_retention_ms
            assert horizon_ms > self.complete_ms - LISTED_MS, (
                f"a loss was reported {(now_ms - self.complete_ms) / 3_600_000:.2f} h after the "
                f"start of a complete run, with a retention of "
                f"{self.least_retention_ms / 3_600_000:.0f} h: {sentence}"
            )

    def was_misled(self, since: int | None = None) -> bool:
        """Whether an answer of the service was false: since so many faults, or since `hear`."""
        struck = self.world.fake.faults.struck[self.heard_faults if since is None else since :]
        return any(fault in FALSE_ANSWERS for _, fault in struck)

    def hear(self) -> None:
        said, self.world.warnings.said = self.world.warnings.said, []
        for sentence in said:
            self.left_unread = self.left_unread or sentence.startswith(
                "the AvailableNow run is ending because maxSearchTime has passed"
            )
            if "lost" in sentence or "expired from the stream" in sentence:
                assert self.days_passed or self.loss_is_possible or self.was_misled(), (
                    f"a loss was reported though nothing can have expired: {sentence}"
                )
                self.count("losses that were reported")
                self.note_loss(sentence)
        self.heard_faults = len(self.world.fake.faults.struck)
