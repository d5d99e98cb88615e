"""Lines become records, and what cannot be put is found and named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.cli.produce import LinePutter
from kinesis_spout.errors import AccessDeniedError, KinesisError, RequestRefusedError
from kinesis_spout.service.record_putter import OutgoingRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    assert said == [f"line {number} is refused: the service says no" for number in (14, 18)]
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
