"""Reading the retries of a shard: single records and ranges, far apart, by sequence number.

- A page that starts at the first wanted number contains that record, if it still exists. The reader
  then reads the next page while pages contain wanted records and the next number is estimated to be
  near, or jumps to that number.
- A record that was passed and not found is gone: a shard only ever grows at its tip. Expiry removes
  the oldest records first, so a range of which the first record or the number of records is not
  found is short: some of its records are gone.
- One page at the tip proves nothing: emulators report a tip where there is none, and the service
  may answer once without records. Only a second page at the tip, of a new iterator that was
  requested at the first retry that was not found, proves that this one and the later ones are gone.
- A shard that the service does not know proves nothing either: the retries stay queued until the
  shard catalog has proven the shard gone.
- A range may be read in part, for its `max_records` or for lack of bytes. Its other records stay
  queued, from the first one on that was seen and not read.
- When the time is over in the middle of a run of empty pages, the next reader in the process
  continues there (`Search`). Otherwise a record behind a long run would never be found.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from kinesis_spout.errors import KinesisError
from kinesis_spout.reading.read_ahead import ByteBudget
from kinesis_spout.reading.shard_getter import FetchPostponedError, KinesisShardGetter
from kinesis_spout.reading.user_records import (
    OwnedOfRange,
    number_at,
    numbers_of,
    unpacked_retries,
    within,
    without_owned,
)
from kinesis_spout.service.get_records_decoder import payload_bytes
from kinesis_spout.service.shard_info import ITERATOR_LIFE_S
from state.plan import RangePart, ShortRange, missing_records
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

    from kinesis_spout.aggregation.unpacking import Unpacker
    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.pacing import ShardPacers
    from kinesis_spout.reading.page import Page
    from kinesis_spout.service.client import KinesisClient
    from state.plan import PlannedRetry, ShardReadResult
    from state.sequence_number import SequenceNumber

FIRST_PAGE_RECORDS = 1_000
MAX_PAGE_RECORDS = 10_000
MAX_SPANS_AHEAD = 2  # in spans of the last page: a number further ahead is jumped to


@dataclass(frozen=True, slots=True)
class Search:
    """An unfinished search for the retry `first`: the iterator to continue with, and when the
    service issued it (monotonic seconds).
    """

    first: SequenceNumber
    iterator: str
    at_s: float


class RetryServices(Protocol):
    """`searches`: by shard, where the next reader may continue; a hint that may be lost."""

    client: KinesisClient
    clock: Clock
    random: Random
    pacers: ShardPacers
    searches: dict[str, Search]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Records of retries in sequence order. `attempts` (int32): the number of each delivery."""

    records: pa.RecordBatch
    attempts: pa.Array


@dataclass(slots=True)
class RetryResult:
    """What has become of a shard's retries so far: the first `done` were searched for, and `part`
    was read of the range after them, if any; `rows` records of them were returned. No record is
    left of those whose first numbers are in `gone`, and only the later ones of those in `short`.
    `shard_gone`: the service answered that it does not know the shard.
    """

    done: int = 0
    rows: int = 0
    gone: list[SequenceNumber] = field(default_factory=list)
    short: list[ShortRange] = field(default_factory=list)
    part: RangePart | None = None
    shard_gone: bool = False

    def described_in(self, result: ShardReadResult) -> ShardReadResult:
        """The task's result, with the retries that were read."""
        return msgspec.structs.replace(
            result,
            retries_done=self.done,
            retry_rows=self.rows,
            retries_gone=tuple(self.gone),
            retries_short=tuple(self.short),
            retry_part=self.part,
            gone=result.gone or self.shard_gone,
        )


