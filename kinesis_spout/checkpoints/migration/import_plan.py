"""What an import does: a position for each shard of the stream, from where another consumer has
stopped. Blocks on the service; writes nothing.

    the other consumer                                     the shard is read
    names it, with a position                              from there
    names it, done                                         not any more; an open one without
                                                             children cannot be done: refused
    names it, but nothing was processed yet:
      a shard that it comes from was                       from its beginning
      else                                                 from the time that is asked for (`at`)
    does not name it, but a shard that it comes from       from its beginning
    does not name it, but one that comes from it, where
      it forgets shards that are done                      not any more
    knows nothing of it                                    from the time that is asked for

A shard that is not listed any more is left out: nothing of it can be read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import msgspec

from kinesis_spout.aggregation.packing import unpacked
from kinesis_spout.checkpoints.located import END, NONE, Counted, ShardSearch, for_each_shard
from kinesis_spout.checkpoints.moves import Goal, lost_until, resolved, verified_until
from kinesis_spout.clock import Clock
from kinesis_spout.errors import RequestRefusedError, ShardNotFoundError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import ShardInfo, StreamSummary
from kinesis_spout.shards.lineage import ShardLineage
from state.codec.exported import ExportedApplication
from state.errors import InvalidSequenceNumberError, RemediedError
from state.position import SHARD_END, TRIM_HORIZON, Position, PositionKind
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.store.identity import StartPin

Item: TypeAlias = "Mapping[str, Mapping[str, Any]]"
"""An item as DynamoDB has it: by name, `{"S": text}` or another kind."""

_Value = TypeVar("_Value")
MAX_NAMED = 5
IMPORT_FROM = "import from "  # what an imported application started with, and a system's name
COPY_AGAIN = "copy the other consumer's complete state again"
GIVE_UNCHANGED = "pass the other consumer's unchanged state"
GIVE_THIS_STREAMS = "pass the state that the other consumer has for this stream"


class MigrationError(RemediedError):
    """State that another consumer stored cannot be read, or does not say enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginShard:
    """Where the other consumer has stopped in one shard.

    - `stored`: what it has stored, in its own words.
    - `position`: where its next read would begin; SHARD_END if it is done, None if it does not say.
      A sub-sequence number names a user record of an aggregate, if the record is one: that is
      looked up in the stream.
    - `read_to`: how far it has read without committing; None if it has not, or does not say.
    - `passed_over`: the records before the position were perhaps never read, so they are counted.
    - `note`: what the operator would not expect.
    """

    stored: str
    position: Position | None
    read_to: Position | None = None
    passed_over: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the other consumer has stopped.

    - `name`: of the system, for messages.
    - `drops_finished`: it forgets a shard once that is done and its children are begun. So a shard
      that it does not name, and whose children it names, is done.
    - `in_place`: what it has stored is the state that the application has.
    - `notes`: about all of it, one sentence each.
    """

    name: str
    shards: Mapping[str, OriginShard]
    drops_finished: bool = False
    in_place: bool = False
    notes: tuple[str, ...] = ()


def decoded(
    data: str | msgspec.Raw, kind: type[_Value], where: str, remedy: str = COPY_AGAIN
) -> _Value:
    """The value of a JSON text, whose fields may be texts. Raises `MigrationError`."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeError) as exc:
        raise MigrationError(f"{where} is damaged ({exc})", remedy) from exc


def in_item(item: Item, kind: type[_Value], wrong: str, remedy: str) -> _Value:
    """The value of an item of DynamoDB. Raises `MigrationError` with `wrong`."""
    values = {name: next(iter(typed.values()), None) for name, typed in item.items()}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as exc:
        raise MigrationError(f"{wrong} ({exc})", remedy) from exc


def number_in(text: str, where: str) -> SequenceNumber:
    """The sequence number in a stored text. Raises `MigrationError`."""
    try:
        return SequenceNumber(SequenceNumber.parse(text).sequence)
    except InvalidSequenceNumberError as exc:
        raise MigrationError(
            f"{where} contains {text[:60]!r}, which is not a Kinesis sequence number",
            GIVE_UNCHANGED,
        ) from exc


def after_user_record(number: SequenceNumber, sub: int) -> Position:
    """After user record `sub` of the record, counted from 0. Raises `MigrationError`."""
    try:
        return Position.at(SequenceNumber(number.sequence, sub + 1))
    except InvalidSequenceNumberError as exc:
        raise MigrationError(f"record {number} has no user record {sub}", GIVE_UNCHANGED) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardImport:
    """One shard: what the other consumer has stored, and the state that it becomes.

    - `arrival_ms`: the arrival of the next record; None without one.
    - `waiting`: records that are read next. `repeated`: those of them that the other consumer has
      read and not committed. `skipped`: records before the position that were perhaps never read.
    - `lost_until_ms`: records that arrived before this, and were not read, may have expired.
    """

    stored: str
    state: ShardState
    arrival_ms: int | None
    waiting: Counted
    repeated: Counted = NONE
    skipped: Counted = NONE
    lost_until_ms: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPlan:
    """All listed shards, and what becomes the application. `expired`: shards that were not done and
    are not listed any more, so that the rest of them has expired.
    """

    shards: Sequence[ShardImport]
    expired: Sequence[str]
    application: ExportedApplication


