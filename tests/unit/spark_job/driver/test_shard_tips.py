"""The driver's knowledge of a shard between two checks."""

from __future__ import annotations

from kinesis_spout.service.shard_info import ITERATOR_LIFE_S
from spark_job.driver.prober import Probe, ProbeResult
from spark_job.driver.shard_tips import ShardTips
from state.plan import ShardReadResult
from state.position import TRIM_HORIZON


def end(*, at_tip: bool = False, iterator: str | None = "hint") -> ShardReadResult:
    return ShardReadResult(shard_id="s", at_tip=at_tip, iterator=iterator)


def answer(*, has_work: bool = False, tip_ms: int | None = None) -> ProbeResult:
    return ProbeResult("s", has_work=has_work, iterator="probed", tip_ms=tip_ms)


def test_a_shard_that_was_never_checked_is_neither_idle_nor_behind_and_its_check_is_overdue() -> (
    None
):
    tips = ShardTips()
    assert (tips.is_idle("s"), tips.is_behind("s")) == (False, False)
    assert tips.checked_s("s") == float("-inf")
    assert (tips.iterator("s", 0.0), tips.verified_ms("s")) == (None, None)


def test_a_read_to_the_tip_makes_a_shard_idle_and_any_other_read_makes_it_behind() -> None:
    tips = ShardTips()
    tips.on_end(end(at_tip=True), 7.0)
    assert (tips.is_idle("s"), tips.is_behind("s"), tips.checked_s("s")) == (True, False, 7.0)
    tips.on_end(end(at_tip=False), 8.0)
    assert (tips.is_idle("s"), tips.is_behind("s"), tips.checked_s("s")) == (False, True, 8.0)


def test_the_next_read_of_a_shard_is_known_until_it_is_allowed() -> None:
    tips = ShardTips()
    tips.on_end(ShardReadResult(shard_id="s", next_read_ms=500), 7.0)
    tips.on_end(ShardReadResult(shard_id="t"), 7.0)
    assert tips.next_reads(["s", "t", "unknown"], now_ms=499) == {"s": 500}
    assert tips.next_reads(["s"], now_ms=500) == {}


def test_a_probe_with_work_makes_a_shard_behind_and_one_without_makes_it_idle() -> None:
    tips = ShardTips()
    tips.on_answer(answer(has_work=True), 1.0)
    assert tips.is_behind("s")
    tips.on_answer(answer(tip_ms=900), 2.0)
    assert tips.is_idle("s")
    assert (tips.verified_ms("s"), tips.checked_s("s")) == (900, 2.0)


def test_a_probe_that_saw_no_tip_keeps_the_last_tip() -> None:
    tips = ShardTips()
    tips.on_answer(answer(tip_ms=900), 1.0)
    tips.on_answer(answer(has_work=True), 2.0)
    assert tips.verified_ms("s") == 900


def test_an_iterator_is_a_hint_until_it_expires() -> None:
    tips = ShardTips()
    tips.on_end(end(), 100.0)
    assert tips.iterator("s", 100.0 + ITERATOR_LIFE_S - 1) == "hint"
    assert tips.iterator("s", 100.0 + ITERATOR_LIFE_S) is None
    assert tips.probe("s", TRIM_HORIZON, 101.0) == Probe("s", TRIM_HORIZON, "hint")
    assert tips.iterators(["s", "unknown"], 101.0) == {"s": "hint"}


def test_a_read_without_a_next_iterator_drops_the_old_one() -> None:
    """A page that was cut goes on in the middle: the iterator behind it would skip the rest."""
    tips = ShardTips()
    tips.on_end(end(), 1.0)
    tips.on_end(end(iterator=None), 2.0)
    assert tips.iterator("s", 2.0) is None


def test_shards_that_are_gone_are_forgotten() -> None:
    tips = ShardTips()
    tips.on_end(end(at_tip=True), 1.0)
    tips.keep_only(["other"])
    assert not tips.is_idle("s")


def test_a_subscription_waits_no_longer_than_a_minute_for_another_machines_clock() -> None:
    """One that is an hour ahead says an hour too much, and a read does not wait for a minute."""
    tips = ShardTips()
    tips.on_subscribed(ShardReadResult(shard_id="s", next_subscribe_ms=1_000_000 + 60_000))
    assert tips.next_subscribes(["s"], 1_000_000) == {"s": 1_060_000}
    tips.on_subscribed(ShardReadResult(shard_id="s", next_subscribe_ms=1_000_000 + 3_600_000))
    assert tips.next_subscribes(["s"], 1_000_000) == {}