class RetryReader:
    """Searches for a shard's retries in their order: decides where the next page begins, and how
    large it is. For one `read`, by one thread; blocks on Kinesis.

    `result` says what was found so far, also after an error. The search depends on the sequence
    numbers only, so a second reader finds the same records.

    `budget`: bounds the bytes of what is returned. With `at_least_one`, the first record, or the
    first range if ranges are whole, is returned regardless of it. `whole_ranges`: a range is
    returned as a whole or not at all. `one_attempt`: the caller tries again by itself, so `read`
    raises at a call's first failure, throttling included.

    `unpacker`: aggregates are unpacked, and retries name user records. User records of a range that
    belong to another shard were not delivered and are left out (`OwnedOfRange`); a record that a
    retry names was delivered. With `only_subs`, an aggregate is unpacked only for a retry with a
    sub-sequence number, which was unpacked when it failed. A `whole` retry is not unpacked in any
    case, but for an aggregate of which one of its ends names a user record.
    """

    def __init__(
        self,
        shard_id: str,
        retries: Sequence[PlannedRetry],
        services: RetryServices,
        *,
        unpacker: Unpacker,
        budget: ByteBudget | None = None,
        at_least_one: bool = True,
        whole_ranges: bool = False,
        one_attempt: bool = False,
        only_subs: bool = False,
    ) -> None:
        self.result = RetryResult()
        self._picker = _RetryPicker(
            retries=retries,
            result=self.result,
            budget=budget or ByteBudget(),
            at_least_one=at_least_one,
            whole_ranges=whole_ranges,
            unpacker=unpacker,
            only_subs=only_subs,
        )
        self._one_attempt = one_attempt
        self._shard_id = shard_id
        self._retries = retries
        self._lasts = [retry.end.sequence for retry in retries]
        self._services = services
        self._getter: KinesisShardGetter | None = None  # None: jump to the next retry
        self._began_at = 0  # index of the retry that the getter started at
        self._tip_at: int | None = None  # index of the first retry that a page at the tip lacked
        self._limit = 0
        self._found_nothing = True  # every page so far was empty

    def read(self, *, until_s: float = math.inf) -> Iterator[Delivery]:
        """The records that are found, until all retries were searched for, the budget is used up,
        or the monotonic time is `until_s`, which the first retry or range does not heed.
        """
        result, picker = self.result, self._picker
        while result.done < len(self._retries) and not picker.stops:
            # A getter without an iterator asks again whether the shard has ended.
            jumped = self._getter is None or self._getter.iterator is None
            getter = self._getter or self._jump()
            done, rows = result.done, result.rows
            # Every read makes progress: at least one call, and a range that was begun is finished.
            may_stop = done > 0 or not (jumped or picker.range.rows)
            try:
                page = getter.fetch(self._limit, until_s=until_s if may_stop else math.inf)
            except FetchPostponedError:
                break
            except KinesisError:
                if self._one_attempt:
                    self._note_search()  # the next attempt continues there
                raise
            if page.gone:
                result.shard_gone = True
                break
            self._found_nothing = self._found_nothing and not page.count
            yield from self._take(page)
            self._choose_next(page, hit=result.rows > rows, moved=result.done > done or not jumped)
        # What was read of a range is not returned.
        held = (delivery.records for delivery in picker.range.deliveries)
        picker.budget.release(payload_bytes(held))
        self._note_search()

    def _take(self, page: Page) -> Iterator[Delivery]:
        """The page's records of the retries that it has passed, and of the range that it ends in.
        At a proven tip, and at the shard's end, it has passed all of them.
        """
        passed = 0 if page.last is None else bisect_right(self._lasts, page.last.sequence)
        missing = max(self.result.done, passed)
        proven = page.ended or (page.at_tip and self._began_at == self._tip_at == missing)
        end = len(self._retries) if proven else passed
        yield from self._picker.take(page.records, end)
        if page.at_tip and self.result.done < len(self._retries) and not self._picker.stops:
            self._tip_at, self._getter = self.result.done, None  # ask again, with a new iterator

    def _jump(self) -> KinesisShardGetter:
        done, read = self.result.done, self._picker.range
        retry = self._retries[done]
        services = self._services
        self._began_at = done
        self._limit = FIRST_PAGE_RECORDS
        if retry.last is not None:
            self._limit = min(MAX_PAGE_RECORDS, max(FIRST_PAGE_RECORDS, retry.max_rows))
        elif done == len(self._retries) - 1:
            self._limit = 1  # the last one: it is the first record there, or it is gone
        # Where an earlier reader stopped in a run of empty pages, if that is still valid. A second
        # page at the tip counts only if its iterator is new.
        search = services.searches.get(self._shard_id)
        if search is not None and (
            search.first != retry.first
            or self._tip_at == done
            or services.clock.monotonic_s() - search.at_s >= ITERATOR_LIFE_S
        ):
            search = None
        self._getter = KinesisShardGetter(
            services.client,
            self._shard_id,
            Position.after(read.last.whole) if read.rows else Position.at(retry.first),
            pacer=services.pacers.of(self._shard_id),
            for_retries=True,
            clock=services.clock,
            random=services.random,
            iterator=None if search is None else search.iterator,
            one_attempt=self._one_attempt,
        )
        return self._getter

    def _note_search(self) -> None:
        searches = self._services.searches
        iterator = None if self._getter is None else self._getter.iterator
        if iterator is not None and self._found_nothing and not self.result.done:
            searches[self._shard_id] = Search(
                self._retries[0].first, iterator, self._services.clock.monotonic_s()
            )
        else:
            searches.pop(self._shard_id, None)

    def _choose_next(self, page: Page, *, hit: bool, moved: bool) -> None:
        """Read the next page, or a larger one, or jump to the next retry. `hit`: the page had
        wanted records. `moved`: it settled a retry, or was not the first page after a jump.
        """
        if self._getter is None:
            return
        first, last = page.first, page.last
        if first is None or last is None or self._picker.range.rows or not moved:
            # An empty page says nothing, a range is read to its end, and a first page that settles
            # nothing lies before the retry (its iterator is of an earlier search).
            self._limit = max(self._limit, FIRST_PAGE_RECORDS)
            return
        is_near = False
        if hit and self.result.done < len(self._retries):
            # Sequence numbers grow with time, so the span of a page estimates the distance.
            ahead = self._retries[self.result.done].first.sequence - last.sequence
            is_near = ahead <= MAX_SPANS_AHEAD * (last.sequence - first.sequence)
        if is_near:
            self._limit = min(MAX_PAGE_RECORDS, 2 * self._limit)
        else:
            self._getter = None


