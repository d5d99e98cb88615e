"""An executor's task. The task fetches pages, appends the ranges that it has read to the task's
log, and returns the rows of the log.

The rules of the log are in `state.task_log`. An attempt that appends to the log, and an attempt
that follows the log of another attempt, run the same code: they return the rows of the log's next
entry from pages that they have fetched, or fetch the pages for it. An attempt that loses the race
for an append keeps its pages and follows the log.

Fetches continue in the background while rows are returned. So a task holds only some pages in
memory, however large the batch is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.errors import UnreadableRecordError
from kinesis_spout.reading.read_ahead import ByteBudget, RoundRobinReader
from spark_job.executor.shard_feed import (
    MAX_CONCURRENT,
    ShardFeed,
    find_retries,
    read_retries_again,
    subscriptions_of,
)
from spark_job.query_failure import naming
from spark_job.rows import COLUMNS, ShardRows, hash_range_of, mode_of
from state.codec.values import MAX_VALUE_BYTES, encode_unchecked
from state.errors import ConflictError, PlanClosedError, TaskLogError
from state.failpoint import failpoint
from state.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from kinesis_spout.reading.read_ahead import BufferedGetter
    from kinesis_spout.reading.subscribed_getter import Subscriptions
    from spark_job.executor.shard_feed import FoundRetries
    from spark_job.process_services import ProcessServices
    from state.plan import ShardReadResult, TaskPlan
    from state.store.plans import StoredLog, TaskLogStore

log = logging.getLogger("kinesis_spout")
STEP_S = 0.2
SHORTEST_STEP_S = 0.001  # a rounding error of floats may be too small to advance a clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much an attempt reads before it appends. The attempts of one task may have different
    paces.

    - `round_bytes`: an append follows as soon as the held pages have this size.
    - `linger_s`: an append follows after this time even with smaller pages. The time doubles with
      each append below `round_bytes`, so that a slow shard does not cause many writes.
    - `max_small_rounds`: after this number of appends below `round_bytes`, the next one seals the
      log.
    - `max_log_bytes`: a longer log loses its hints; if it is still longer, it is sealed. So one
      more append always fits into the znode.
    - `held_bytes`: the memory for pages that are read ahead. It is twice `round_bytes`, so that the
      next round is fetched while this one is returned. `held_records`: the limit of held records of
      a shard; None for no limit.
    """

    round_bytes: int = 16 * 1024 * 1024
    linger_s: float = 0.2
    max_small_rounds: int = 16
    max_log_bytes: int = MAX_VALUE_BYTES // 2
    held_bytes: int = 2 * 16 * 1024 * 1024
    held_records: int | None = None


DEFAULT_PACE = Pace()


