"""The records that a task reads from one shard. `ShardFeed` reads new records ahead, proposes them
for the task's log, and returns them as the log says. `find_retries` finds the retries for the
attempt that appends them to the log; `read_retries_again` reads them for the other attempts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.aggregation.unpacking import Unpacker
from kinesis_spout.reading.page import ExpiryDetector
from kinesis_spout.reading.read_ahead import BufferedGetter, ByteBudget
from kinesis_spout.reading.retry_reader import Delivery, RetryReader
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.reading.subscribed_getter import SubscribedGetter, Subscriptions
from kinesis_spout.reading.subscriptions import SubscriptionCounts
from kinesis_spout.reading.user_records import refuse_aggregates
from kinesis_spout.service.get_records_decoder import fitting_records, payload_bytes
from kinesis_spout.service.subscription import EventByteBudget
from kinesis_spout.shards.data_loss import report_loss
from spark_job.rows import hash_range_of, mode_of
from spark_job.settings import FAIL
from state.errors import TaskLogError
from state.plan import (
    PlannedRetry,
    ShardReadResult,
    ShardSlice,
    TaskPlan,
    UserRecords,
    retries_with_rows,
    users_of_all,
)
from state.position import Position
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kinesis_spout.reading.page import Page
    from spark_job.process_services import ProcessServices
    from spark_job.rows import ShardRows
    from spark_job.settings import SourceSettings

MAX_CONCURRENT = 8
# If a task may read new records, too, its retries get at most half of its bytes and time, so that
# they do not delay the new records.
RETRY_SHARE = 2
ANSWERS = 2  # empty responses, each of a new iterator, that prove the end; one proves nothing
FIRST_PAGE_BYTES = 1024 * 1024
MAX_SUBSCRIPTIONS = 16  # each has a thread; the other shards are polled
# In addition to the memory for pages. An event has one or two megabytes, or more if records are
# larger.
MAX_EVENT_BYTES = 16 * 1024 * 1024
# A hint may come from another machine's wrong clock, so no wait for a hint is longer than this.
_LONGEST_HINT_S = 60.0
# A subscription that is silent for as long as a poll may take is given up: Kinesis delays a poll
# until the bytes of the last page are paid off, and for up to a second between requests. A refused
# subscription is not tried again by this task; the next task does not know about the refusal.
_SILENT_S = 1.0
_REFUSED_S = 60.0


def subscriptions_of(consumer_arn: str, services: ProcessServices) -> Subscriptions:
    """Return the subscriptions of one attempt of a task. They end with its read, because the next
    batch may give the shard to another process.
    """
    return Subscriptions(
        subscribe=partial(services.client.subscribe, consumer_arn),
        poll_after_s=0.0,
        silent_s=_SILENT_S,
        refused_s=_REFUSED_S,
        counts=SubscriptionCounts(consumer_arn, option="consumerName"),
        new_feed=services.new_feed,
        wait_for=services.wait_for,
        clock=services.clock,
        random=services.random,
        slots=threading.Semaphore(MAX_SUBSCRIPTIONS),
        budget=EventByteBudget(MAX_EVENT_BYTES),
    )


class ShardFeed:
    """The pages of one shard, from the plan's position on. For one thread; its getter fetches in
    other threads.

    - `first`: the shard's first entry in the log, if there is one; then the read begins there.
    - `total_records`: the limit of records to read. `held_records`: the limit of records in memory.
    - `subscriptions`: the attempt's subscriptions; None if the shard is polled.
    - `rows`: makes the rows of the pages, and may refuse aggregates.
    """

    def __init__(
        self,
        shard: ShardSlice,
        services: ProcessServices,
        *,
        retention_ms: int | None,
        budget: ByteBudget,
        total_records: int,
        held_records: int | None,
        first: ShardReadResult | None,
        subscriptions: Subscriptions | None,
        rows: ShardRows,
    ) -> None:
        self.shard = shard
        self._services = services
        self._rows = rows
        self._expiry = ExpiryDetector(shard.verified_until_ms, retention_ms, shard.position)
        self._rest: Page | None = None  # the rest of a page of which the log has the first part
        self._pacer = services.pacers.of(shard.shard_id)
        if shard.next_read_ms is not None:
            wait_s = (shard.next_read_ms - services.clock.now_ms()) / 1000
            self._pacer.wait_for_others(services.clock.monotonic_s(), wait_s)
        # There is no record between the plan's position and the first record that was read. So the
        # plan's iterator is right for both.
        start = shard.position if first is None or first.first is None else Position.at(first.first)
        self._polling = polling = self._shard_getter(start, iterator=shard.iterator)
        self._subscribed = None
        if subscriptions is not None:
            hint_s = ((shard.next_subscribe_ms or 0) - services.clock.now_ms()) / 1000
            self._subscribed = SubscribedGetter(
                polling,
                subscriptions,
                not_before_s=services.clock.monotonic_s() + min(max(hint_s, 0.0), _LONGEST_HINT_S),
            )
        self.getter = BufferedGetter(
            self._subscribed or polling,
            max_records=min(total_records, held_records or total_records),
            total_records=total_records,
            budget=budget,
            page_bytes=services.page_limits.reserve(shard.shard_id, at_least=FIRST_PAGE_BYTES),
            limits=services.page_limits,
        )

    def _shard_getter(
        self, position: Position, *, iterator: str | None = None
    ) -> KinesisShardGetter:
        return KinesisShardGetter(
            self._services.client,
            self.shard.shard_id,
            position,
            iterator=iterator,
            pacer=self._pacer,
            clock=self._services.clock,
            ending_sequence=self.shard.ending_sequence,
            random=self._services.random,
        )

    @property
    def is_drained(self) -> bool:
        """Whether no page is held, not even an empty one."""
        return self._rest is None and self.getter.first() is None

    @property
    def held_records(self) -> int:
        return self.getter.buffered_records + (0 if self._rest is None else self._rest.count)

    @property
    def held_bytes(self) -> int:
        """The memory of the held pages."""
        return self.getter.buffered_bytes + (0 if self._rest is None else self._rest.payload_bytes)

    @property
    def may_have_ended(self) -> bool:
        """See `KinesisShardGetter.may_have_ended`."""
        return self._polling.may_have_ended

    def unsubscribe(self) -> None:
        """End the subscription, if there is one. From now on the shard is polled."""
        if self._subscribed is not None:
            self._subscribed.close()

    def propose(self, room_bytes: int, *, at_least: int) -> tuple[ShardReadResult, bool]:
        """Return the log entry of the held pages, as far as they fit into `room_bytes`, and whether
        it was cut. The pages stay held until the entry is handed over.
        """
        held = [] if self._rest is None else [self._rest]
        held += self.getter.pages()
        last: Page | None = None
        parts: list[Page] = []
        expiry = replace(self._expiry)
        for page in held:
            expiry.note(page)
            last = page
            if page.count:
                room = room_bytes - sum(part.payload_bytes for part in parts)
                fits = fitting_records(page.records, room, at_least=0 if parts else at_least)
                last = page.head(fits)
                if last.count:
                    parts.append(last)
                if last is not page:
                    return self._entry(parts, last, expiry.lapsed_ms), True
        return self._entry(parts, last, expiry.lapsed_ms), False

    def _entry(
        self, parts: list[Page], last: Page | None, lapsed_ms: int | None
    ) -> ShardReadResult:
        """Return the entry for `parts`. `last`: the last page, which may be empty."""
        next_s = None if self._subscribed is None else self._subscribed.next_subscribe_s
        entry = ShardReadResult(
            shard_id=self.shard.shard_id,
            position=self.shard.position,
            iterator=self._polling.iterator,
            next_subscribe_ms=None if next_s is None else self._wall_ms(next_s),
            throttled=self._polling.throttled,
            fallback=None if self._subscribed is None else self._subscribed.fallback,
        )
        if last is None:  # no time or no room: the plan's iterator is unused and still valid
            return entry
        now_s = self._services.clock.monotonic_s()
        ready_s = self._pacer.ready_at_s(now_s)
        return msgspec.structs.replace(
            entry,
            first=parts[0].first if parts else None,
            last=parts[-1].last if parts else None,
            count=sum(page.count for page in parts),
            payload_bytes=sum(page.payload_bytes for page in parts),
            last_arrival_ms=parts[-1].last_arrival_ms if parts else None,
            at_tip=last.at_tip,
            tip_ms=last.service_time_ms if last.at_tip or last.ended else None,
            at_shard_end=last.ended,
            children=last.child_shards if last.ended else (),
            gone=last.gone,  # the driver reports what was lost
            millis_behind_latest=last.millis_behind_latest,
            iterator=last.next_iterator,
            next_read_ms=self._wall_ms(ready_s) if ready_s > now_s else None,
            pushed=sum(part.count for part in parts if part.is_pushed),
            lapsed_ms=lapsed_ms,
            users=self._users(parts),
        )

    def _wall_ms(self, monotonic_s: float) -> int:
        """Convert a time of the monotonic clock to this machine's time of day."""
        clock = self._services.clock
        return clock.now_ms() + int((monotonic_s - clock.monotonic_s()) * 1000)

    def _users(self, parts: list[Page]) -> UserRecords | None:
        """The user records of these pages; None if no page contains an aggregate."""
        users = [self._rows.users(part) for part in parts]
        if not any(users):
            return None
        plain = (
            one or UserRecords(count=part.count, first=part.first, last=part.last)
            for one, part in zip(users, parts, strict=True)
        )
        return users_of_all(plain)

    def hand_over(self, entry: ShardReadResult, await_page: Callable[[], object]) -> Iterator[Page]:
        """Yield exactly the records of the shard's next entry that has records. Calls `await_page`
        while a page is missing. Raises `DataLossError` if some records are gone, unless
        `failOnDataLoss` is false.
        """
        if entry.first is None or entry.last is None:
            raise TaskLogError(
                f"the batch in ZooKeeper is damaged: a task's log counts {entry.count} records of "
                f"shard {entry.shard_id} of stream {self._services.settings.stream.name} without "
                "their sequence numbers",
                "start the query again",
            )
        found, answers = 0, 0
        was_awaited = False
        first: SequenceNumber | None = None
        last: SequenceNumber | None = None
        while True:
            page = self._rest or self.getter.first()
            if page is None:
                was_awaited = True
                # Fetch even if the memory for pages or for events is used up.
                self.getter.demand()
                if self._subscribed is not None:
                    self._subscribed.demand()
                await_page()
                continue
            if page.first is not None and page.first > entry.last:
                break
            if page.first is not None and page.first < entry.first:
                # These records were fetched before they expired. The attempt that wrote the log did
                # not see them, and all attempts return the records of the log.
                self._consume(page, page.up_to(SequenceNumber(entry.first.sequence - 1)))
                continue
            part = page.head(page.up_to(entry.last))
            self._consume(page, part.count)
            if part.count:
                first, last = first or part.first, part.last
                found += part.count
                yield part
            if last is not None and last >= entry.last:
                break
            if (part.ended or part.gone or part.at_tip) and self.is_drained:
                answers += was_awaited  # a page held from before may be older than the entry
                if answers == ANSWERS:
                    break
                # One iterator's empty response proves nothing: continue with a new iterator.
                self.unsubscribe()
                self._polling = self._shard_getter(
                    Position.at(entry.first) if last is None else Position.after(last)
                )
                self.getter.start_over(self._polling)
        if found != entry.count or first != entry.first:
            report_data_loss(
                entry.shard_id,
                f"of the {entry.count} records from {entry.first} to {entry.last} that were read "
                f"before, only {found} are left",
                self._services.settings,
            )
        self._expiry.follow(entry)

    def discard(self) -> None:
        """Stop reading, and release all held pages."""
        self.unsubscribe()
        self._rest = None
        self.getter.discard()

    def _consume(self, page: Page, count: int) -> None:
        """Release the first `count` records of `page`, the oldest page."""
        if page is self._rest:
            self._rest = None
        elif not self.getter.drop(page):
            return  # it was an empty page, and a newer page has replaced it
        if count < page.count:
            self._rest = page.after(count)


