"""What goes wrong around a spout, and what it makes of it: steps of its threads are taken one by one."""

from __future__ import annotations

import hashlib

import pytest

from kinesis_spout.aggregates import AggregatedRecordError
from scheme.record import KPL_MAGIC
from tests.support.breaking_tree import breaking_store
from tests.support.stepped_spout import APPLICATION, STREAM, SpoutUnderTest, drain

MESSAGE = b"\x0a\x00"
AGGREGATE = KPL_MAGIC + MESSAGE + hashlib.md5(MESSAGE, usedforsecurity=False).digest()


def test_no_aggregate_is_ever_handed_over_as_a_record_however_often_one_asks() -> None:
    """Nor is a record forgotten that was about to be handed over when the aggregate was found."""
    under_test = SpoutUnderTest()
    under_test.put(1, data=b"before")
    with under_test.fresh() as spout:
        under_test.loops.take("fetch")
        under_test.put(1, data=AGGREGATE)
        under_test.loops.take("fetch")
        for _ in range(3):
            with pytest.raises(AggregatedRecordError):
                drain(spout, under_test.loops)
    assert [state.unresolved_count for state in under_test.states().values()] == [0]


def test_aggregates_are_handed_over_raw_where_that_is_wanted() -> None:
    under_test = SpoutUnderTest()
    under_test.put(1, data=AGGREGATE)
    with under_test.fresh(refuse_aggregated=False) as spout:
        assert [one.data for one in drain(spout, under_test.loops)] == [AGGREGATE]


def test_a_shard_is_laid_down_although_the_answer_to_its_last_commit_was_lost() -> None:
    """The state is stored as finished then, and no later commit has anything to change."""
    under_test = SpoutUnderTest()
    under_test.put(1)
    store, tree = breaking_store(under_test.backend, application=APPLICATION, stream=STREAM)
    with under_test.fresh(store=store) as spout:
        parent = under_test.fake.shards(STREAM)[0].shard_id
        under_test.fake.split(STREAM, parent)
        under_test.clock.advance(10)
        (emission,) = drain(spout, under_test.loops)
        emission.ack()
        tree.break_at(0, after=True)
        under_test.loops.take("keep")
        assert under_test.states()[parent].finished
        tree._writes_left = None
        under_test.loops.take("keep", "keep")
        assert parent not in spout.metrics().shards
        assert len(spout.metrics().shards) == 2


def test_a_shard_without_news_is_not_written_at_every_commit() -> None:
    """That it is still at its tip is worth a write now and then only: with many shards, these would be most of all writes."""
    under_test = SpoutUnderTest(shards=3)
    under_test.put(3)
    store, tree = breaking_store(under_test.backend, application=APPLICATION, stream=STREAM)
    with under_test.fresh(store=store) as spout:
        for emission in drain(spout, under_test.loops):
            emission.ack()
        under_test.loops.take("keep", "fetch", "fetch", "fetch", "keep")
        tree.written.clear()
        for _ in range(10):
            under_test.clock.advance(1)
            under_test.loops.take("fetch", "fetch", "fetch", "keep")
        assert tree.written == []
        under_test.clock.advance(3600)
        under_test.loops.take("fetch", "fetch", "fetch", "keep")
        assert tree.written != []
