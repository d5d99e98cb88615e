"""Another reader of a consumer is told from a restart by how often a shard is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.reading.shared_consumer import SharedConsumer

if TYPE_CHECKING:
    import pytest


def test_a_shard_that_is_taken_thrice_in_five_minutes_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = SharedConsumer("billing", option="consumer_name")
    for taken_s in (0.0, 10.0):
        shared.note("a", taken_s)
    assert caplog.messages == []
    for taken_s in (300.0, 310.0, 320.0, 330.0):
        shared.note("a", taken_s)
        shared.note("b", taken_s)
    (said,) = caplog.messages
    assert "consumer billing (shard a: 3 times in 300 s)" in said
    assert "consumer_name" in said
    assert "give each application one of its own with consumer_name" in (shared.sentence(600) or "")
    assert shared.sentence(620.0 + 1) is None, "for so long it was not taken"


def test_shards_that_are_taken_now_and_then_or_each_once_are_not_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By restarts, or when shards move to other tasks of the application."""
    shared = SharedConsumer("billing", option="consumer_name")
    for turn in range(9):
        shared.note("a", turn * 200.0)
    for shard in range(100):
        shared.note(f"shard {shard}", 10_000.0)
    assert caplog.messages == []
