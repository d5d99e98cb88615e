"""Takes an application back to where it was at a time. Blocks on the service and on the store.

Each shard goes back to the position that the history has of it, before which every record was acked
then (`state.moves`). What was unresolved then is read again, too. A shard that is younger
goes back to its beginning, so a reshard since the time needs no care: parents that were read to
their ends since go back into their middle, and children wait for them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.checkpoints.application_moves import (
    ApplicationMove,
    ApplicationProgress,
    check_past,
)
from kinesis_spout.checkpoints.moves import Goal, MoveRefusedError
from kinesis_spout.shards.catalog import LISTED_LATE_MS
from kinesis_spout.shards.start_position import start_position
from state.errors import ConflictError
from state.moves import Past, past_at, resume_position
from state.position import TRIM_HORIZON, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.checkpoints.requested_position import RequestedPosition
    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from state.store.history import HistoryEntry, HistoryStore
    from state.store.identity import StartPin
    from state.znodes.topics import StoreTopics

_MAX_PASSES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind(ApplicationMove):
    """A move to a past time. `requested_ms`: the time that was asked for. `past_ms`: that of the
    entry that the application goes back to, which is not later. `lost`: shards that are not listed
    any more, with the positions that they cannot go back to.
    """

    requested_ms: int
    past_ms: int
    lost: Mapping[str, Position]


def find_rewind(
    client: KinesisClient,
    store: StoreTopics,
    to: RequestedPosition,
    *,
    clock: Clock,
    max_counted: int,
) -> Rewind:
    """What going back to `to`, which is a time, does. Writes nothing.

    Raises `MoveRefusedError`, `StreamMismatchError`, and errors of the service and the store.
    """
    progress = ApplicationProgress(client, store, clock)
    requested = to.at(progress.now_ms)
    check_past(requested, progress.now_ms)
    past = _past(read_history(store.history), requested)
    goals = {
        shard: Goal(
            _goal(shard, progress.pin, past),
            was_there=True,
            since_ms=_since_ms(shard, past, progress.summary.created_ms),
        )
        for shard in progress.chosen(())
    }
    return Rewind(
        cause="rewind",
        moves=progress.moves_to(goals, max_counted),
        stored=progress.stored,
        requested_ms=requested.timestamp_ms or 0,
        past_ms=past.time_ms,
        lost=_lost(past, progress),
    )


def read_history(history: HistoryStore) -> list[HistoryEntry]:
    """All entries, in their order; also beside a process that writes. Raises `ConflictError` if
    that goes on writing.
    """
    for _ in range(_MAX_PASSES):
        marks = history.index().marks
        entries = history.read(marks)
        whole = [entry for entry in entries if entry is not None]
        if len(whole) == len(marks):
            return whole
    raise ConflictError("the history changed each time it was read", "run the command again")


def _past(entries: list[HistoryEntry], requested: Position) -> Past:
    if not entries:
        raise MoveRefusedError(
            "the application has no history yet. Its job writes the history while it runs",
            f"move the application with `kinesis-spout checkpoint set --to {requested}`",
        )
    past = past_at(entries, requested.timestamp_ms or 0)
    if past is None:
        raise MoveRefusedError(
            f"the history begins later, at {Position.at_timestamp(entries[0].time_ms)}",
            f"move the application with `kinesis-spout checkpoint set --to {requested}`",
        )
    return past


def _lost(past: Past, progress: ApplicationProgress) -> dict[str, Position]:
    lost = {}
    for shard in sorted({*past.positions, *past.later} - progress.listed.keys()):
        goal, stored = _goal(shard, progress.pin, past), progress.stored.get(shard)
        stays = stored is not None and resume_position(stored.state) == goal
        if not goal.is_end and not stays:
            lost[shard] = goal
    return lost


def _since_ms(shard_id: str, past: Past, created_ms: int) -> int:
    """A time before which the shard had no records, as far as the history and the stream tell."""
    unknown_ms = 0 if shard_id in past.positions else past.time_ms
    absent_ms = past.absent_until_ms.get(shard_id, unknown_ms)
    return max(created_ms, absent_ms - LISTED_LATE_MS)


def _goal(shard_id: str, pin: StartPin | None, past: Past) -> Position:
    """Where a shard goes back to: where it was, or where it begins if the application did not have
    it then. A start that was imported since says nothing of that time: it may lie after the shard's
    first records.
    """
    if shard_id in past.positions:
        return past.positions[shard_id]
    if pin is None or pin.time_ms > past.time_ms:
        return TRIM_HORIZON
    return start_position(shard_id, pin)
