"""How much a shard that refuses records is sent."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_job.sink.put_pacer import BYTES_PER_SECOND, RECORDS_PER_SECOND, PutPacer

RECORD_BYTES = 2_000
EVENTS = st.lists(
    st.tuples(st.floats(0, 0.7), st.booleans(), st.integers(1, RECORD_BYTES)), max_size=60
)


@pytest.mark.parametrize("shards", [1, 4])
def test_after_a_refusal_a_shard_pauses_and_then_gets_what_the_service_allows(shards: int) -> None:
    """Shards that cannot be told apart get what it allows to all of them."""
    pacer = PutPacer(shards=shards)
    pacer.on_sent(1_000_000, 1_000_000_000)
    assert pacer.may_send(0.0) == (math.inf, math.inf)
    pacer.on_refused(10.0)
    assert pacer.may_send(10.05) == (0.0, 0.0)
    assert 10.1 <= pacer.ready_at_s(10.05) < 10.11
    records, size_bytes = pacer.may_send(10.3)
    assert math.isclose(records, shards * 0.2 * RECORDS_PER_SECOND)
    assert math.isclose(size_bytes, shards * 0.2 * BYTES_PER_SECOND)


@given(EVENTS)
def test_no_more_is_sent_than_the_service_allows(events: list[tuple[float, bool, int]]) -> None:
    """Half a second's worth in a burst, and what is sent at the time that `ready_at_s` names."""
    pacer = PutPacer()
    pacer.on_refused(0.0)
    now_s, sent_records, sent_bytes = 0.0, 0, 0
    for pause_s, is_refused, size_bytes in events:
        now_s += pause_s
        if is_refused:
            pacer.on_refused(now_s)
        now_s = pacer.ready_at_s(now_s)
        records, may_bytes = pacer.may_send(now_s + 1e-6)
        assert records > 0.99
        assert may_bytes > 0
        count = math.floor(records + 0.01)
        count = min(count, math.ceil(may_bytes / size_bytes))
        pacer.on_sent(count, count * size_bytes)
        sent_records += count
        sent_bytes += count * size_bytes
        assert sent_records <= (now_s + 0.5) * RECORDS_PER_SECOND + 1
        assert sent_bytes <= (now_s + 0.5) * BYTES_PER_SECOND + RECORD_BYTES
