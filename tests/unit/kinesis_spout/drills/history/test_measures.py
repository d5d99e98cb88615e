"""Figures of the short history, and of what is added to it, to the second."""

from __future__ import annotations

import pytest

from kinesis_spout.drills.history.events import History, Put, Step
from kinesis_spout.drills.history.measures import (
    deliveries_s,
    recoveries_s,
)
from tests.support.drills.short_history import (
    KEY,
    SECOND,
    SHARD,
    S,
    good,
    told,
)


def test_a_record_waits_from_its_put_to_its_first_delivery() -> None:
    """What comes again does not count."""
    history = good()
    history.puts = [put._replace(at_ns=put.number * S) for put in history.puts]
    assert deliveries_s(history) == [1.0, 2.0, 3.0, 6.0]


def with_record_4(put_s: float, *, run: str = SECOND) -> History:
    """It is acked by the successor, or by another process, at 31 s."""
    history = good()
    history.puts = [*history.puts, Put(KEY, 4, SHARD, 104, round(put_s * S))]
    lines = [told(30, Step.GOT, 4, run), told(31, Step.ACK, 4, run)]
    history.told = [*history.told, *lines]
    history.tasks |= {"other": 1}
    return history


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        (good(), []),
        (with_record_4(13), [17.0]),
        (with_record_4(14.5), []),
        (with_record_4(13, run="other"), []),
    ],
    ids=["all was done", "due", "put after the fault", "of another task"],
)
def test_a_fault_is_recovered_from_at_the_first_new_outcome_of_what_was_due(
    history: History, expected: list[float]
) -> None:
    """The kill ended at 14 s. Record 3, which comes again, has had its outcome before."""
    assert list(recoveries_s(history).values()) == expected


def test_a_record_that_waits_for_its_retry_is_not_due() -> None:
    """It is once it was delivered again."""
    history = with_record_4(1)
    tried = [told(2.2, Step.GOT, 4), told(2.4, Step.FAIL, 4)]
    history.told = sorted([*history.told, *tried], key=lambda one: one.at_ns)
    assert recoveries_s(history) == {}
    again = [*history.told, told(13, Step.GOT, 4)]
    history.told = sorted(again, key=lambda one: one.at_ns)
    assert list(recoveries_s(history).values()) == [17.0]
