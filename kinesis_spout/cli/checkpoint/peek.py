"""`kinesis-spout peek`: shows one record of a stream, and how an application stands to it."""

import json
from base64 import b64encode
from typing import Annotated, Any

import typer

from kinesis_spout.checkpoints.record import Peeked, PeekedRecord, peek_record
from kinesis_spout.checkpoints.standing import RecordStanding, Standing, standing_of
from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.printing import printable, say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Place, operators_command, takes_place
from kinesis_spout.cli.shared_options import shard_id_of, usage_errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import nearest_name
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.shard_info import ShardInfo
from state.position import Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState

MAX_SHOWN = 2_000  # characters of data; with --json all


@takes_place(application="optional")
def peek(
    ctx: typer.Context,
    shard: Annotated[str, typer.Argument(metavar="SHARD", help="The id of the shard.")],
    sequence: Annotated[
        str,
        typer.Argument(
            metavar="SEQUENCE",
            help="The record's sequence number; SEQUENCE.SUB for a user record of an aggregate.",
        ),
    ],
    *,
    place: Place,
    as_json: places.AsJson = False,
) -> None:
    """Show a record: its data, its key, its attempts and why they failed.

    It only reads, so it may run beside the job. With --application it says whether
    the record is acked, unresolved or not read yet.

    Exit codes: 0 the record is there, 1 it is not, 3 a service cannot be reached.
    """
    application = place.application or None
    with usage_errors("SEQUENCE"):
        number = SequenceNumber.parse(sequence)
    shard = shard_id_of(shard)
    with operators_command(ctx) as stack:
        client = place.client(stack)
        with place.patience(client):
            state = None
            if application is not None:
                stored = place.store(stack).shard_states.load().get(shard)
                state = None if stored is None else stored.state
            found = peek_record(client, _listed(client, shard), number, SystemClock())
        if as_json:
            say(json.dumps(_as_json(found, number, application, state), indent=2))
        else:
            for line in _lines(found, number, application, state):
                say(line)
        if found.record is None:
            raise typer.Exit(1)
        if number.sub and not any(user.number == number for user in found.users):
            raise CliError(
                f"record {number.whole} has {len(found.users)} user records, and none is number "
                f"{number.sub}"
            )


def _listed(client: KinesisClient, shard_id: str) -> ShardInfo:
    listed = {shard.shard_id: shard for shard in client.list_shards()}
    if shard_id not in listed:
        nearest = nearest_name(shard_id, listed)
        hint = f"did you mean {nearest}?" if nearest else "kinesis-spout shards lists them"
        raise CliError(f"the service lists no shard {shard_id}; {hint}")
    return listed[shard_id]


def _shown(found: Peeked, number: SequenceNumber) -> list[PeekedRecord]:
    """The records to show: the one that was asked for, or all user records of an aggregate."""
    if found.record is None:
        return []
    if not found.users:
        return [found.record]
    return [user for user in found.users if not number.sub or user.number == number]


def _lines(
    found: Peeked, number: SequenceNumber, application: str | None, state: ShardState | None
) -> list[str]:
    lines = []
    if found.record is None:
        after = "" if found.next_number is None else f"; the next record is {found.next_number}"
        lines = [f"the shard has no record {number.whole} (any more){after}"]
    elif found.users:
        lines = [f"record {number.whole} is an aggregate of {len(found.users)} user records"]
    for record in _shown(found, number):
        text, in_base64 = _data(record.data)
        lines += [
            f"{record.number}",
            f"  arrived  {_time(record.arrival_ms)}",
            f"  key      {'none' if record.key is None else printable(record.key)}",
            f"  data     {_cut(in_base64 if text is None else printable(text))}",
            *(["           (in base64)"] if text is None else []),
            *_standing_lines(record.number, record.arrival_ms, application, state),
        ]
    if found.record is None:
        lines += _standing_lines(number, None, application, state)
    return lines


def _standing_lines(
    number: SequenceNumber,
    arrival_ms: int | None,
    application: str | None,
    state: ShardState | None,
) -> list[str]:
    if application is None:
        return []
    if state is None:
        return [f"  {application}: has no state of the shard, so it is not read yet"]
    standing = standing_of(state, number, arrival_ms)
    # The number of another shard lies before the position as well.
    doubt = ", if it was of this shard" if arrival_ms is None and standing.record is None else ""
    lines = [f"  {application}: {standing.standing}{doubt}"]
    record = standing.record
    if record is None:
        return lines
    if standing.standing is Standing.UNKNOWN:
        lines.append(
            f"    one of {record.count} records from {record.first} to {record.last} that are "
            "unresolved together"
        )
    reason = "none was given" if record.reason is None else printable(record.reason)
    return [
        *lines,
        f"    attempts {record.attempts}, due {_time(record.due_ms)}",
        f"    failed first {_time(record.first_failure_ms)}, last {_time(record.last_failure_ms)}",
        f"    reason: {reason}",
        *(["    was not tried: it waits for an earlier record"] if record.blocked else []),
        *(["    may not be tried again: it waits for its dead letter"] if record.rejected else []),
    ]


def _as_json(
    found: Peeked, number: SequenceNumber, application: str | None, state: ShardState | None
) -> dict[str, Any]:
    records = [
        {
            "sequence": str(record.number),
            "arrival": None if record.arrival_ms is None else _time(record.arrival_ms),
            "key": record.key,
            **_json_data(record.data),
            **_json_standing(record.number, record.arrival_ms, application, state),
        }
        for record in _shown(found, number)
    ]
    if found.record is None:
        records = [
            {"sequence": str(number), "missing": True}
            | _json_standing(number, None, application, state)
        ]
    return {"aggregate": bool(found.users), "records": records}


def _json_standing(
    number: SequenceNumber,
    arrival_ms: int | None,
    application: str | None,
    state: ShardState | None,
) -> dict[str, Any]:
    if application is None:
        return {}
    standing = (
        RecordStanding(Standing.UNREAD) if state is None else standing_of(state, number, arrival_ms)
    )
    record = standing.record
    if record is None:
        return {"standing": standing.standing.value}
    return {
        "standing": standing.standing.value,
        "attempts": record.attempts,
        "due": _time(record.due_ms),
        "firstFailure": _time(record.first_failure_ms),
        "lastFailure": _time(record.last_failure_ms),
        "reason": record.reason,
        "blocked": record.blocked,
        "rejected": record.rejected,
        "range": {"first": str(record.first), "last": str(record.last), "count": record.count},
    }


def _data(data: bytes) -> tuple[str | None, str]:
    """The payload as text, None if it is not UTF-8; and in base64."""
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return None, b64encode(data).decode()


def _json_data(data: bytes) -> dict[str, str]:
    text, in_base64 = _data(data)
    return {"dataBase64": in_base64} if text is None else {"data": text}


def _cut(text: str) -> str:
    more = len(text) - MAX_SHOWN
    return text if more <= 0 else f"{text[:MAX_SHOWN]} ... {more} characters more, with --json"


def _time(moment_ms: int | None) -> str:
    return "unknown" if moment_ms is None else str(Position.at_timestamp(moment_ms))
