"""Producers number the records of each key in order, and their error is not lost."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.world.kinesis import OwnStream
from kinesis_spout.drills.world.producers import KEYS, Producers

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def test_an_error_of_a_put_is_raised_in_the_thread_of_the_drill() -> None:
    stream = ManyPuts(KEYS, breaks=True)
    producers = Producers(stream, records_per_s=1_000, seed=1)
    producers.start()
    assert stream.reached.wait(30)
    producers.stop()
    with pytest.raises(ConnectionError, match="the service is away"):
        producers.check()