def read_task(
    plan_id: str,
    task: int,
    plan: TaskPlan,
    *,
    services: ProcessServices,
    columns: Sequence[str] = COLUMNS,
    pace: Pace = DEFAULT_PACE,
    is_retry: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the task's rows as Arrow batches, in the order of its log: first the retries, then each
    shard's records in their order. Blocks on Kinesis and ZooKeeper.

    `columns`: the wanted columns of `spark_job.rows`. `is_retry`: Spark has run the task before, so
    this attempt does not subscribe. Raises `PlanClosedError` if the plan was closed before this
    attempt could append, and `DataLossError` if records of the log are gone.
    """
    with naming(services.settings):
        writer = TaskLogWriter.open(
            services.store.plans, plan_id, task, max_bytes=pace.max_log_bytes
        )
    return _Attempt(plan, writer, services, columns=columns, pace=pace, is_retry=is_retry).rows()


class _Attempt:
    """One attempt of a task."""

    def __init__(
        self,
        plan: TaskPlan,
        writer: TaskLogWriter,
        services: ProcessServices,
        *,
        columns: Sequence[str],
        pace: Pace,
        is_retry: bool,
    ) -> None:
        self._plan = plan
        self._writer = writer
        self._services = services
        self._pace = pace
        # None: neither this attempt nor the log's author has searched for the retries yet.
        self._found: dict[str, FoundRetries] | None = {} if writer.log.entries else None
        self._waited_s = 0.0  # inside this attempt, not in its consumer
        self._small_rounds = 0
        settings = services.settings
        self._rows = {
            shard.shard_id: ShardRows(
                shard.shard_id,
                stream=settings.label,
                id_prefix=settings.id_prefix,
                aggregated_records=mode_of(plan, settings),
                hash_range=hash_range_of(shard),
                columns=columns,
                start=shard.position,
            )
            for shard in plan.shards
        }
        # Ranges that another attempt has published are polled.
        subscriptions = (
            None
            if plan.consumer_arn is None or is_retry or not writer.is_new
            else subscriptions_of(plan.consumer_arn, services)
        )
        self._feeds = self._new_feeds(subscriptions)
        self._reader = RoundRobinReader(
            [feed.getter for feed in self._feeds.values()],
            max_concurrent=MAX_CONCURRENT,
            clock=services.clock,
            new_pool=services.new_pool,
            pause=None if subscriptions is None else subscriptions.wait,
        )

    def rows(self) -> Iterator[pa.RecordBatch]:
        try:
            with naming(self._services.settings), self._reader:
                while True:
                    for entry in self._writer.pending():
                        yield from self._hand_over(entry)
                    if self._writer.is_complete:
                        return
                    self._append_next()
        finally:
            self._unsubscribe()

    def _unsubscribe(self) -> None:
        """End the subscriptions. Never blocks."""
        for feed in self._feeds.values():
            feed.unsubscribe()

    def _new_feeds(self, subscriptions: Subscriptions | None) -> dict[str, ShardFeed]:
        """A feed for each shard from which this attempt may read new records."""
        is_complete = self._writer.is_complete
        first: dict[str, ShardReadResult] = {}
        counts: dict[str, int] = {}
        for entry in self._writer.log.entries:
            if entry.count:
                first.setdefault(entry.shard_id, entry)
                counts[entry.shard_id] = counts.get(entry.shard_id, 0) + entry.count
        room = self._plan.max_bytes - self._writer.log.payload_bytes
        held_bytes = self._pace.held_bytes if is_complete else min(self._pace.held_bytes, room)
        budget = ByteBudget(max(1, held_bytes))
        return {
            shard.shard_id: ShardFeed(
                shard,
                self._services,
                retention_ms=self._plan.retention_ms,
                budget=budget,
                held_records=self._pace.held_records,
                total_records=(
                    counts[shard.shard_id]
                    if is_complete
                    else max(shard.max_records, counts.get(shard.shard_id, 0))
                ),
                first=first.get(shard.shard_id),
                subscriptions=subscriptions,
                rows=self._rows[shard.shard_id],
            )
            for shard in self._plan.shards
            if (shard.shard_id in counts if is_complete else shard.max_records)
        }

    # handing over
    def _hand_over(self, entry: ShardReadResult) -> Iterator[pa.RecordBatch]:
        rows = self._rows[entry.shard_id]
        if entry.retry_rows:
            found = None if self._found is None else self._found.pop(entry.shard_id, None)
            for delivery in (
                found.deliveries
                if found is not None and found.entry == entry
                else read_retries_again(entry, self._plan, self._services)
            ):
                yield rows.of_unpacked(delivery.records, delivery.attempts)
        if entry.count:
            feed = self._feeds[entry.shard_id]
            for page in feed.hand_over(entry, lambda: self._step(STEP_S, awaited=feed.getter)):
                self._step(0)  # keep fetching while the consumer processes the rows
                yield from rows.of_page(page)

    # appending
    def _append_next(self) -> None:
        """Append the next entries, or follow the log if another attempt was faster. The pages that
        this attempt has fetched are then used for that log.
        """
        writer = self._writer
        new = self._next_log()
        if new is writer.log:
            return
        if writer.is_too_long(new):
            new = new.without_hints()  # then it fits: the planner has divided tasks accordingly
            if not new.sealed and writer.is_too_long(new):
                new = self._sealed(new).without_hints()
        if not writer.append(new):
            self._unsubscribe()
            self._found = (self._found or {}) if writer.log.entries else None
        elif new.sealed:
            self._unsubscribe()

    def _sealed(self, new: TaskLog) -> TaskLog:
        """Seal `new`, with entries for the shards without records."""
        begun = len(self._writer.log.entries)
        read = {entry.shard_id for entry in new.entries[begun:] if entry.count}
        tails = self._proposed(is_done=True).entries[begun:]
        others = (tail for tail in tails if not tail.count and tail.shard_id not in read)
        return new.extended(others, seal=True)

    def _next_log(self) -> TaskLog:
        """Return the log with its next entries: first the retries, then the new records. Returns
        the present log if there is nothing to append yet.
        """
        if self._found is None:
            found = find_retries(self._plan, self._services)
            self._found = {retries.entry.shard_id: retries for retries in found}
            if found:
                new = self._writer.log.extended((retries.entry for retries in found), seal=False)
                is_full = new.payload_bytes >= self._plan.max_bytes
                return self._sealed(new) if is_full or not self._feeds else new
        return self._proposed(is_done=self._gather())

    def _gather(self) -> bool:
        """Fetch until there is enough to append. Return whether fetching is finished."""
        linger_s = self._pace.linger_s * 2**self._small_rounds
        waited_s = 0.0
        while True:
            self._close_feeds()
            feeds = self._feeds.values()
            if self._reader.idle and all(feed.getter.is_over for feed in feeds):
                return True
            lingered = waited_s >= linger_s and any(feed.held_records for feed in feeds)
            if lingered or self._held_bytes >= self._pace.round_bytes or self._reader.idle:
                return False
            left_s = linger_s - waited_s
            waited_s += self._step(
                min(STEP_S, max(left_s, SHORTEST_STEP_S)) if left_s > 0 else STEP_S
            )

    @property
    def _held_bytes(self) -> int:
        return sum(feed.held_bytes for feed in self._feeds.values())

    def _step(self, timeout_s: float, awaited: BufferedGetter | None = None) -> float:
        """Continue the fetches for up to `timeout_s`. Return the seconds that it took."""
        begun_s = self._services.clock.monotonic_s()
        fetched: list[BufferedGetter] = []
        try:
            fetched = self._reader.step(timeout_s, awaited)
        except UnreadableRecordError as exc:
            # The records before the unreadable record are returned first. The next batch begins
            # with the unreadable record, and raises its error.
            feed = self._feeds.get(exc.shard_id or "")
            was_read = exc.shard_id in self._writer.shards_read
            if feed is None or not (feed.held_records or was_read):
                raise
            feed.getter.close()
        for getter in fetched:
            if getter.at_tip:
                getter.close()
            if getter.is_over:
                self._feeds[getter.shard_id].unsubscribe()
        took_s = self._services.clock.monotonic_s() - begun_s
        self._waited_s += took_s
        return took_s

    def _close_feeds(self) -> None:
        """Stop fetching from shards whose time is over, and from all shards if there are enough
        bytes.

        - A shard that is behind its tip and has returned no record yet (a run of empty pages) is
          read beyond its time, up to the cap, because only a record moves its position.
        - A shard whose end is not proven yet is read even beyond the cap. The next attempt starts
          without this attempt's evidence, so attempts that stopped here would never prove the end.
        - If the log contains the end of a shard, nothing follows, even if this attempt has read
          more.
        """
        for shard_id in self._writer.shards_ended:
            if shard_id in self._feeds:
                self._feeds[shard_id].discard()
        waited_ms = self._waited_s * 1000
        read = self._writer.shards_read
        is_full = self._writer.log.payload_bytes + self._held_bytes >= self._plan.max_bytes
        for shard_id, feed in self._feeds.items():
            is_searching = shard_id not in read and not feed.held_records
            limit_ms = self._plan.fetch_cap_ms if is_searching else self._plan.fetch_time_ms
            if is_full or (waited_ms >= limit_ms and not feed.may_have_ended):
                feed.getter.close()
                feed.unsubscribe()

    def _proposed(self, *, is_done: bool) -> TaskLog:
        """Return the log with entries for the held pages, cut to the task's bytes, but with at
        least one record. Returns the present log if no page is held. `is_done`: fetching is
        finished.
        """
        log = self._writer.log
        room = self._plan.max_bytes - log.payload_bytes
        has_rows = log.rows > 0
        is_last = is_done
        is_full = self._held_bytes >= self._pace.round_bytes
        ended = self._writer.shards_ended
        proposed: dict[str, ShardReadResult] = {}
        for shard_id, feed in self._feeds.items():
            if shard_id in ended:
                continue
            entry, is_cut = feed.propose(room, at_least=0 if has_rows else 1)
            is_last = is_last or is_cut
            has_rows = has_rows or entry.count > 0
            room -= entry.payload_bytes
            proposed[shard_id] = entry
        if not is_full and any(entry.count for entry in proposed.values()):
            self._small_rounds += 1
        is_last = is_last or self._small_rounds > self._pace.max_small_rounds
        known = {entry.shard_id for entry in log.entries if entry.position is not None}
        entries = [
            replace(entry, position=None) if shard_id in known else entry
            for shard_id, entry in proposed.items()
            # An entry without records is appended in the last round only, and only if the shard has
            # no entry yet or has a page that none describes.
            if entry.count
            or (is_last and not (shard_id in known and self._feeds[shard_id].is_drained))
        ]
        return log.extended(entries, seal=is_last) if entries or is_last else log


class TaskLogWriter:
    """One attempt's access to the log of its task. The attempt appends to the log, or follows the
    log of an attempt that was faster. For one thread. `open` and `append` block on ZooKeeper.

    - `log`: as last read or appended.
    - `is_complete`: whether no attempt will append any more.
    - `max_bytes`: the limit of the log's size.
    """

    def __init__(
        self, store: TaskLogStore, plan_id: str, task: int, stored: StoredLog, *, max_bytes: int
    ) -> None:
        self._store = store
        self._plan_id = plan_id
        self._task = task
        self._max_bytes = max_bytes
        self.log = TaskLog() if stored.log is None else stored.log
        self._version = stored.version
        # Under a closed plan nothing can be appended, so the log is complete. This is only true
        # when the attempt starts: later, `_follow` decides.
        self.is_complete = self.log.sealed or not stored.plan_is_open
        self._cursor = 0  # the number of entries whose rows were returned

    @classmethod
    def open(cls, store: TaskLogStore, plan_id: str, task: int, *, max_bytes: int) -> TaskLogWriter:
        """Read the log. Raises `PlanClosedError` if the plan was closed before any attempt has
        published.
        """
        stored = store.read_log(plan_id, task)
        if stored.log is None and not stored.plan_is_open:
            raise PlanClosedError(
                f"batch {plan_id} was closed or removed before its task {task} published records; "
                "the task's records are redelivered"
            )
        return cls(store, plan_id, task, stored, max_bytes=max_bytes)

    @property
    def is_new(self) -> bool:
        """Whether no attempt had published anything when this attempt last looked."""
        return self._version is None

    @property
    def shards_read(self) -> set[str]:
        """The shards with records in the log."""
        return {entry.shard_id for entry in self.log.entries if entry.count}

    @property
    def shards_ended(self) -> set[str]:
        """The shards whose end is in the log."""
        return {entry.shard_id for entry in self.log.entries if entry.at_shard_end}

    def pending(self) -> Iterator[ShardReadResult]:
        """Yield the entries whose rows were not returned yet. An entry counts as returned when the
        next one is requested.
        """
        while self._cursor < len(self.log.entries):
            yield self.log.entries[self._cursor]
            self._cursor += 1

    def is_too_long(self, new: TaskLog) -> bool:
        return len(encode_unchecked(new)) > self._max_bytes

    def append(self, new: TaskLog) -> bool:
        """Write `new`, which extends the log. Returns False if another attempt was faster; `log` is
        then the log of that attempt.
        """
        try:
            self._version = self._store.append_log(self._plan_id, self._task, new, self._version)
        except ConflictError:
            self._follow()
            return False
        self.log, self.is_complete = new, new.sealed
        if new.sealed:
            failpoint("log-sealed")
        else:
            failpoint("log-appended")
        return True

    def _follow(self) -> None:
        """Replace the log by the one in ZooKeeper."""
        stored = self._store.read_log(self._plan_id, self._task)
        current = TaskLog() if stored.log is None else stored.log
        if not stored.plan_is_open and not current.sealed:
            raise PlanClosedError(
                f"batch {self._plan_id} was closed while its task {self._task} was reading; the "
                "task's records are redelivered"
            )
        if not current.continues(self.log.entries[: self._cursor]):
            raise TaskLogError(
                f"the log of task {self._task} of batch {self._plan_id} was changed or removed "
                "while its rows were being passed to Spark",
                "start the query again",
            )
        log.info(
            "another attempt of task %d of batch %s published its log first. This attempt "
            "reads the same records",
            self._task,
            self._plan_id,
        )
        self.log, self._version, self.is_complete = current, stored.version, current.sealed
