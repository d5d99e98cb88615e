"""All that an application has on a stream, as one JSON document: for backups, and to move it.

    {"format": 1, "application": ..., "exportedMs": ..., "stream": ..., "start": ...,
     "tracked": ..., "shardList": [...], "states": {"<shardId>": ...}}

Each part is what its znode holds, with the format of its own; what there is not is left out. Plans,
the ownership and its epoch stay behind: they belong to the processes of the old place.
"""

from __future__ import annotations

import msgspec

from state.codec.shard_states import decode_shard_state, encode_shard_state
from state.codec.values import decode, encode_unchecked
from state.errors import StoredDataError
from state.report import OutcomePolicy
from state.shard_state import ShardState
from state.store.identity import StartPin, StreamIdentity

EXPORT_FORMAT = 1


class ExportedApplication(msgspec.Struct, frozen=True, kw_only=True):
    """An application's progress on a stream, at `exported_ms` (ms since 1970)."""

    application: str
    exported_ms: int
    stream: StreamIdentity | None = None
    start: StartPin | None = None
    policy: OutcomePolicy | None = None
    shard_list: tuple[str, ...] | None = None
    states: tuple[ShardState, ...] = ()


class _StoredCheckpointExport(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    format: int
    application: str
    exported_ms: int
    stream: StreamIdentity | None = None
    start: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    tracked: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    shard_list: tuple[str, ...] | None = None
    states: dict[str, msgspec.Raw] = {}


def encode_export(exported: ExportedApplication) -> bytes:
    """The document, indented for people, with a line end."""
    document = _StoredCheckpointExport(
        format=EXPORT_FORMAT,
        application=exported.application,
        exported_ms=exported.exported_ms,
        stream=exported.stream,
        start=_raw(exported.start),
        tracked=_raw(exported.policy),
        shard_list=exported.shard_list,
        states={
            state.shard_id: msgspec.Raw(encode_shard_state(state, state.shard_id)[0])
            for state in exported.states
        },
    )
    return msgspec.json.format(encode_unchecked(document), indent=1) + b"\n"


def decode_export(data: bytes, name: str) -> ExportedApplication:
    """What `encode_export` wrote. `name`: the file, for errors. Raises `StoredDataError` for
    damaged data and for a newer format.
    """
    document = decode(data, _StoredCheckpointExport, name, newest_format=EXPORT_FORMAT)
    if document.format < 1:
        raise StoredDataError(
            f"the exported file {name} has format {document.format}, which no version of "
            "kinesis-spout writes",
            "export again",
        )
    return ExportedApplication(
        application=document.application,
        exported_ms=document.exported_ms,
        stream=document.stream,
        start=None
        if isinstance(document.start, msgspec.UnsetType)
        else decode(bytes(document.start), StartPin, f"{name}: start"),
        policy=None
        if isinstance(document.tracked, msgspec.UnsetType)
        else decode(bytes(document.tracked), OutcomePolicy, f"{name}: tracked"),
        shard_list=document.shard_list,
        states=tuple(
            decode_shard_state(bytes(raw), shard_id, f"{name}: {shard_id}")
            for shard_id, raw in document.states.items()
        ),
    )


def _raw(value: msgspec.Struct | None) -> msgspec.Raw | msgspec.UnsetType:
    return msgspec.UNSET if value is None else msgspec.Raw(encode_unchecked(value))
