"""A payload of the user that cannot be put."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.setting import DrillError
from kinesis_spout.drills.stream import OwnStream, Producers

if TYPE_CHECKING:
    from collections.abc import Callable


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

    stream = OwnStream("drill")
    stream.fake.create("drill", shards=2)
    producers = Producers(stream, records_per_s=1_000, seed=1, payload=noticed)
    producers.start()
    assert called.wait(30)
    producers.stop()
    with pytest.raises(DrillError, match=f"the payload of 'key-[0-9]+', [0-9]+ {why}"):
        producers.check()
