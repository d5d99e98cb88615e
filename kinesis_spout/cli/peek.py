"""`kinesis-spout peek`: shows one record of a stream, and its status in an application."""

from collections.abc import Iterator
from typing import Any

import typer

from kinesis_spout.checkpoints.record import (
    Peeked,
    PeekedRecord,
    RecordStatus,
    peek_record,
    status_of,
)
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Operation, command, reason_text
from kinesis_spout.cli.record_lines import decoded_by, json_text, payload_field
from kinesis_spout.cli.shared_options import (
    argument,
    scheme_flag,
    shard_id_of,
    usage_errors,
)
from kinesis_spout.config import did_you_mean
from kinesis_spout.inspection.wording import visible
from scheme.errors import MalformedRecordError
from scheme.record import Record
from scheme.record_scheme import RecordScheme
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState

MAX_SHOWN = 2_000  # characters of data; with --json all


@command("optional", shows=True)
def peek(
    op: Operation,
    shard: str = argument(
        "Shard, by id (shardId-000000000012) or by number (12).", "SHARD", parser=shard_id_of
    ),
    sequence: SequenceNumber = argument(
        "The record's sequence number; SEQUENCE.SUB for a user record of an aggregate.",
        "SEQUENCE",
        parser=usage_errors()(SequenceNumber.parse),
    ),
    scheme: Any | None = scheme_flag(),
) -> None:
    """Show a record: its data, its key, its attempts and the reasons for its failures.

    The command only reads, so it may run while the job is running. With
    --application, the command also shows the record's status: acked, unresolved
    (failed or waiting) or not read yet.

    The exit code is 0 if the stream contains the record, 1 if the stream does not
    contain the record, and 3 if Kinesis or ZooKeeper cannot be reached.
    """
    application, state = op.place.application, None
    with op.patience():
        if application:
            stored = op.store.shard_states.load().get(shard)
            state = None if stored is None else stored.state
        listed = {one.shard_id: one for one in op.client.list_shards()}
        if shard not in listed:
            hint = did_you_mean(shard, listed, "`kinesis-spout shards` lists the shards")
            raise CliError(f"the stream does not list shard {shard}", hint)
        found = peek_record(op.client, listed[shard], sequence, op.clock)

    def status(number: SequenceNumber, arrival_ms: int | None) -> dict[str, Any]:
        return _status(number, arrival_ms, state) if application else {}

    if found.record is None:
        records = [{"sequence": str(sequence), "missing": True, **status(sequence, None)}]
    else:
        users = [one for one in found.users if not sequence.sub or one.number == sequence]
        records = [
            {
                "sequence": str(record.number),
                "arrival": None if record.arrival_ms is None else _time(record.arrival_ms),
                "key": record.key,
                **(payload_field(record.data) if scheme is None else _decoded(scheme, record)),
                **status(record.number, record.arrival_ms),
            }
            for record in (users if found.users else [found.record])
        ]
    lines = _lines(found, sequence, records, application, state)
    op.show({"aggregate": bool(found.users), "records": records}, lines)
    if found.record is None:
        raise typer.Exit(1)
    if sequence.sub and not any(user.number == sequence for user in found.users):
        count = len(found.users)
        raise CliError(
            f"record {sequence.whole} has no user record {sequence.sub}",
            f"pass a sub-sequence number from 0 to {count - 1}"
            if count
            else "omit the sub-sequence number, because the record is not an aggregate",
        )


def _status(
    number: SequenceNumber, arrival_ms: int | None, state: ShardState | None
) -> dict[str, Any]:
    if state is None:
        return {"standing": RecordStatus.UNREAD.value}
    status, record = status_of(state, number, arrival_ms)
    if record is None:
        return {"standing": status.value}
    return {
        "standing": status.value,
        "attempts": record.attempts,
        "due": _time(record.due_ms),
        "firstFailure": _time(record.first_failure_ms),
        "lastFailure": _time(record.last_failure_ms),
        "reason": record.reason,
        "blocked": record.blocked,
        "rejected": record.rejected,
        "range": {"first": str(record.first), "last": str(record.last), "count": record.count},
    }


def _lines(
    found: Peeked,
    number: SequenceNumber,
    records: list[dict[str, Any]],
    application: str,
    state: ShardState | None,
) -> Iterator[str]:
    if found.record is None:
        yield f"the shard does not contain record {number.whole}; the record may have expired"
        if found.next_number is not None:
            yield f"the shard's next record is {found.next_number}"
    elif found.users:
        yield f"record {number.whole} is an aggregate of {len(found.users)} user records"
    for record in records:
        if found.record is not None:
            yield record["sequence"]
            yield f"  arrived  {record['arrival'] or 'unknown'}"
            yield f"  key      {'none' if record['key'] is None else visible(record['key'])}"
            for name in ("value", "rows", "malformed"):
                if name in record:
                    yield f"  {name:<8} {_cut(visible(json_text(record[name])))}"
            if "dataBase64" in record:
                yield f"  data     {_cut(record['dataBase64'])}"
                yield "           (in base64)"
            elif "data" in record:
                yield f"  data     {_cut(visible(record['data']))}"
        if application and state is None:
            yield (
                f"  {application}: not read yet, because the application has no state for the shard"
            )
        elif application:
            # The number of another shard lies before the position as well.
            is_sure = record.get("arrival") is not None or "range" in record
            doubt = "" if is_sure else " (if the record belongs to this shard)"
            yield f"  {application}: {record['standing']}{doubt}"
            yield from _failures(record)


def _failures(record: dict[str, Any]) -> Iterator[str]:
    if (together := record.get("range")) is None:
        return
    if record["standing"] == RecordStatus.UNKNOWN:
        ends = f"from {together['first']} to {together['last']}"
        yield f"    the record belongs to a range of {together['count']} records {ends}"
    yield f"    attempts {record['attempts']}, due {record['due']}"
    yield f"    first failure {record['firstFailure']}, last failure {record['lastFailure']}"
    yield f"    reason: {reason_text(record['reason'])}"
    if record["blocked"]:
        yield "    the record has not been delivered: it is waiting for an earlier record"
    if record["rejected"]:
        yield "    the record is no longer retried, but is not dead-lettered yet"


def _decoded(scheme: RecordScheme, record: PeekedRecord) -> dict[str, Any]:
    delivered = Record(
        stream_name="",
        shard_id="",
        sequence_number=str(record.number.sequence),
        partition_key=record.key,
        data=record.data,
        approximate_arrival_ms=record.arrival_ms or 0,
        sub_sequence_number=record.number.sub,
    )
    try:
        return decoded_by(scheme)(scheme.decode(delivered))
    except MalformedRecordError as exc:
        return {"malformed": exc.reason, **payload_field(record.data)}


def _cut(text: str) -> str:
    more = len(text) - MAX_SHOWN
    return (
        text
        if more <= 0
        else f"{text[:MAX_SHOWN]} ... ({more} more characters; pass --json to see all)"
    )


def _time(moment_ms: int | None) -> str:
    return "unknown" if moment_ms is None else str(Position.at_timestamp(moment_ms))
