"""Exports an application from a store, and imports it into one. Blocks on the store, and on the
service where positions are tried.
"""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from kinesis_spout.checkpoints.located import for_each_shard
from kinesis_spout.checkpoints.recorded_move import check_bound_stream, write_states
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.shards.start_position import refusal_of, start_position
from state.codec.exported import ExportedApplication
from state.errors import (
    InvalidStoreSettingError,
    StateTooLargeError,
    StoredDataError,
    StreamMismatchError,
)
from state.failpoint import failpoint
from state.moves import earlier, resume_position
from state.position import TRIM_HORIZON, Position
from state.store.identity import StartPin, StreamIdentity
from state.store.shard_states import StoredState
from state.znodes.topics import StoreTopics

_NOTHING_REQUESTED = ""  # no user can ask for it


def export_application(
    store: StoreTopics, application: str, *, now_ms: int
) -> ExportedApplication | None:
    """All that the application has; None if it has nothing. Needs no ownership.

    Beside a running job, each shard is as it was at one moment, but not all at the same.
    """
    exported = ExportedApplication(
        application=application,
        exported_ms=now_ms,
        stream=store.identity.read(),
        start=store.identity.read_start(),
        policy=store.reports.read_policy(),
        shard_list=store.shard_list.read(),
        states=tuple(stored.state for _, stored in sorted(store.shard_states.load().items())),
    )
    return exported if exported.states or exported.start is not None else None


def moving_forward(exported: ExportedApplication, states: Mapping[str, StoredState]) -> list[str]:
    """The shards whose records in between are not read if it is imported into an application with
    these states. A time and a sequence number cannot be compared. Pure.
    """
    positions = {
        after.shard_id: (resume_position(states[after.shard_id].state), resume_position(after))
        for after in exported.states
        if after.shard_id in states
    }
    return sorted(
        shard for shard, (old, new) in positions.items() if old != new and earlier(old, new) == old
    )


def check_stream(exported: ExportedApplication, known: StreamIdentity | None) -> None:
    """Raise `StreamMismatchError` unless the export is of the stream `known`: a stream that was
    created again has shards of the same names, and other records.
    """
    if exported.stream is not None and known is not None and not exported.stream.is_same(known):
        raise StreamMismatchError(
            f"the export belongs to stream {exported.stream.arn}, created at "
            f"{Position.at_timestamp(exported.stream.created_ms)}; stream {known.arn} was created "
            f"at {Position.at_timestamp(known.created_ms)}, so its sequence numbers differ",
            "pass an export of this stream",
        )


def check_states(store: StoreTopics, exported: ExportedApplication) -> None:
    """Raise `StoredDataError` for an export whose states cannot be stored, as of a shard with the
    name of another node. Found by the import itself, it would be after the first write.
    """
    try:
        store.shard_states.check(exported.states)
    except (InvalidStoreSettingError, StateTooLargeError) as exc:
        raise StoredDataError(
            f"the export of application {exported.application!r} cannot be imported: {exc.message}",
            exc.remedy,
        ) from exc


def check_positions(client: KinesisClient, exported: ExportedApplication) -> None:
    """Raise `StoredDataError` for an export with a sequence number that the service refuses: a job
    could not read that shard. Raises errors of the service.
    """
    positions = {state.shard_id: state.read_position for state in exported.states}
    if exported.start is not None:
        stateless = [shard for shard in exported.start.shards if shard not in positions]
        positions |= {shard: start_position(shard, exported.start) for shard in stateless}
    numbers = [(shard, at) for shard, at in positions.items() if at.sequence is not None]
    answers = for_each_shard(lambda pair: refusal_of(client, *pair), numbers)
    for (_, position), refused in zip(numbers, answers, strict=True):
        if refused is not None:
            raise StoredDataError(
                f"the export of application {exported.application!r} cannot be imported: "
                f"{position} {refused}",
                "pass an export of this stream",
            )


def import_application(
    store: StoreTopics, exported: ExportedApplication, *, now_ms: Callable[[], int]
) -> None:
    """Make the application what was exported. The caller owns all of it. `now_ms` gives the
    service's time, for the history, which stays: an export has none.

    Stopped at any time, it leaves each shard as it was before or as it is after, and the start says
    so: no job reads the stream from there (`UnfinishedImportError`). Called again, it continues.
    """
    # What stands for a start while there is none but an import.
    no_start = StartPin(
        time_ms=now_ms(), requested=_NOTHING_REQUESTED, position=TRIM_HORIZON, shards=()
    )
    stored = store.shard_states.load()
    start = exported.start
    if start is None:  # then the application keeps the one that it has
        there = store.identity.read_start(also_unfinished=True)
        if there is not None and not (there.importing and there.requested == _NOTHING_REQUESTED):
            start = replace(there, importing=False)
    if exported.stream is not None:
        check_bound_stream(store, exported.stream)
    # The first write: an application that was begun on has no other start.
    store.identity.replace_start(replace(start or no_start, importing=True))
    failpoint("import-begun")
    if exported.stream is not None:
        known = store.identity.bind(exported.stream)
        # What may have expired for either of them has expired for the imported states.
        seen_ms = (known.retention_ms, exported.stream.retention_ms)
        kept_ms = [one_ms for one_ms in seen_ms if one_ms is not None]
        expired_ms = max(known.expired_ms, exported.stream.expired_ms)
        store.identity.amend(
            replace(known, retention_ms=min(kept_ms, default=None), expired_ms=expired_ms)
        )
    if exported.policy is not None:
        store.reports.mark_tracked(exported.policy)
    else:
        store.reports.clear_policy()
    removed = stored.keys() - {state.shard_id for state in exported.states}
    write_states(store, "import", stored, exported.states, now_ms=now_ms, removed=removed)
    if exported.shard_list is not None:
        store.shard_list.save(exported.shard_list)
    else:  # the application had not listed the shards, so it begins with the first ones again
        store.shard_list.remove()
    store.identity.replace_start(start)
