"""Lines become records and aggregates, also while the stream is resharded, and what cannot be put
is found and named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.aggregation.packing import PackedRecord, Packer, unpacked
from kinesis_spout.cli.produce import AggregatingPutter, LinePutter
from kinesis_spout.errors import AccessDeniedError, KinesisError, RequestRefusedError
from kinesis_spout.service.record_putter import OutgoingRecord
from kinesis_spout.service.shard_info import HASH_KEYS
from tests.support.aggregates.wire import aggregate_of
from tests.support.state.shard_values import LEFT, RIGHT, shard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kinesis_spout.service.record_putter import Accepted


class Refusing:
    """A putter whose service takes the other records of a request, and refuses `bad` for good."""

    def __init__(self, error: type[KinesisError]) -> None:
        self.put_lines: list[bytes] = []
        self._error = error

    def put(self, records: Sequence[OutgoingRecord], accepted: Accepted) -> int:
        for record in records:
            if record.data != b"bad":
                self.put_lines.append(record.data)
                accepted(record, "shard")
        if any(record.data == b"bad" for record in records):
            raise self._error("the service says no")
        return len(records)


def test_records_that_were_put_beside_a_refused_one_are_not_put_again() -> None:
    """The outcome of each record is known, so only what was not accepted is tried again."""
    lines = [b"%d" % number for number in range(20)]
    lines[13] = lines[17] = b"bad"
    putter: Any = Refusing(RequestRefusedError)
    said: list[str] = []
    work = LinePutter(putter.put, lambda line: OutgoingRecord("k", line), said.append)
    work.put(lines)
    assert said == [
        f"line {number}: Kinesis refuses the record: the service says no" for number in (14, 18)
    ]
    assert sorted(putter.put_lines) == sorted(line for line in lines if line != b"bad")
    assert (work.put_count, work.refused_count) == (18, 2)


def test_only_the_lines_without_an_outcome_are_in_doubt() -> None:
    """Equal lines are told apart: two of them are put, and the third is not."""
    lines = [b"same", b"bad", b"", b"same", b"bad"]
    putter: Any = Refusing(AccessDeniedError)
    work = LinePutter(putter.put, lambda line: OutgoingRecord("k", line), lambda _: None)
    with pytest.raises(AccessDeniedError):
        work.put(lines)
    assert (work.put_count, work.unconfirmed) == (2, [2, 5])


HALF, LAST = HASH_KEYS // 2, HASH_KEYS - 1


WHOLE = [shard("parent")]
SPLIT = [
    shard("parent", closed=True),
    shard("left", keys=LEFT),
    shard("right", keys=RIGHT),
]


class Stream:
    """A putter, and the stream behind it. `held`: shard and record, in their order."""

    def __init__(self) -> None:
        self.shards = WHOLE
        self.held: list[tuple[str, OutgoingRecord]] = []

    def put(
        self, records: Iterable[OutgoingRecord], accepted: Accepted = lambda _record, _shard: None
    ) -> int:
        for record in records:
            hash_key = int(record.explicit_hash_key or 0)
            (taken,) = (
                one.shard_id
                for one in self.shards
                if not one.is_closed and one.hash_key_range.owns(hash_key)
            )
            self.held.append((taken, record))
            accepted(record, taken)
        return len(self.held)


def records(*hash_keys: int) -> list[OutgoingRecord]:
    return [OutgoingRecord("k", b"%d" % number, str(key)) for number, key in enumerate(hash_keys)]


class NoMoreError(Exception):
    """The service accepts nothing more."""


class Ending(Stream):
    """A stream that accepts its first aggregate only."""

    def put(
        self, records: Iterable[OutgoingRecord], accepted: Accepted = lambda _record, _shard: None
    ) -> int:
        super().put(list(records)[:1], accepted)
        raise NoMoreError


def test_each_record_of_an_accepted_aggregate_is_reported_before_another_one_fails() -> None:
    """Equal ones, too, and each as the object that the caller gave."""
    stream: Any = Ending()
    stream.shards = SPLIT
    put = [OutgoingRecord("k", b"same", str(key)) for key in (1, 1, LAST, 1, LAST)]
    accepted: list[OutgoingRecord] = []
    with pytest.raises(NoMoreError):
        AggregatingPutter(stream.put, lambda: SPLIT).put(
            put, lambda record, _shard: accepted.append(record)
        )
    assert list(map(id, accepted)) == [id(put[index]) for index in (0, 1, 3)]


def test_what_a_split_has_misplaced_is_put_again_in_its_shard() -> None:
    """Only that: the others are where their readers look for them. Later ones are packed for the
    new shards.
    """
    stream: Any = Stream()
    putter = AggregatingPutter(stream.put, lambda: stream.shards)
    putter.put(records(1, 2))
    stream.shards = SPLIT
    accepted: list[tuple[bytes, str | None]] = []
    put = records(5, LAST, 6, HALF)
    putter.put(put, lambda record, shard_id: accepted.append((record.data, shard_id)))
    assert accepted == [(b"0", "left"), (b"2", "left"), (b"1", "right"), (b"3", "right")]
    misplaced, *again = stream.held[1:]
    assert misplaced[0] == "left"
    assert [(taken, one.data) for taken, one in again] == [("right", b"1"), ("right", b"3")]
    putter.put(records(7, 8, HALF, LAST))
    assert [taken for taken, _ in stream.held[4:]] == ["left", "right"]


def test_a_record_that_is_an_aggregate_is_put_again_as_the_only_one_of_another() -> None:
    """As it is, readers would unpack it. Nobody puts that one again, wherever it comes to."""
    stream: Any = Stream()
    putter = AggregatingPutter(stream.put, lambda: WHOLE)
    putter.put(records(1))
    stream.shards = SPLIT
    inner = aggregate_of([b"a", b"b"])
    putter.put([*records(5), OutgoingRecord("k", inner, str(LAST))])
    assert [taken for taken, _ in stream.held[1:]] == ["left", "left", "right"]
    again = stream.held[3][1]
    assert again.explicit_hash_key == str(LAST)
    assert unpacked(again.data) == [OutgoingRecord("k", inner, str(LAST))]


def test_a_record_alone_is_never_misplaced() -> None:
    """It is addressed by its own hash key, also where its data is an aggregate. Put again while its
    shard is not listed yet, it would be put for ever.
    """
    packer = Packer(WHOLE)
    packer.add(OutgoingRecord("k", aggregate_of([b"a", b"b"]), str(LAST)))
    (packed,) = packer.flush()
    assert isinstance(packed, PackedRecord)
    assert packer.strays(packed, "right") == packer.strays(packed, None) == []