@dataclass(frozen=True, slots=True)
class FoundRetries:
    """The found records of a shard's retries, and the log entry that describes them."""

    deliveries: tuple[Delivery, ...]
    entry: ShardReadResult


def find_retries(plan: TaskPlan, services: ProcessServices) -> list[FoundRetries]:
    """Find the retries of all shards that have planned retries. A retry that was not searched for,
    because time or bytes ran out, is not counted in `retries_done`. Blocks on Kinesis.

    The first record of the first shard is returned however large it is. Shards take turns at being
    first, so no shard waits for ever. A shard that is gone according to the plan is not requested.
    """
    shards = [shard for shard in plan.shards if shard.retries]
    if not shards:
        return []
    share = RETRY_SHARE if any(shard.max_records for shard in plan.shards) else 1
    room = ByteBudget(max(1, plan.max_bytes // share))
    until_s = services.clock.monotonic_s() + plan.fetch_time_ms / 1000 / share
    first = next((shard for shard in shards if not shard.gone), None)

    def find(shard: ShardSlice) -> FoundRetries:
        entry = ShardReadResult(shard_id=shard.shard_id)
        if shard.gone:
            firsts = tuple(retry.first for retry in shard.retries)
            return FoundRetries(
                (), msgspec.structs.replace(entry, retries_done=len(firsts), retries_gone=firsts)
            )
        reader = _new_reader(
            shard, shard.retries, services, plan, budget=room, at_least_one=shard is first
        )
        deliveries = tuple(reader.read(until_s=until_s))
        if mode_of(plan, services.settings) == FAIL:
            for delivery in deliveries:
                refuse_aggregates(delivery.records, shard.shard_id)
        held_bytes = payload_bytes(delivery.records for delivery in deliveries)
        return FoundRetries(
            deliveries,
            msgspec.structs.replace(reader.result.described_in(entry), payload_bytes=held_bytes),
        )

    with services.new_pool(min(MAX_CONCURRENT, len(shards)), "kinesis-retry") as pool:
        return list(pool.map(find, shards))


def read_retries_again(
    entry: ShardReadResult, plan: TaskPlan, services: ProcessServices
) -> Iterator[Delivery]:
    """Read the retries of an entry that another attempt has appended, or whose records this attempt
    has already returned. Blocks on Kinesis. Raises `DataLossError` if some are gone, unless
    `failOnDataLoss` is false.
    """
    shard = next(shard for shard in plan.shards if shard.shard_id == entry.shard_id)
    reads = retries_with_rows(shard.retries, entry)
    refuses_aggregates = mode_of(plan, services.settings) == FAIL
    rows = 0
    for _ in range(ANSWERS):
        reader = _new_reader(shard, reads, services, plan)
        for delivery in reader.read():
            if refuses_aggregates:
                refuse_aggregates(delivery.records, entry.shard_id)
            yield delivery
        rows += reader.result.rows
        reads = reads[reader.result.done :]
        if not reader.result.shard_gone:
            break
    if rows != entry.retry_rows:
        report_data_loss(
            entry.shard_id,
            f"of the {entry.retry_rows} records that were retried before, only {rows} are left",
            services.settings,
        )


def _new_reader(
    shard: ShardSlice,
    retries: Sequence[PlannedRetry],
    services: ProcessServices,
    plan: TaskPlan,
    *,
    budget: ByteBudget | None = None,
    at_least_one: bool = True,
) -> RetryReader:
    """Return a reader that reads each retry as it failed, unpacked or `whole`, regardless of the
    present value of `aggregatedRecords`.

    A plan of an earlier version does not have `whole`: there, a retry without a sub-sequence number
    is read whole, as in the shard's state (`state.codec.shard_states`).
    """
    return RetryReader(
        shard.shard_id,
        retries,
        services,
        budget=budget,
        at_least_one=at_least_one,
        unpacker=Unpacker(lambda: hash_range_of(shard)),
        only_subs=plan.aggregated_records is None,
    )


def report_data_loss(shard_id: str, what: str, settings: SourceSettings) -> None:
    """Report that some records of an earlier read have expired: raise `DataLossError`, or log a
    warning if `failOnDataLoss` is false.
    """
    sentence = (
        f"shard {shard_id} of stream {settings.stream.name}: {what}. The other records have "
        "expired from the stream"
    )
    report_loss(sentence, fails=settings.fail_on_data_loss)
