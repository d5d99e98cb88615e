"""What is put on a stream of a letter: its payload alone, so that readers which unpack aggregates
get all of it, or all of the letter as JSON.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import TYPE_CHECKING

from kinesis_spout.dead_letter.letter import line_of
from kinesis_spout.service.record_putter import OutgoingRecord
from scheme.record import is_kpl_aggregate

if TYPE_CHECKING:
    from kinesis_spout.dead_letter.letter import Letter

# Payload bytes in one JSON object. In base64 and with the other members it stays below 1 MiB.
PART_BYTES = 700_000


def payload_records(letter: Letter) -> list[OutgoingRecord]:
    """The records to put of a letter that has a payload: one, or the user records of an aggregate.

    The service requires a partition key, unless the stream's record distribution strategy is AUTO.
    A letter without one is put under its message id.

    An aggregate under the letter's key would come to a shard that owns few of its user records, and
    readers leave out the others. So it is put as its user records, unless the letter says that it
    was one itself, in another aggregate: then it is put as that.
    """
    key, data = letter.partition_key or letter.message_id, letter.data
    if data is None:
        raise ValueError(
            f"the dead letter of {letter.message_id} has no payload, so it cannot be "
            "put on a stream"
        )
    if not is_kpl_aggregate(data):
        return [OutgoingRecord(key, data)]
    # protobuf is loaded where the first aggregate is met.
    from kinesis_spout.aggregation.packing import alone, unpacked  # noqa: PLC0415

    users = unpacked(data) if letter.sub_sequence_number is None else None
    if users is None:
        users = [OutgoingRecord(key, data)]
    return [alone(replace(user, partition_key=user.partition_key or key)) for user in users]


def envelopes(letter: Letter) -> list[bytes]:
    """The letter as JSON objects, several if its payload needs that.

    Several objects are numbered by their members `part` (from 1) and `parts`.
    """
    data = letter.data or b""
    starts = range(0, len(data), PART_BYTES)
    if len(starts) <= 1:
        return [line_of(letter)]
    without = replace(letter, data=None)
    return [
        line_of(
            without,
            data=b64encode(data[start : start + PART_BYTES]).decode("ascii"),
            part=number,
            parts=len(starts),
        )
        for number, start in enumerate(starts, start=1)
    ]
