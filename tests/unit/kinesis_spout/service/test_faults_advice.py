"""The advice of an error is about the call that failed."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import RequestRefusedError, ThrottledError
from kinesis_spout.service.faults import meaning_of


@pytest.mark.parametrize(
    ("operation", "about"),
    [
        ("GetRecords", "lower the read rate"),
        ("PutRecords", "put fewer records"),
        ("ListShards", "list them less often"),
        ("DescribeStreamSummary", "list them less often"),
    ],
)
def test_the_advice_of_a_throttled_call_is_about_that_call(operation: str, about: str) -> None:
    kind, advice = meaning_of("LimitExceededException", 400, operation=operation)
    assert kind is ThrottledError
    assert about in advice


def test_the_advice_about_a_refused_position_says_how_to_move_a_stored_one() -> None:
    kind, advice = meaning_of("InvalidArgumentException", 400, operation="GetShardIterator")
    assert kind is RequestRefusedError
    assert "checkpoint set moves" in advice
