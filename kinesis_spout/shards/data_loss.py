"""Data loss: detects shards whose records may have expired unread, and reports them.

    case                  observed                                     report
    lapsed                last verified longer ago than the retention  not read for longer than that
    vanished              not listed, and its end was not read         not listed any more
    never read            not listed, and it never had a state         not listed any more
    read late             a page came later than that (`lapsed_ms`)    read later than its retention
    no start              a plan is known, but no start in ZooKeeper   progress is lost
    children unobserved   its end was read, expired, no child known    children never observed
    hole                  no open shard covers a range of hash keys    a warning, not a loss

Retries of a shard that is not listed are not lost in silence either, but no data loss: they are
dead letters without a payload, once the shard is proven gone.

"Verified" is the later of the last record's arrival and the last time at the tip. Before a shard is
reported as gone, the service is asked for the shard itself, twice: ListShards is eventually
consistent and may show a new shard late.

A report names every shard, and when the records arrived that may have expired: since the shard was
verified, and longer ago than the retention.

`failOnDataLoss` decides: true raises `DataLossError`, false logs a warning and continues.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from kinesis_spout.errors import (
    DataLossError,
    ExpiredIteratorError,
    ShardNotFoundError,
    UnreadableRecordError,
)
from kinesis_spout.service.shard_info import HOUR_MS
from kinesis_spout.shards.lineage import open_range_holes
from state.position import TRIM_HORIZON, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.shards.lineage import Listing, ShardLineage
    from state.shard_state import ShardState
    from state.store.identity import StartPin

_T = TypeVar("_T")
log = logging.getLogger("kinesis_spout")
ACCEPT_LOSS = "set option failOnDataLoss to false"
READ_ON = "The remaining records are read"
SAME_LOSS_MS = 60_000  # time passes from the report of a loss to the read that it is about
_EMPTY_PAGES = 10  # that many answers for a shard may come without its first record
MAX_PROBED_PER_LISTING = 500  # each is a call to the service, inside one refresh


class _Lasting(Generic[_T]):
    """Observations that hold in every listing for at least `lasting_s`. A pure memory."""

    def __init__(self, lasting_s: float) -> None:
        self._lasting_s = lasting_s
        self._since_s: dict[_T, float] = {}

    def note(self, found: Iterable[_T], listed_s: float) -> dict[_T, float]:
        """Take what a listing shows; returns what lasts, and for how many seconds."""
        self._since_s = {what: self._since_s.get(what, listed_s) for what in found}
        lasted_s = {what: listed_s - since_s for what, since_s in self._since_s.items()}
        return {what: seconds for what, seconds in lasted_s.items() if seconds >= self._lasting_s}


class DataLossDetector:
    """One per catalog. Blocks on Kinesis where it asks for a shard; writes no state: the caller
    gives up or forgets the shards that a method returns.

    `horizon_ms`: the service's time less the retention, or a later time, if the retention was
    shorter before: what arrived before may have expired.
    `only`: the ids of the shards that are read; empty for all. The others are not missed.
    `lasting_s`: for how long listings must agree before a shard counts as vanished.
    `accept_loss`: how this application's user lets it continue after a loss.

    - `reports`: how many losses were reported, of one or more shards each. `on_accepted` gets the
      sentence of each after which the consumer continues.
    - `gone`: shards with unresolved records of which nothing can be read any more: two listings of
      the ACTIVE stream, and all between them, left the shard out, and it did not answer.
    - `checked_until_ms`: by shard, up to when its last `check_retention` has reported what expired.
    """

    def __init__(
        self,
        client: KinesisClient,
        *,
        horizon_ms: Callable[[], int],
        fail_on_data_loss: bool,
        lasting_s: float,
        only: Collection[str] = (),
        accept_loss: str = ACCEPT_LOSS,
    ) -> None:
        self.reports = 0
        self.on_accepted: Callable[[str], object] = lambda _: None
        self.gone: frozenset[str] = frozenset()
        self.checked_until_ms: dict[str, int] = {}
        self._accept_loss = accept_loss
        self._client = client
        self._horizon_ms = horizon_ms
        self._fail_on_data_loss = fail_on_data_loss
        self._only = only
        self._missing: _Lasting[str] = _Lasting(lasting_s)
        self._unlisted: _Lasting[str] = _Lasting(lasting_s)
        self._holes: _Lasting[tuple[int, int]] = _Lasting(lasting_s)
        self._reported: dict[str, int] = {}  # when `check_retention` did, by shard
        self._reported_holes: set[tuple[int, int]] = set()

    def check_retention(
        self,
        shards: Sequence[str],
        states: Mapping[str, ShardState],
        *,
        retention_ms: int,
        now_ms: int,
    ) -> None:
        """Report shards whose records may have expired unread, each once until it is read on.
        `states`: also of shards that are not asked for, as they wait for others. They are reported
        with these: nobody wants to hear of one loss after the other.

        Raises `DataLossError` where `failOnDataLoss` is true.
        """
        horizon_ms = self._horizon_ms()
        lapsed = {shard for shard, state in states.items() if expired_unread(state, horizon_ms)}
        for shard in states.keys() - lapsed:  # read since then: a later expiry is another loss
            self._reported.pop(shard, None)
        if not self._reported.keys() >= lapsed.intersection(shards):
            new = [shard for shard in sorted(lapsed) if shard not in self._reported]
            was_raised = horizon_ms > now_ms - retention_ms
            kept = f"{', which was raised to' if was_raised else ' of'} {retention_ms // HOUR_MS} h"
            self.report(
                f"shards of stream {self._stream} have not been read for longer than the retention"
                f"{kept}: {_with_positions(new, states, horizon_ms)}"
            )
            self._reported |= dict.fromkeys(new, now_ms)
            self.checked_until_ms |= dict.fromkeys(new, horizon_ms)
        looked = [shard for shard in shards if shard not in self._reported]
        self.checked_until_ms |= dict.fromkeys(looked, horizon_ms)

    def report_lapsed(self, lapsed: Mapping[str, int], states: Mapping[str, ShardState]) -> None:
        """Report shards whose records may have expired before a read. `lapsed`: the service's times
        of these reads, by shard. A read soon after `check_retention` has reported the shard belongs
        to the same loss. Raises `DataLossError` if `failOnDataLoss` is true.
        """
        known = [
            shard
            for shard, read_ms in lapsed.items()
            if shard in states and read_ms > self._reported.get(shard, -SAME_LOSS_MS) + SAME_LOSS_MS
        ]
        if known:
            self.report(
                f"shards of stream {self._stream} were read after some of their records had "
                f"expired: {_with_positions(known, states, self._horizon_ms())}"
            )

    def check_never_read(
        self, lineage: ShardLineage, pin: StartPin, *, has_begun: Callable[[], bool]
    ) -> None:
        """Report shards that are gone and never had a state: those of the pin, and those that came
        and went between two listings. `has_begun`: whether all shards of a listing have had states
        once. One that has none is finished and forgotten then.
        """
        lost = never_read(lineage, pin, has_begun=has_begun, horizon_ms=self._horizon_ms())
        wanted = [shard for shard in lost if not self._only or shard in self._only]
        gone = [shard for shard in wanted if not is_there(self._client, shard)]
        if gone:
            self.report(
                f"Kinesis no longer lists shards of stream {self._stream} that were never read: "
                f"{', '.join(gone)}"
            )

    def children_unobserved(self, lineage: ShardLineage) -> list[str]:
        """Report and return shards that were read to their ends and have expired, and whose
        children were never observed. The caller gives them up.
        """
        shards = lineage.out_of_sight(self._horizon_ms())[:MAX_PROBED_PER_LISTING]
        alone = [shard for shard in shards if not is_there(self._client, shard)]
        if alone:
            self.report(
                f"shards of stream {self._stream} have expired, but Kinesis never listed their "
                f"child shards: {', '.join(alone)}"
            )
        return alone

    def vanished(self, lineage: ShardLineage, listing: Listing) -> list[str]:
        """Return shards that vanished before their ends were read, and report those of which
        `check_retention` has reported no loss since they vanished. The caller gives them up.

        Two listings of an ACTIVE stream, at least `lasting_s` apart, and all between them must
        leave the shard out: while a stream is UPDATING the list may be incomplete.
        """
        vanished = lineage.vanished() if listing.is_active else ()
        missing = self._missing.note(vanished, listing.listed_s)
        gone = [shard for shard in missing if not is_there(self._client, shard)]
        horizon_ms = self._horizon_ms()
        # Of a shard that was still listed when it was reported, more has expired since.
        new = [
            shard
            for shard in gone
            if shard not in self._reported
            or self.checked_until_ms[shard] + missing[shard] * 1000 + SAME_LOSS_MS < horizon_ms
        ]
        if new:
            self.report(
                f"Kinesis no longer lists shards of stream {self._stream} that were not read to "
                f"their ends: {_with_positions(new, lineage.states, horizon_ms)}"
            )
        return gone

    def gone_with_retries(self, lineage: ShardLineage, listing: Listing) -> frozenset[str]:
        """The shards whose unresolved records are proven gone, by the rule of `vanished`. They are
        not reported: their records become dead letters.

        A proof holds until the shard is listed again.
        """
        unlisted = lineage.unlisted_with_retries()
        lasting = self._unlisted.note(unlisted if listing.is_active else (), listing.listed_s)
        asked = [shard for shard in lasting if shard not in self.gone][:MAX_PROBED_PER_LISTING]
        proven = {shard for shard in asked if not is_there(self._client, shard)}
        self.gone = self.gone.intersection(unlisted) | proven
        return self.gone

    def check_holes(self, listing: Listing) -> None:
        """Warn once of each range of hash keys that no open shard covers and that lasts.

        The service takes no record for such a key, so nothing need be lost. But a shard that the
        list leaves out would not be read.
        """
        if not listing.is_active:
            self._holes.note((), listing.listed_s)
            return
        holes = open_range_holes(listing.shards.values())
        self._reported_holes.intersection_update(holes)
        for (first, last), lasted_s in self._holes.note(holes, listing.listed_s).items():
            if (first, last) not in self._reported_holes:
                log.warning(
                    "stream %s: for %.0f s, Kinesis has listed no open shard for the hash keys "
                    "%d to %d. The job cannot read a shard that Kinesis does not list. Compare "
                    "the shards of `kinesis-spout shards` with the AWS console",
                    self._client.stream.name,
                    lasted_s,
                    first,
                    last,
                )
                self._reported_holes.add((first, last))

    def report(self, what: str, *, going_on: str = READ_ON) -> None:
        """Report a loss, as `report_loss`."""
        self.reports += 1
        sentence = f"records may be lost: {what}"
        report_loss(
            sentence,
            fails=self._fail_on_data_loss,
            accept_loss=self._accept_loss,
            going_on=going_on,
        )
        self.on_accepted(sentence)

    @property
    def _stream(self) -> str:
        return self._client.stream.name


def report_loss(
    sentence: str, *, fails: bool, accept_loss: str = ACCEPT_LOSS, going_on: str = READ_ON
) -> None:
    """Report a loss. Raises `DataLossError` where `fails`, the option failOnDataLoss, is true, else
    warns.
    """
    if fails:
        raise DataLossError(
            sentence, f"to accept the loss and read the remaining records, {accept_loss}"
        )
    log.warning("%s. failOnDataLoss is false. %s", sentence, going_on)


def is_there(client: KinesisClient, shard_id: str) -> bool:
    """Whether the service answers for the shard. It may say once that it does not know one that is
    there, and the listings may be late: so it is asked twice.
    """
    for _ in range(2):
        with suppress(ShardNotFoundError):
            client.shard_iterator(shard_id, TRIM_HORIZON)
            return True
    return False


def oldest_kept_ms(client: KinesisClient, until_ms: int) -> int:
    """When the oldest record of the stream arrived, so far as that was before `until_ms`, else
    `until_ms`: nothing that came later has expired. Blocks on the service, at least once for each
    shard; one that answers without a record proves nothing. Raises the service's errors, as a guess
    would be stored.
    """
    oldest_ms = until_ms
    for shard in client.list_shards()[:MAX_PROBED_PER_LISTING]:
        with suppress(ShardNotFoundError, UnreadableRecordError):
            iterator: str | None = client.shard_iterator(shard.shard_id, TRIM_HORIZON)
            for answers_left in reversed(range(_EMPTY_PAGES)):
                if iterator is None:
                    break
                try:
                    page = client.get_records(iterator, 1)
                except ExpiredIteratorError:
                    if not answers_left:
                        raise
                    iterator = client.shard_iterator(shard.shard_id, TRIM_HORIZON)
                    continue
                if page.last_arrival_ms is not None:
                    oldest_ms = min(oldest_ms, page.last_arrival_ms)
                    break
                iterator = page.next_iterator
    return oldest_ms


def never_read(
    lineage: ShardLineage, pin: StartPin, *, has_begun: Callable[[], bool], horizon_ms: int
) -> list[str]:
    """The shards that are not listed and never had a state, as `DataLossDetector.check_never_read`
    defines them; the service was not asked for them.
    """
    known = lineage.listed.keys() | lineage.states.keys()
    # A shard that was open at the pin is listed for the retention at least, so earlier than that
    # none can be missing.
    lost = [shard for shard in pin.shards if shard not in known and pin.time_ms < horizon_ms]
    if lost and has_begun():
        lost = []
    # Parents, never listed here, of shards that are new since the pin.
    known |= set(pin.shards)
    between = {
        parent
        for shard_id, shard in lineage.listed.items()
        if shard_id not in lineage.states and shard_id not in pin.shards
        for parent in shard.parents
    }
    return lost + sorted(between - known)


def _with_positions(
    shards: Iterable[str], states: Mapping[str, ShardState], horizon_ms: int
) -> str:
    named = []
    for shard in shards:
        lost = expired_unread(states[shard], horizon_ms)
        lacks = "" if lost is None else f"; records that arrived from {times_of(lost)} have expired"
        named.append(f"{shard} (read position {states[shard].read_position}{lacks})")
    return ", ".join(named)


def expired_unread(state: ShardState, horizon_ms: int) -> tuple[int, int] | None:
    """From when to when records arrived that were to be read, and have expired; None where all are
    there. `horizon_ms`: service time less the retention.
    """
    verified_ms = state.verified_until_ms
    if state.end_was_read or verified_ms is None or verified_ms >= horizon_ms:
        return None
    return verified_ms, horizon_ms


def times_of(lost_ms: tuple[int, int]) -> str:
    since, until = map(Position.at_timestamp, lost_ms)
    return f"{since} to {until}"
