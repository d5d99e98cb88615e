"""Which records go into a request, and what a refusal holds back."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.service.put_records_wire import PutResult
from kinesis_spout.service.record_putter import (
    REQUEST_BYTES,
    OutgoingRecord,
)
from kinesis_spout.service.shard_info import ShardInfo
from spark_job.sink.put_queue import OpenShards, PutQueue, Waiting, is_elsewhere
from state.sequence_number import SequenceNumber

END = 2**128
THROTTLED = "ProvisionedThroughputExceededException"


def shards(count: int) -> OpenShards:
    """Shards 0, 1, ... of equal hash key ranges."""
    size = END // count
    return OpenShards(
        ShardInfo(
            shard_id=str(index),
            parents=(),
            hash_key_range=(index * size, (index + 1) * size - 1),
            starting_sequence=SequenceNumber(1),
            ending_sequence=None,
        )
        for index in range(count)
    )


def record(shard: int, data: bytes = b"") -> OutgoingRecord:
    """A record whose explicit hash key is in this shard of four."""
    return OutgoingRecord("k", data, str(shard * (END // 4)))


def queue_of(*records: OutgoingRecord) -> PutQueue:
    queue = PutQueue(shards(4), by_key=False)
    for one in records:
        queue.add(one)
    return queue


def accepted(request: list[Waiting]) -> list[PutResult]:
    return [PutResult(one.shard_id, None) for one in request]


def datas(request: list[Waiting]) -> list[bytes]:
    return [one.record.data for one in request]


def test_a_record_goes_to_the_shard_of_its_hash_key() -> None:
    """The MD5 of the key as the API reference defines it: of `a` it begins with 0cc1, of `b` with
    92eb, which is in the upper half.
    """
    halves = shards(2)
    assert [halves.of(OutgoingRecord(key, b"")) for key in "ab"] == ["0", "1"]
    assert halves.of(OutgoingRecord("a", b"", str(END - 1))) == "1"
    assert OpenShards(()).of(OutgoingRecord("a", b"")) == ""


def test_a_request_has_at_most_500_records_and_5_mib() -> None:
    for count, size, taken in ((501, 0, [500, 1]), (3, REQUEST_BYTES // 2, [1, 1, 1])):
        queue = queue_of(*(record(index % 4, b"x" * size) for index in range(count)))
        assert [len(queue.take(0)) for _ in range(4)] == [*taken, 0, 0, 0][:4]


def test_a_refused_record_waits_in_its_place_and_holds_back_no_other_shard() -> None:
    queue = queue_of(record(0, data=b"a"), record(0, data=b"b"), record(1, data=b"c"))
    request = queue.take(0)
    assert queue.on_answer(request, [PutResult(None, THROTTLED), *accepted(request[1:])], 0.0) == 1
    queue.add(record(0, data=b"d"))
    queue.add(record(1, data=b"e"))
    assert datas(queue.take(0.01)) == [b"e"]
    assert queue.take(0.05) == []
    ready_s = queue.ready_at_s(0.05)
    assert ready_s is not None
    assert 0.1 <= ready_s < 0.2
    assert datas(queue.take(0.2)) == [b"a", b"d"]
    assert len(queue) == 3


@pytest.mark.parametrize("by_key", [False, True])
@given(seed=st.integers(0, 2**32), count=st.integers(0, 300))
def test_every_record_is_accepted_once_and_a_keys_in_their_order(
    by_key: bool,  # noqa: FBT001
    seed: int,
    count: int,
) -> None:
    """Whatever is refused, and in whatever order the requests are answered."""
    random = Random(seed)  # noqa: S311
    queue = PutQueue(shards(3), by_key=by_key)
    put = [OutgoingRecord(random.choice("abcdef"), b"%d" % number, None) for number in range(count)]
    taken: dict[str, list[int]] = defaultdict(list)
    in_flight: list[list[Waiting]] = []
    left, now_s = list(put), 0.0
    while left or len(queue):
        for _ in range(random.randrange(40)):
            if left:
                queue.add(left.pop(0))
        if request := queue.take(now_s):
            in_flight.append(request)
        now_s += random.random()
        if in_flight and random.random() < 0.7:
            request = in_flight.pop(random.randrange(len(in_flight)))
            results = [
                PutResult(None, THROTTLED) if random.random() < 0.3 else PutResult("0", None)
                for _ in request
            ]
            for waiting, result in zip(request, results, strict=True):
                if result.error_code is None:
                    taken[waiting.record.partition_key].append(int(waiting.record.data))
            queue.on_answer(request, results, now_s)
    assert sorted(number for numbers in taken.values() for number in numbers) == list(range(count))
    assert queue.waiting_bytes == 0
    if by_key:
        assert all(numbers == sorted(numbers) for numbers in taken.values())


def test_a_record_in_another_shard_than_expected_shows_a_reshard() -> None:
    queue = queue_of(record(0), record(1))
    request = queue.take(0)
    for shards_put, shown in (("01", False), (None, False), (["0", "17"], True)):
        results = [PutResult(one, None) for one in shards_put or (None, None)]
        assert is_elsewhere(request, results) is shown
