"""A spout that ends: at a time, after a number of records, or with its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing.service import requests
from state.errors import StreamMismatchError
from state.retry_policy import RetryPolicy
from tests.support.spout.spouts import spout_on

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake

PARENT, OTHER, CHILD = "shardId-000000000000", "shardId-000000000001", "shardId-000000000002"


def put(fake: ServedFake, prefix: str, count: int, *, in_s: float = 0.0) -> list[str]:
    """Put records on all shards; they arrive `in_s` seconds from now."""
    texts = [f"{prefix} {number}" for number in range(count)]
    for text in texts:
        fake.model.put(
            "orders", text, text.encode(), arrival_ms=fake.model.clock.now_ms() + round(in_s * 1000)
        )
    return texts


def read(fake: ServedFake, **settings: Any) -> list[str]:
    """The emissions until the spout has ended; all of them are acked."""
    texts = []
    with spout_on(fake, **settings) as spout:
        for emission in spout.emissions():
            texts.append(emission.data.decode())
            emission.ack()
        assert spout.has_ended
    return texts


def test_now_is_what_was_there_when_the_spout_was_opened(orders: ServedFake) -> None:
    """Over a split, and without later records. A shard that is empty, or has later records only, is
    done too.
    """
    early = put(orders, "before", 40)
    orders.model.split("orders", PARENT)
    early += put(orders, "after", 40)
    put(orders, "late", 40, in_s=60)
    assert sorted(read(orders, until="now")) == sorted(early)


def test_after_so_many_records_only_their_retries_come(orders: ServedFake) -> None:
    """The first record is retried before others are there: a retry does not count."""
    put(orders, "first", 1)
    seen = []
    retry = RetryPolicy(retry_limit=3, first_delay_ms=20, max_delay_ms=20)
    with spout_on(orders, max_records=5, retry=retry) as spout:
        for emission in spout.emissions():
            seen.append((emission.data, emission.attempt))
            emission.ack() if emission.attempt == 2 else emission.fail("not yet")
            if len(seen) == 2:
                put(orders, "record", 40)
    assert sorted(attempt for _, attempt in seen) == [1] * 5 + [2] * 5
    assert len({data for data, _ in seen}) == 5


def test_only_the_shards_that_were_named_are_read(orders: ServedFake) -> None:
    """A child among them does not wait for a parent that was not named; a closed shard is read to
    its end, without its children.
    """
    put(orders, "before", 40)
    orders.model.split("orders", PARENT)
    put(orders, "after", 40)
    held = {
        shard: [record.data.decode() for record in orders.model.records("orders", shard)]
        for shard in (PARENT, OTHER, CHILD)
    }
    assert all(held.values())
    assert read(orders, shards=(PARENT,)) == held[PARENT]
    assert read(orders, shards=(CHILD,), until="now") == held[CHILD]
    both = read(orders, shards=(PARENT, CHILD), until="now")
    assert both == held[PARENT] + held[CHILD]


def test_a_spout_without_an_application_names_no_command_when_its_stream_was_created_again(
    orders: ServedFake,
) -> None:
    """No command can remove the state of such a spout."""
    model = orders.model
    with spout_on(orders, shard_refresh_interval_s=0.1) as spout:
        with model.lock:
            model.delete_stream(requests.DeleteStream(stream_name="orders"))
        model.create("orders", shards=2)
        with pytest.raises(StreamMismatchError, match="deleted and created again") as refused:
            list(spout.emissions())
    assert "start the program again" in refused.value.remedy
    assert not {"reset", "application"} & set(str(refused.value).split())
