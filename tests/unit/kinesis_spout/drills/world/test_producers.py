"""Producers number the records of each key in order, and their error is not lost."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.world.job import DrillError
from kinesis_spout.drills.world.kinesis import OwnStream
from kinesis_spout.drills.world.producers import KEYS, Producers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ManyPuts(OwnStream):
    """Without its server. `reached` is set at so many records; `breaks`: then it fails."""

    def __init__(self, many: int, *, breaks: bool = False) -> None:
        super().__init__("drill")
        self.fake.create("drill", shards=2)
        self.reached = threading.Event()
        self._left = many
        self._breaks = breaks

    def put(self, records: Sequence[tuple[str, bytes]]) -> list[tuple[str, int]]:
        assert len({key for key, _ in records}) == len(records)
        self._left -= len(records)
        if self._left <= 0:
            self.reached.set()
            if self._breaks:
                raise ConnectionError("the service is away")
        return super().put(records)


def test_the_records_of_a_key_are_numbered_in_the_order_of_the_stream() -> None:
    stream = ManyPuts(20 * KEYS)
    producers = Producers(stream, records_per_s=100_000, seed=1)
    producers.start()
    assert stream.reached.wait(30)
    producers.stop()
    producers.check()
    numbers: dict[str, list[int]] = defaultdict(list)
    for put in sorted(producers.puts, key=lambda put: put.sequence):
        numbers[put.key].append(put.number)
    assert len(numbers) == KEYS
    for of_key in numbers.values():
        assert of_key == list(range(of_key[0], of_key[0] + len(of_key)))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (lambda _, number: number // 0, "cannot be made: ZeroDivisionError: "),
        (lambda key, _: key, "is of type str; return bytes"),
    ],
)
def test_a_payload_that_cannot_be_put_ends_the_drill_with_its_reason(
    payload: Callable[[str, int], bytes], why: str
) -> None:
    called = threading.Event()

    def noticed(key: str, number: int) -> bytes:
        called.set()
        return payload(key, number)

    producers = Producers(ManyPuts(0), records_per_s=1_000, seed=1, payload=noticed)
    producers.start()
    assert called.wait(30)
    producers.stop()
    with pytest.raises(DrillError, match=f"the payload of 'key-[0-9]+', [0-9]+ {why}"):
        producers.check()
