"""Lines become records, and what cannot be put is found and named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.cli.produce import LinePutter
from kinesis_spout.errors import RequestRefusedError
from kinesis_spout.service.record_putter import OutgoingRecord

if TYPE_CHECKING:
    from collections.abc import Sequence


class Refusing:
    """A putter whose service refuses each request with a record `bad`, as a whole."""

    def __init__(self) -> None:
        self.put_lines: list[bytes] = []

    def put(self, records: Sequence[OutgoingRecord]) -> int:
        if any(record.data == b"bad" for record in records):
            raise RequestRefusedError("the service says no")
        self.put_lines += [record.data for record in records]
        return len(records)


def test_a_record_that_the_service_refuses_is_found_among_the_others() -> None:
    """An older endpoint, say, that takes 1 MiB."""
    lines = [b"%d" % number for number in range(20)]
    lines[13] = lines[17] = b"bad"
    putter: Any = Refusing()
    said: list[str] = []
    LinePutter(putter.put, lambda line: OutgoingRecord("k", line), said.append).put(lines)
    assert said == [f"line {number} is refused: the service says no" for number in (14, 18)]
    assert putter.put_lines == [line for line in lines if line != b"bad"]
