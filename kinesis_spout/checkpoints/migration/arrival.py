"""What moving in does, looked up in the stream. Blocks on the service; writes nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.aggregation.user_records import unpacked
from kinesis_spout.checkpoints.located import NONE, Counted, Located, ShardSearch
from kinesis_spout.checkpoints.migration.origin import MigrationError, wish_of
from kinesis_spout.checkpoints.migration.placing import placed, unlisted
from kinesis_spout.checkpoints.moves import Goal, lost_until
from kinesis_spout.errors import RequestRefusedError, ShardNotFoundError
from kinesis_spout.shards.lineage import ShardLineage
from state.codec.exported import ExportedApplication
from state.position import SHARD_END, TRIM_HORIZON, Position, PositionKind
from state.shard_state import Lifecycle, ShardState
from state.store.identity import StartPin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.checkpoints.migration.origin import Origin
    from kinesis_spout.checkpoints.migration.placing import Placed
    from kinesis_spout.clock import Clock
    from kinesis_spout.reading.page import Page
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import StreamSummary

MAX_CONCURRENT_SHARDS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardArrival:
    """One shard: what the other consumer says, and the state that it becomes.

    - `arrival_ms`: the arrival of the next record; None without one.
    - `waiting`: records that are read next. `repeated`: those of them that the other consumer has
      read and not committed. `skipped`: records before the position that were perhaps never read.
    - `lost_until_ms`: records that arrived before this, and were not read, may have expired.
    """

    says: str
    state: ShardState
    arrival_ms: int | None
    waiting: Counted
    repeated: Counted = NONE
    skipped: Counted = NONE
    lost_until_ms: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """All listed shards, and what becomes the application. `expired`: shards that were not done and
    are not listed any more.
    """

    shards: Sequence[ShardArrival]
    expired: Sequence[str]
    application: ExportedApplication


def find_arrival(
    client: KinesisClient,
    origin: Origin,
    summary: StreamSummary,
    application: str,
    *,
    at: Position | None,
    now_ms: int,
    clock: Clock,
    max_counted: int,
) -> Arrival:
    """What the application becomes. `at`: see `placing`. `now_ms`: the service's time.

    Raises `MigrationError`, and errors of the service.
    """
    listed = ShardLineage.of(client.list_shards(), {}).listed
    horizon_ms = now_ms - summary.retention_ms

    def find(one: Placed) -> ShardArrival:
        search = ShardSearch(client, one.shard, clock)
        try:
            return _arrival(search, one, now_ms, horizon_ms, max_counted)
        except ShardNotFoundError:
            raise MigrationError(
                f"shard {one.shard.shard_id} has just expired; run the command again"
            ) from None

    with ThreadPoolExecutor(MAX_CONCURRENT_SHARDS) as pool:
        shards = list(pool.map(find, placed(origin, listed, at)))
    return Arrival(
        shards=shards,
        expired=unlisted(origin, listed),
        application=ExportedApplication(
            application=application,
            exported_ms=now_ms,
            stream=summary.identity,
            # Every listed shard gets a state. Those that are listed later are children.
            start=StartPin(
                time_ms=now_ms,
                requested=wish_of(origin.name),
                position=TRIM_HORIZON,
                shards=tuple(sorted(listed)),
            ),
            states=tuple(one.state for one in shards),
        ),
    )


def _arrival(
    search: ShardSearch, one: Placed, now_ms: int, horizon_ms: int, max_counted: int
) -> ShardArrival:
    _check_number(one)
    try:
        position = _exact(search, one.position)
        found = search.locate(position)
        read_to = None if one.read_to is None else search.locate(_exact(search, one.read_to))
    except RequestRefusedError as exc:
        raise MigrationError(
            f"shard {one.shard.shard_id} has no record {one.position.sequence}: {exc}"
        ) from exc
    if found.first is None and found.at_shard_end:
        position = SHARD_END
    elif found.first is not None and position.timestamp_ms is not None:
        position = Position.at(found.first)
    elif _is_before(position, horizon_ms):
        position = TRIM_HORIZON
    return ShardArrival(
        says=one.says,
        state=_state(one, position, found, now_ms),
        arrival_ms=found.arrival_ms,
        waiting=search.count(found, _END, max_counted),
        repeated=NONE if read_to is None else search.count(found, read_to, max_counted),
        skipped=search.count(search.locate(TRIM_HORIZON), found, max_counted)
        if one.passed_over
        else NONE,
        lost_until_ms=_lost_until(search, one, position, found, horizon_ms),
        note=one.note,
    )


_END = Located(SHARD_END, None, at_shard_end=True)


def _check_number(one: Placed) -> None:
    """Refuse a number that the shard cannot have: one from before it, or from after its end."""
    number, ending = one.position.sequence, one.shard.ending_sequence
    if number is None:
        return
    is_odd = ending is not None and ending < one.shard.starting_sequence  # an emulator's
    if number.whole < one.shard.starting_sequence or (
        ending is not None and not is_odd and number.whole > ending
    ):
        raise MigrationError(
            f"shard {one.shard.shard_id} cannot have record {number.whole}, which is outside its "
            "numbers; this is the state of another stream, or of one that was created again"
        )


def _exact(search: ShardSearch, position: Position) -> Position:
    """The position, where it names a user record that is perhaps not there: a record that is no
    aggregate, or its last user record, is done as a whole.
    """
    number = position.sequence
    if number is None or not number.sub or position.kind is not PositionKind.AT:
        return position
    page = search.first_page(Position.at(number.whole))
    is_there = page.first is not None and page.first.whole == number.whole
    if is_there and number.sub < _user_records(page):
        return position
    return Position.after(number.whole)


def _user_records(page: Page) -> int:
    """How many user records the page's first record has; 0 where it is no aggregate."""
    return len(unpacked(page.records.column("data")[0].as_py()) or ())


def _is_before(position: Position, horizon_ms: int) -> bool:
    return position.timestamp_ms is not None and position.timestamp_ms < horizon_ms


def _lost_until(
    search: ShardSearch, one: Placed, position: Position, found: Located, horizon_ms: int
) -> int | None:
    if position.is_end and one.position.is_end:
        return None
    whole = one.position
    if whole.sequence is not None:
        whole = Position.at(whole.sequence.whole)
    return lost_until(search, Goal(whole, was_there=True), found, horizon_ms)


def _state(one: Placed, position: Position, found: Located, now_ms: int) -> ShardState:
    return ShardState(
        shard_id=one.shard.shard_id,
        checkpoint=position.sequence if position.kind is PositionKind.AFTER else None,
        read_position=position,
        lifecycle=Lifecycle.FINISHED if position.is_end else Lifecycle.ACTIVE,
        parents=one.shard.parents,
        # From TRIM_HORIZON on nothing is missed that is there now, as at a start.
        verified_until_ms=now_ms
        if found.arrival_ms is None or position == TRIM_HORIZON
        else found.arrival_ms,
    )
