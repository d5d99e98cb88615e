"""Letters whose payload is an aggregate: readers that unpack get all of it, wherever it is put."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import Row

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.dead_letter.letter import LETTER_COLUMNS
from kinesis_spout.dead_letter.outgoing import payload_records
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import RecordPutter
from spark_job.dead_letter.dead_letter import StreamSink
from tests.support.aggregates.delivered import delivered
from tests.support.aggregates.wire import aggregate_of
from tests.support.kinesis.services import serve
from tests.support.outcomes.letters import Story, gone
from tests.support.outcomes.letters import row_of as letter_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.dead_letter.letter import Letter
    from tests.support.kinesis.services import ServedFake

KEYS = [f"key {number}" for number in range(12)]
INNER = aggregate_of([b"%d" % number for number in range(12)], KEYS)
LETTER = replace(Story().letter(0), partition_key="a")
WHOLE = replace(LETTER, data=INNER, sub_sequence_number=None)
"""Delivered under raw, with the partition key that producers give to every aggregate."""

THIRD = replace(LETTER, message_id="shardId-000000000000:1000.2:4", sub_sequence_number=2)


@pytest.fixture
def served() -> Iterator[ServedFake]:
    with serve() as fake:
        fake.model.create("dead", shards=4)
        yield fake


def put(fake: ServedFake, *letters: Letter) -> list[tuple[str, bytes]]:
    """What readers get of the letters' payloads, as they are put back."""
    putter = RecordPutter(KinesisClient(AwsConfig(**fake.aws), StreamRef("dead")))
    putter.put(record for letter in letters for record in payload_records(letter))
    putter.close()
    return sorted(delivered(fake.model, "dead"))


def test_an_aggregate_is_put_as_its_user_records_and_anything_else_as_it_is(
    served: ServedFake,
) -> None:
    """Each user record is in the shard that owns it. A user record that is an aggregate is one
    record, and so is a damaged one.
    """
    users = [(key, b"%d" % n) for n, key in enumerate(KEYS)]
    others = [replace(LETTER, data=data) for data in (b"plain", INNER[:-1], INNER)]
    found = put(served, WHOLE, *others, replace(THIRD, data=INNER))
    as_it_is = [("a", data) for data in (b"plain", INNER[:-1], INNER, INNER)]
    assert found == sorted([*users, *as_it_is])
    with pytest.raises(ValueError, match="has no payload"):
        payload_records(gone(LETTER))


def test_bare_payloads_on_a_dead_letter_stream_lose_no_user_record(served: ServedFake) -> None:
    sink = StreamSink.of("dead", payload_only=True, aws=served.aws)
    sink.put(map(row_of, [WHOLE, replace(THIRD, data=INNER)]))
    expected = [(key, b"%d" % n) for n, key in enumerate(KEYS)] + [("a", INNER)]
    assert sorted(delivered(served.model, "dead")) == sorted(expected)


def row_of(letter: Letter) -> Row:
    """A row of `with_plain_times`, but for its times, which are not put."""
    known = zip(LETTER_COLUMNS, letter_row(letter), strict=True)
    return Row(**{name: None if isinstance(value, datetime) else value for name, value in known})
