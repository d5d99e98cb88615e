"""When records of a shard may have expired before their page came."""

from __future__ import annotations

import pytest

from kinesis_spout.reading.expiry import ExpiryDetector
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import FIRST_READ_GRACE_MS
from tests.support.spout.spout_pages import page_of

START_MS, RETENTION_MS = 10_000_000, 1_000_000
AFTER = Position.after(SequenceNumber(1))


def detector(position: Position = TRIM_HORIZON) -> ExpiryDetector:
    return ExpiryDetector(START_MS, RETENTION_MS, position)


@pytest.mark.parametrize("position", [TRIM_HORIZON, AFTER, SHARD_END])
def test_a_page_that_comes_more_than_the_retention_later_shows_not_all(position: Position) -> None:
    expiry = detector(position)
    expiry.note(page_of([], at_tip=False, time_ms=START_MS + RETENTION_MS))
    assert expiry.lapsed_ms is None
    expiry.note(page_of([], at_tip=False, time_ms=START_MS + RETENTION_MS + 1))
    assert expiry.lapsed_ms == START_MS + RETENTION_MS + 1


def test_between_two_pages_of_a_backlog_the_next_records_may_expire() -> None:
    """Though the shard was known to the application for less than the retention. One that was read
    before is as complete as its state says.
    """
    oldest_ms = START_MS - RETENTION_MS
    expiry = detector()
    expiry.note(page_of([oldest_ms], time_ms=START_MS))
    expiry.note(page_of([], time_ms=START_MS + FIRST_READ_GRACE_MS))
    assert expiry.lapsed_ms is None
    expiry.note(page_of([], time_ms=START_MS + FIRST_READ_GRACE_MS + 1))
    assert expiry.lapsed_ms is not None
    expiry = detector(AFTER)
    expiry.note(page_of([oldest_ms], time_ms=START_MS))
    expiry.note(page_of([], time_ms=START_MS + RETENTION_MS))
    assert expiry.lapsed_ms is None


def test_what_was_reported_is_not_found_again() -> None:
    expiry = detector(AFTER)
    late_ms = START_MS + 2 * RETENTION_MS
    expiry.note(page_of([], time_ms=late_ms))
    expiry.acknowledge(late_ms - RETENTION_MS)
    expiry.note(page_of([], time_ms=late_ms))
    assert expiry.lapsed_ms is None
    expiry.note(page_of([], time_ms=late_ms + 1))
    assert expiry.lapsed_ms == late_ms + 1