def find_import(
    client: KinesisClient,
    origin: Origin,
    summary: StreamSummary,
    application: str,
    *,
    at: Position | None,
    now_ms: int,
    clock: Clock,
    max_counted: int,
) -> ImportPlan:
    """What the application becomes. `at`: see the module. `now_ms`: the service's time.

    Raises `MigrationError`, and errors of the service.
    """
    listed = ShardLineage.of(client.list_shards(), {}).listed
    horizon_ms = now_ms - summary.retention_ms

    def find(chosen: tuple[ShardInfo, OriginShard]) -> ShardImport:
        shard, one = chosen
        try:
            search = ShardSearch(client, shard, clock, now_ms, horizon_ms, max_counted)
            return _shard_import(search, one)
        except ShardNotFoundError:
            raise MigrationError(
                f"shard {shard.shard_id} has just expired", "run the command again"
            ) from None

    shards = for_each_shard(find, positions(origin, listed, at))
    return ImportPlan(
        shards=shards,
        expired=sorted(
            shard
            for shard, one in origin.shards.items()
            if shard not in listed and one.position != SHARD_END
        ),
        application=ExportedApplication(
            application=application,
            exported_ms=now_ms,
            stream=summary.identity,
            # Every listed shard gets a state. Those that are listed later are children.
            start=StartPin(
                time_ms=now_ms,
                requested=f"{IMPORT_FROM}{origin.name}",
                position=TRIM_HORIZON,
                shards=tuple(sorted(listed)),
            ),
            states=tuple(one.state for one in shards),
        ),
    )


def positions(
    origin: Origin, listed: Mapping[str, ShardInfo], at: Position | None
) -> list[tuple[ShardInfo, OriginShard]]:
    """Each listed shard, by its id, with its position by the table of the module. Pure.

    Raises `MigrationError` for shards that need a time where there is no `at`, and for an open
    shard that is said to be done.
    """
    parents = {name: shard.parents for name, shard in listed.items()}
    children = defaultdict[str, list[str]](list)
    for name, above in parents.items():
        for parent in above:
            children[parent].append(name)
    begun = {name for name, one in origin.shards.items() if one.position is not None}
    found, unknown = [], []
    for shard_id, shard in sorted(listed.items()):
        one, below = origin.shards.get(shard_id), _reached(shard_id, children)
        # A shard may be listed as open for a moment after its children are.
        if one is not None and one.position == SHARD_END and not (shard.is_closed or below):
            raise MigrationError(
                f"the state of {origin.name} has the position SHARD_END for the open shard "
                f"{shard_id}: the state belongs to another stream, or to an earlier stream with "
                "the same name",
                GIVE_THIS_STREAMS,
            )
        if one is not None and one.position is not None:
            chosen = one
        elif one is None and origin.drops_finished and below & origin.shards.keys():
            chosen = OriginShard(
                stored="no position, but a descendant shard has a position",
                position=SHARD_END,
                passed_over=True,
                note=f"{origin.name} has read the shard to its end, or has never read the shard",
            )
        elif _reached(shard_id, parents) & begun:
            stored = one.stored if one else "no position yet, but an ancestor shard has a position"
            chosen = OriginShard(stored=stored, position=TRIM_HORIZON)
        elif at is not None:
            chosen = OriginShard(
                stored=one.stored if one else "none",
                position=at,
                passed_over=True,
                note="the shard is read from the position in --at",
            )
        else:
            unknown.append(shard_id)
            continue
        found.append((shard, chosen))
    if unknown:
        more = len(unknown) - MAX_NAMED
        named = ", ".join(unknown[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise MigrationError(
            f"{origin.name} has no position for {named}",
            "pass the time from which to read these shards, e.g. --at -1h, or read all their "
            "records with --at TRIM_HORIZON",
        )
    return found


def _reached(start: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        fresh = set(edges.get(pending.pop(), ())) - found
        found |= fresh
        pending += fresh
    return found


def _shard_import(search: ShardSearch, one: OriginShard) -> ShardImport:
    shard, requested = search.shard, one.position or TRIM_HORIZON
    number, last = requested.sequence, shard.last_sequence
    if number is not None and not (
        shard.starting_sequence <= number.whole and (last is None or number.whole <= last)
    ):
        raise MigrationError(
            f"shard {shard.shard_id} cannot contain record {number.whole}, which is outside the "
            "shard's range of sequence numbers: the state belongs to another stream, or to an "
            "earlier stream with the same name",
            GIVE_THIS_STREAMS,
        )
    try:
        found = resolved(search, _exact(search, requested))
        read_to = None if one.read_to is None else search.locate(_exact(search, one.read_to))
    except RequestRefusedError as exc:
        raise MigrationError(
            f"shard {shard.shard_id} has no record {requested.sequence}: {exc.message}",
            GIVE_THIS_STREAMS,
        ) from exc
    if found.first is None and found.at_shard_end:
        found = END
    position = found.position
    # A record of which a part was read is there as a whole, or has expired as a whole.
    whole = requested if number is None else Position.at(number.whole)
    oldest = search.locate(TRIM_HORIZON) if one.passed_over else found
    return ShardImport(
        stored=one.stored,
        state=ShardState(
            shard_id=shard.shard_id,
            checkpoint=position.sequence if position.kind is PositionKind.AFTER else None,
            read_position=position,
            parents=shard.parents,
            verified_until_ms=verified_until(found, search.now_ms),
        ),
        arrival_ms=found.arrival_ms,
        waiting=search.count(found, END),
        repeated=search.count(found, read_to or found),
        skipped=search.count(oldest, found),
        lost_until_ms=lost_until(search, Goal(whole, was_there=True), found),
        note=one.note,
    )


def _exact(search: ShardSearch, position: Position) -> Position:
    """The position, where it names a user record that is perhaps not there: a record that is no
    aggregate, or its last user record, is done as a whole.
    """
    number = position.sequence
    if number is None or not number.sub or position.kind is not PositionKind.AT:
        return position
    page = search.first_page(Position.at(number.whole))
    if page.first is not None and page.first.whole == number.whole:
        users = unpacked(page.records.column("data")[0].as_py()) or ()
        if number.sub < len(users):
            return position
    return Position.after(number.whole)