@dataclass(slots=True)
class _RangeRead:
    """What was read so far of one range, whose bytes are reserved."""

    deliveries: list[Delivery] = field(default_factory=list)
    owned: OwnedOfRange | None = None  # once a page had records of it

    @property
    def rows(self) -> int:
        return sum(delivery.records.num_rows for delivery in self.deliveries)

    @property
    def last(self) -> SequenceNumber:
        """Of at least one record."""
        records = self.deliveries[-1].records
        return number_at(records, records.num_rows - 1)

    @property
    def first(self) -> SequenceNumber:
        """Of at least one record."""
        return number_at(self.deliveries[0].records, 0)


@dataclass(slots=True, kw_only=True)
class _RetryPicker:
    """Picks the records of retries from the pages that come, in their order, as far as the budget
    allows, and notes in `result` what has become of each retry. The fields are as in `RetryReader`.
    """

    retries: Sequence[PlannedRetry]
    result: RetryResult
    budget: ByteBudget
    at_least_one: bool
    whole_ranges: bool
    unpacker: Unpacker
    only_subs: bool
    range: _RangeRead = field(default_factory=_RangeRead)
    is_full: bool = False

    @property
    def stops(self) -> bool:
        """Whether no further page is wanted."""
        return self.is_full or self.result.part is not None or self.result.shard_gone

    def take(self, records: pa.RecordBatch, end: int) -> Iterator[Delivery]:
        """The records of a page: of the retries before `end`, which it has passed, and of the range
        that it ends in.
        """
        result, retries = self.result, self.retries
        wanted = retries[result.done :]
        records = unpacked_retries(records, self.unpacker, wanted, only_subs=self.only_subs)
        while result.done < len(retries) and not self.stops:
            retry = retries[result.done]
            is_passed = result.done < end
            if retry.last is not None:
                yield from self._extend_range(retry, retry.last, records)
                if is_passed and not self.stops:
                    yield from self._finish_range(retry)
            elif is_passed:
                yield from self._take_singles(end, records)
            if not is_passed:
                return

    @property
    def _regardless(self) -> bool:
        """Whether the next record is returned regardless of the budget."""
        return self.at_least_one and not self.result.rows

    def _take_singles(self, end: int, records: pa.RecordBatch) -> Iterator[Delivery]:
        """The single records before the next range or `end`, as far as the budget allows."""
        result, begin = self.result, self.result.done
        singles = list(takewhile(lambda retry: retry.last is None, self.retries[begin:end]))
        wanted = pa.array([str(retry.first) for retry in singles], pa.string())
        numbers = numbers_of(records)
        places = pc.index_in(numbers, value_set=wanted)
        found = places.drop_null()
        done = len(singles)
        if len(found):
            kept = without_owned(records.filter(places.is_valid()))
            fitting = self.budget.take(kept, at_least=1 if self._regardless else 0)
            if fitting < len(found):
                self.is_full = True
                done = int(found[fitting].as_py())
            if fitting:
                result.rows += fitting
                attempts = pa.array([retry.attempts + 1 for retry in singles], pa.int32())
                yield Delivery(kept.slice(0, fitting), attempts.take(found.slice(0, fitting)))
        if len(found.unique()) < len(wanted):
            missing = pc.invert(pc.is_in(wanted.slice(0, done), value_set=numbers))
            result.gone += [singles[at].first for at in pc.indices_nonzero(missing).to_pylist()]
        result.done = begin + done

    def _extend_range(
        self, retry: PlannedRetry, last: SequenceNumber, records: pa.RecordBatch
    ) -> Iterator[Delivery]:
        """Hold the page's records of the range. If not all of them may be held, those that are held
        are returned as a part.
        """
        read = self.range
        read.owned = read.owned or OwnedOfRange(retry.first, last)
        wanted = read.owned.of(within(records, retry.first, last))
        if not wanted.num_rows:
            return
        limit = sys.maxsize if retry.max_records is None else retry.max_records
        at_least = 0
        if self._regardless:
            at_least = wanted.num_rows if self.whole_ranges else int(not read.rows)
        allowed = wanted.slice(0, max(0, limit - read.rows))
        fitting = self.budget.take(allowed, at_least=min(at_least, allowed.num_rows))
        if fitting:
            attempts = pa.repeat(pa.scalar(retry.attempts + 1, pa.int32()), fitting)
            read.deliveries.append(Delivery(wanted.slice(0, fitting), attempts))
        if fitting == wanted.num_rows:
            return
        self.is_full = True
        if read.rows and not self.whole_ranges:
            rest = number_at(wanted, fitting)
            self.result.part = RangePart(last=read.last, rest=rest, count=read.rows)
            if read.first != retry.first:
                # At least that one. If others are, the rest is found to be short.
                self.result.short.append(ShortRange(first=retry.first, missing=1))
            yield from self._return_range()

    def _finish_range(self, retry: PlannedRetry) -> Iterator[Delivery]:
        """The range, which was read to its end."""
        read = self.range
        found = read.rows
        has_first = found > 0 and read.first == retry.first
        left_out = 0 if read.owned is None else read.owned.left_out
        if not found:
            self.result.gone.append(retry.first)
        elif has_first and found + left_out == retry.count:
            pass  # it was delivered with the records of other shards, whose hash keys are known now
        elif missing := missing_records(retry.count, found, has_first=has_first):
            self.result.short.append(ShortRange(first=retry.first, missing=missing))
        yield from self._return_range()
        self.result.done += 1

    def _return_range(self) -> Iterator[Delivery]:
        self.result.rows += self.range.rows
        yield from self.range.deliveries
        self.range = _RangeRead()
