"""When records of a shard may have expired before their page came."""

from __future__ import annotations

import pytest

from kinesis_spout.reading.lapse import LapseDetector
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import FIRST_READ_GRACE_MS
from tests.support.spout.spout_pages import page_of

START_MS, RETENTION_MS = 10_000_000, 1_000_000
AFTER = Position.after(SequenceNumber(1))


def detector(position: Position = TRIM_HORIZON) -> LapseDetector:
    return LapseDetector(START_MS, RETENTION_MS, position)


@pytest.mark.parametrize("position", [TRIM_HORIZON, AFTER, SHARD_END])
def test_a_page_that_comes_more_than_the_retention_later_shows_not_all(position: Position) -> None:
    lapse = detector(position)
    lapse.note(page_of([], at_tip=False, time_ms=START_MS + RETENTION_MS))
    assert lapse.lapsed_ms is None
    lapse.note(page_of([], at_tip=False, time_ms=START_MS + RETENTION_MS + 1))
    assert lapse.lapsed_ms == START_MS + RETENTION_MS + 1


def test_between_two_pages_of_a_backlog_the_next_records_may_expire() -> None:
    """Though the shard was known to the application for less than the retention. One that was read
    before is as complete as its state says.
    """
    oldest_ms = START_MS - RETENTION_MS
    lapse = detector()
    lapse.note(page_of([oldest_ms], time_ms=START_MS))
    lapse.note(page_of([], time_ms=START_MS + FIRST_READ_GRACE_MS))
    assert lapse.lapsed_ms is None
    lapse.note(page_of([], time_ms=START_MS + FIRST_READ_GRACE_MS + 1))
    assert lapse.lapsed_ms is not None
    lapse = detector(AFTER)
    lapse.note(page_of([oldest_ms], time_ms=START_MS))
    lapse.note(page_of([], time_ms=START_MS + RETENTION_MS))
    assert lapse.lapsed_ms is None


def test_what_was_reported_is_not_found_again() -> None:
    lapse = detector(AFTER)
    late_ms = START_MS + 2 * RETENTION_MS
    lapse.note(page_of([], time_ms=late_ms))
    lapse.excuse(late_ms - RETENTION_MS)
    lapse.note(page_of([], time_ms=late_ms))
    assert lapse.lapsed_ms is None
    lapse.note(page_of([], time_ms=late_ms + 1))
    assert lapse.lapsed_ms == late_ms + 1
