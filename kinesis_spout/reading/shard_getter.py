"""Reading one shard, page by page: iterators, pacing, the tip and the end.

The getter knows exactly where the next fetch starts (`position`). The iterator is a shortcut to it
that may be lost. An expired iterator is replaced by one at the position: after the last record
returned, or at the start position before the first.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Protocol

from kinesis_spout.errors import (
    ExpiredIteratorError,
    KeyThrottledError,
    MalformedResponseError,
    RequestRefusedError,
    ShardNotFoundError,
    StillThrottledError,
    ThrottledError,
    UnreadableRecordError,
)
from kinesis_spout.reading.page import Page, continue_shard, record_before
from kinesis_spout.service.shard_info import MAX_RECORDS_PER_CALL
from state.position import SHARD_END, Position, PositionKind

if TYPE_CHECKING:
    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.pacing import Pacer
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.get_records_decoder import DecodedPage
    from state.sequence_number import SequenceNumber

log = logging.getLogger("kinesis_spout")
REFUSAL_TIMEOUT_S = 120.0
# The number of equal responses in a row that prove a shard's end without other evidence. A
# malformed response is seldom followed by another one.
_SAME_ANSWERS = 3
# Refusals count as continuous across shorter pauses. A longer pause is the caller's, not a wait of
# this getter, so refusals before it do not count.
_MAX_PAUSE_S = 60.0
_THROTTLED_LOGGED_S = 60.0
_LOOK_AGAIN_S = 0.25


class FetchPostponedError(Exception):
    """A fetch failed because of a transient fault, such as throttling. Call again at
    `ready_at_s()`.
    """


class ShardGetter(Protocol):
    """Reads one shard forward, for one caller at a time. The caller does the waiting, so that a
    shard that must wait does not occupy a thread.
    """

    @property
    def shard_id(self) -> str: ...

    def ready_at_s(self) -> float:
        """Return when the shard's limits allow the next fetch, on the clock's monotonic scale."""
        ...

    def fetch_unless_throttled(self, limit: int) -> Page:
        """Return the next page, of at most `limit` records. It may be empty in the middle of a
        shard. If Kinesis does not know the shard any more, the page is `gone`. Blocks on the
        network.

        Raises `FetchPostponedError` if the caller should call again, `StillThrottledError` if the
        shard has been throttled for too long, `ExpiredIteratorError` if new iterators have expired
        for too long, and other `KinesisError`s.
        """
        ...


@dataclass(slots=True)
class _Streak:
    """A continuous series of refusals."""

    since_s: float = -math.inf
    last_s: float = -math.inf
    count: int = 0
    is_logged: bool = False

    def add(self, begun_s: float, now_s: float) -> float:
        """Count the refusal of a read that began at `begun_s`. Returns the seconds since the first
        refusal of the series.
        """
        # The pause ends at `begun_s`, not at `now_s`: the client retries a request for up to a
        # minute before it reports the refusal.
        if begun_s - self.last_s > _MAX_PAUSE_S:
            self.since_s, self.count, self.is_logged = now_s, 0, False
        self.last_s = now_s
        self.count += 1
        return now_s - self.since_s


@dataclass(slots=True)
class _Refusals:
    """For how long Kinesis has refused the reads of a shard, and whether that was logged.

    `throttled`: the number of reads that were refused because the shard's limits were used up.
    """

    timeout_s: float
    throttled: int = 0
    without_a_page: _Streak = field(default_factory=_Streak)
    throttling: _Streak = field(default_factory=_Streak)  # reads between may have succeeded

    def note(
        self,
        exc: ThrottledError | ExpiredIteratorError,
        shard: str,
        begun_s: float,
        now_s: float,
    ) -> None:
        """Note a throttled read, or an expired new iterator, which is a fault of the service.
        Raises an error once this has lasted for too long.
        """
        refused_s = self.without_a_page.add(begun_s, now_s)
        is_over = refused_s >= self.timeout_s
        if isinstance(exc, ExpiredIteratorError):
            if not is_over:
                return
            raise ExpiredIteratorError(
                f"Kinesis has refused every new iterator of {shard} as already expired for "
                f"{refused_s:.0f} s",
                "wait a few minutes, and start the job again",
            ) from exc
        is_of_the_key = isinstance(exc, KeyThrottledError)
        self.throttled += not is_of_the_key
        throttled_s = self.throttling.add(begun_s, now_s)
        if throttled_s >= _THROTTLED_LOGGED_S and not self.throttling.is_logged:
            self.throttling.is_logged = True
            log.warning(
                "%s is throttled: Kinesis refused %s reads in %.0f s. The last error was: %s",
                shard,
                self.throttling.count,
                throttled_s,
                exc,
            )
        if is_over:
            what = f"Kinesis has throttled all reads of {shard} for {refused_s:.0f} s"
            remedy = (
                "lower the job's reads per second, or move other consumers of the shard to "
                "enhanced fan-out"
            )
            if is_of_the_key:
                what, remedy = f"{what} by KMS: {exc.message}", exc.remedy
            raise StillThrottledError(what, remedy) from exc


class KinesisShardGetter:
    """The `ShardGetter` that polls Kinesis.

    - `position`: where the next fetch starts: right after the last page; SHARD_END after the end.
    - `iterator`: an iterator for that position, as a hint that may have expired; or None.
    - `ending_sequence`: the last sequence number that the listing shows for a closed shard.
    - `one_attempt`: the caller retries by itself. Each call is then one attempt, so that a failing
      shard does not occupy a thread, and raises every error of the service.
    - `for_retries`: it reads the retries of a shard, beside a getter of new records (`Pacer`).

    The end of a shard needs evidence. A missing next iterator alone is no evidence, because a
    malformed response lacks it, too. One of these is enough:

    - The last response has no next iterator and names children of the shard.
    - The position has reached `ending_sequence`, with or without a next iterator: some emulators
      never end a closed shard, and others list a number that no record has.
    - Several responses for the same position, from new iterators, have no next iterator and no
      records. Only empty pages before the tip may come between them.

    An expired iterator is replaced at once. If the new iterator is expired, too, the fetch is
    postponed with the backoff of throttling. After two minutes of refusals, `StillThrottledError`
    or `ExpiredIteratorError` is raised.
    """

    # False: pages are converted to Arrow in the fetching thread. Arrow is smaller, and most callers
    # need it.
    keeps_lists = False

    def __init__(
        self,
        client: KinesisClient,
        shard_id: str,
        position: Position,
        *,
        iterator: str | None = None,
        pacer: Pacer,
        clock: Clock,
        ending_sequence: SequenceNumber | None = None,
        random: Random | None = None,
        one_attempt: bool = False,
        for_retries: bool = False,
    ) -> None:
        self._client = client
        self.shard_id = shard_id
        self.position = position
        self.iterator = self._hint = iterator
        self._pacer = pacer
        self._clock = clock
        self._ending_sequence = ending_sequence
        self._random = random or Random()  # noqa: S311  # jitter, not a secret
        self._refusals = _Refusals(math.inf if one_attempt else REFUSAL_TIMEOUT_S)
        self._one_attempt = one_attempt
        self._for_retries = for_retries
        self._same_ends = 0  # the latest responses in a row, for this position, that claim the end
        self._found_nothing = False  # the last page was empty and did not say how far behind it is

    @property
    def throttled(self) -> int:
        """The number of fetches that were refused because the shard's limits were used up."""
        return self._refusals.throttled

    @property
    def may_have_ended(self) -> bool:
        """Whether the latest responses claim the shard's end without proof, so that the next
        responses prove or disprove it. False while Kinesis refuses the reads, which may take long.
        """
        return self._same_ends > 0 and not self._pacer.refused_in_a_row

    def move_to(self, position: Position) -> None:
        """Continue at `position`, because another reader has read up to there."""
        self.position, self.iterator = position, None
        self._same_ends = 0
        self._found_nothing = False
        self._refusals.without_a_page = _Streak()

    def ready_at_s(self) -> float:
        return self._pacer.ready_at_s(self._clock.monotonic_s(), retries=self._for_retries)

    def fetch(self, limit: int, *, until_s: float = math.inf) -> Page:
        """Return the next page. Waits until the shard's limits allow the fetch, and retries after
        throttling and expired new iterators. Raises `KinesisError`, and `FetchPostponedError` if no
        request may start before the monotonic time `until_s`.
        """
        while True:
            ready_at_s, now_s = self.ready_at_s(), self._clock.monotonic_s()
            if ready_at_s >= until_s:
                raise FetchPostponedError(
                    f"the read limits of shard {self.shard_id} do not allow another read in time"
                )
            if ready_at_s > now_s:
                # In parts: a call in flight, of another thread, may end sooner than it must.
                self._clock.sleep(min(ready_at_s - now_s, _LOOK_AGAIN_S))
                continue
            with suppress(FetchPostponedError):
                return self.fetch_unless_throttled(limit)

    def fetch_unless_throttled(self, limit: int) -> Page:
        """Return the next page without waiting for the pacer. See `ShardGetter`."""
        if self._is_beyond_the_end():
            self.position, self.iterator = SHARD_END, None
            return Page(shard_id=self.shard_id, ended=True)
        limit = min(limit, MAX_RECORDS_PER_CALL)
        begun_s = self._clock.monotonic_s()
        try:
            fetched, limit = self._fetch(limit)
        except (ThrottledError, ExpiredIteratorError) as exc:
            if isinstance(exc, ThrottledError) or not self._one_attempt:
                now_s = self._clock.monotonic_s()
                self._pacer.back_off(now_s, self._random)
                self._refusals.note(exc, self._where, begun_s, now_s)
            if self._one_attempt:
                raise
            raise FetchPostponedError(str(exc)) from exc
        except ShardNotFoundError:
            # Not raised: in a Spark task it would fail the batch, which Spark would repeat forever.
            # The caller decides whether unread records were lost.
            return Page(shard_id=self.shard_id, gone=True)
        self._refusals.without_a_page = _Streak()
        return self._accept(fetched, limit)

    def _fetch(self, limit: int) -> tuple[DecodedPage, int]:
        """Fetch one page with the iterator, or with a new iterator if it is not valid. Returns the
        page and its limit of records. Raises `ExpiredIteratorError` if a new iterator is expired.
        """
        while True:
            is_fresh = self.iterator is None
            if self.iterator is None:
                self.iterator = self._client.shard_iterator(
                    self.shard_id, self.position, retry=not self._one_attempt
                )
            now_s = self._clock.monotonic_s()
            if not self._pacer.begin(now_s, retries=self._for_retries):
                raise FetchPostponedError(f"another read of {self._where} is in flight")
            try:
                fetched = self._client.get_records(
                    self.iterator, limit, retry_throttled=False, retry=not self._one_attempt
                )
            except UnreadableRecordError as exc:
                if not exc.index:
                    raise exc.at(self._client.where, self.shard_id) from None
                limit = exc.index  # fetch the records before it, which must not be skipped with it
            except ExpiredIteratorError:
                self.iterator = None
                if is_fresh:
                    raise
            except (RequestRefusedError, ShardNotFoundError):
                # The hint may belong to a stream that was deleted and created again.
                if self.iterator != self._hint:
                    raise
                self.iterator = None
            else:
                if not self.keeps_lists:
                    fetched.columns.to_arrow()
                # Kinesis counts the page against the limits before its response begins. So the time
                # for receiving and decoding counts as waited.
                self._pacer.on_page(fetched.answered_s, fetched.columns.read_bytes)
                return fetched, limit
            finally:
                self._pacer.end(retries=self._for_retries)

    def _accept(self, decoded: DecodedPage, limit: int) -> Page:
        first, last = decoded.first, decoded.last
        before = record_before(self.position)
        if first and last and (last < first or (before is not None and first <= before)):
            # No position describes such a page, so it could never be settled.
            raise MalformedResponseError(
                f"{self._where} returned records from {first} to {last} for position "
                f"{self.position}. These records are out of order, so they were dropped",
                "try again",
            )
        self.iterator = decoded.next_iterator
        if decoded.last is not None:
            self.position = Position.after(decoded.last)
        ended = self._has_ended(decoded)
        if ended:
            self.position, self.iterator = SHARD_END, None
        at_tip = self._is_at_tip(decoded, limit, ended=ended)
        self._found_nothing = decoded.millis_behind_latest is None and not decoded.count
        return Page.of(decoded, self.shard_id, ended=ended, at_tip=at_tip)

    def _is_at_tip(self, decoded: DecodedPage, limit: int, *, ended: bool) -> bool:
        """Whether the page reached the tip. The response says so. If it does not say how far behind
        it is, which the API allows, two empty pages in a row count as the tip.
        """
        if decoded.next_iterator is None and not ended:
            return False  # the response is malformed, so it proves nothing
        if decoded.millis_behind_latest is not None:
            # A full page is not at the tip: an emulator says 0 ms although more records follow.
            return decoded.millis_behind_latest == 0 and decoded.count < limit
        return self._found_nothing and not decoded.count

    def _has_ended(self, decoded: DecodedPage) -> bool:
        """Whether there is evidence that the shard ends after this latest response."""
        is_last = decoded.next_iterator is None
        if is_last and not decoded.count:
            self._same_ends += 1
        # Every new iterator returns the empty pages before the end again: they prove nothing.
        elif decoded.count or not decoded.millis_behind_latest:
            self._same_ends = 0
        return (
            self._is_beyond_the_end()
            or (is_last and continue_shard(self.shard_id, decoded.child_shards))
            or self._same_ends == _SAME_ANSWERS
        )

    def _is_beyond_the_end(self) -> bool:
        last, ending = self.position.sequence, self._ending_sequence
        if last is None or ending is None or self.position.kind is not PositionKind.AFTER:
            return self.position.is_end
        return last >= ending

    @property
    def _where(self) -> str:
        return f"shard {self.shard_id} of {self._client.where}"
