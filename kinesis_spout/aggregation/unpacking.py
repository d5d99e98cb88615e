"""Aggregates in pages of records, unpacked into rows of their user records."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from scheme.record import KPL_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from kinesis_spout.service.shard_info import HashRange


log = logging.getLogger("kinesis_spout")


def has_candidates(records: pa.RecordBatch) -> bool:
    """Whether any record begins with the magic number. All others are certainly plain."""
    return bool(pc.starts_with(records.column("data"), KPL_MAGIC).true_count)


class Unpacker:
    """Unpacks the aggregates of one shard. For one thread.

    `hash_range` is called once, when the first aggregate is met. It may block on the service, and
    returns None where it does not know. A user record whose hash key is not in the range was packed
    for another shard, and a reshard has put its aggregate here. Its producer has put it again, so
    it is left out. `left_out` counts these, and the first of them are logged, as those of `place`;
    without a `place` nothing is logged.

    The KCL leaves all user records of such an aggregate out (`AggregatorUtil.deaggregate`), and the
    KPL puts those again that are outside the range (`Retrier::succeed_if_correct_shard`). So this
    leaves out what is put again, and no more.
    """

    def __init__(self, hash_range: Callable[[], HashRange | None], place: str = "") -> None:
        self._hash_range = cache(hash_range)
        self._place = place
        self.left_out = 0

    def unpack(
        self, records: pa.RecordBatch, *, keep_others: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The records with user records in the place of aggregates, in their order.

        `records` has the binary column `data` and the text column `partitionKey`. What an aggregate
        has in other columns, each of its user records has. The batches have the column
        `subSequenceNumber` in addition: counted from 0 in an aggregate, 0 for a plain record. They
        have bounded numbers of rows, and none is empty. Raises what `hash_range` raises.

        With `keep_others` no user record is left out. The batches have the column `IS_OWNED` in
        addition, with it false for those that are left out otherwise.

        Without a record that begins with the magic number, `records` itself is the only batch, and
        has no column in addition.
        """
        if not has_candidates(records):
            yield records
            return
        # numpy and protobuf are loaded where the first aggregate is met.
        from kinesis_spout.aggregation.user_records import batches, unpacked_rows  # noqa: PLC0415

        before = self.left_out
        for part, rows in unpacked_rows(records, self._hash_range):
            kept = rows if keep_others else rows.owned()
            self.left_out += len(rows.parents) - len(kept.parents)
            yield from batches(part, kept, with_owned=keep_others)
        if self._place and self.left_out and not before:
            log.warning(
                "%s: user records of aggregates are dropped when their hash keys belong to "
                "other shards, because the producer puts them on those shards again (%d so far; "
                "later ones are not logged)",
                self._place,
                self.left_out,
            )
