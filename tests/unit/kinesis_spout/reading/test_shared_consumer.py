"""Another reader of a consumer is told from a restart by how often a shard is taken."""

from __future__ import annotations

from kinesis_spout.reading.subscriptions import SharedConsumer


def test_a_shard_that_is_taken_thrice_in_five_minutes_is_told_with_a_remedy() -> None:
    """Restarts, and shards that move to other tasks, take one now and then, or each once."""
    shared = SharedConsumer("billing", option="consumer_name")
    for turn in range(9):
        shared.note("a", turn * 200.0)
    for shard in range(100):
        shared.note(f"shard {shard}", 10_000.0)
    assert shared.conflict(10_000.0) is None
    for taken_s in (20_000.0, 20_010.0, 20_020.0):
        shared.note("a", taken_s)
    error = shared.conflict(20_300.0)
    assert error is not None
    assert "billing" in error.message
    assert error.remedy == "give each application its own consumer with consumer_name"
    assert shared.conflict(20_320.0 + 1) is None, "for so long it was not taken"
