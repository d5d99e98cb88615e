"""The ledger of a redrive: which letters were put back, in parquet files in `_redriven`.

An entry names a record by its stream, shard and sequence number, regardless of the attempt of its
letter. It also names the target stream, so a trial on another stream does not keep a record from
its own stream. `isWhole` tells an aggregate that was delivered whole from its first user record,
which has the same numbers. It is null in an entry of an earlier version, which may be of either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from kinesis_spout.dead_letter.letter import Letter

# Spark's readers skip names that begin with an underscore, but warn if the path that they are given
# ends in one: hence the folder inside.
LEDGER_FOLDER = "_redriven/ledger"
LEDGER_DDL = (
    "target STRING, streamName STRING, shardId STRING, sequenceNumber STRING, "
    "subSequenceNumber BIGINT, messageId STRING, redrivenAt TIMESTAMP, isWhole BOOLEAN"
)
_TYPES = {"STRING": pa.string(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_()}
_TYPES["TIMESTAMP"] = pa.timestamp("us", tz="UTC")
_COLUMNS = [column.split() for column in LEDGER_DDL.split(", ")]
LEDGER_SCHEMA = pa.schema([(name, _TYPES[kind]) for name, kind in _COLUMNS])
LEDGER_IDENTITY = (*LEDGER_SCHEMA.names[:5], "isWhole")

# Target stream, stream, shard, sequence number, sub-sequence number, and whether it is an aggregate
# that was delivered whole.
Identity = tuple[str, str, str, str, int, bool]


class PutBefore:
    """The records that were put.

    An entry that does not say whether its record is whole counts for the letter of these numbers.
    Where the files have both kinds it counts for none of them: a record is put twice rather than
    never.
    """

    def __init__(self, entries: Iterable[tuple[Any, ...]]) -> None:
        known = set(entries)
        self._decided = {entry for entry in known if entry[-1] is not None}
        self._undecided = {entry[:-1] for entry in known if entry[-1] is None}
        self._kinds: dict[tuple[Any, ...], set[bool]] = {one[1:]: set() for one in self._undecided}

    def see(self, record: Identity) -> None:
        """A letter in the files, selected or not: what an entry means must not depend on that."""
        if (kinds := self._kinds.get(record[1:-1])) is not None:
            kinds.add(record[-1])

    def has(self, record: Identity) -> bool:
        return record in self._decided or (
            record[:-1] in self._undecided and len(self._kinds[record[1:-1]]) <= 1
        )


def identity_of(target: str, letter: Letter) -> Identity:
    return (
        target,
        letter.stream_name,
        letter.shard_id,
        letter.sequence_number,
        letter.sub_sequence_number or 0,
        letter.is_whole,
    )


def entry_of(target: str, letter: Letter, put_at: datetime) -> tuple[Any, ...]:
    """In the columns of `LEDGER_DDL`."""
    *numbers, is_whole = identity_of(target, letter)
    return (*numbers, letter.message_id, put_at, is_whole)
