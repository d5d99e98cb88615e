"""Records are put in requests within the service's limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.service.record_putter import (
    REQUEST_BYTES,
    REQUEST_RECORDS,
    OutgoingRecord,
    in_requests,
)

SIZES = st.lists(
    st.sampled_from([0, 1, 100, 1_048_576, REQUEST_BYTES - 1, REQUEST_BYTES]), max_size=40
)


def record(size: int) -> OutgoingRecord:
    return OutgoingRecord("k", b"x" * size)


@given(SIZES)
def test_no_request_is_too_large_unless_one_record_is(sizes: list[int]) -> None:
    """And every record is in one of them, in order."""
    records = [record(size) for size in sizes]
    requests = list(in_requests(records))
    assert [one for request in requests for one in request] == records
    for request in requests:
        assert len(request) == 1 or sum(one.size_bytes for one in request) <= REQUEST_BYTES


def test_a_request_has_at_most_500_records() -> None:
    """A key counts by its bytes, and a record shows nothing of itself."""
    assert OutgoingRecord("\u20ac", b"12").size_bytes == 5
    assert repr(OutgoingRecord("customer", b"card")) == "OutgoingRecord()"
    assert [len(request) for request in in_requests(record(1) for _ in range(1001))] == [
        REQUEST_RECORDS,
        REQUEST_RECORDS,
        1,
    ]
