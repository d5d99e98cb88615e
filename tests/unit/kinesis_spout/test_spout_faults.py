"""What goes wrong around a spout, and what it makes of it: steps of its threads are taken one by one."""

from __future__ import annotations

import hashlib

import pytest

from kinesis_spout.aggregates import AggregatedRecordError
from scheme.record import KPL_MAGIC
from tests.support.stepped_spout import SpoutUnderTest, drain

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
