"""What the driver remembers of a shard between two looks at it."""

from __future__ import annotations

from kinesis_spout.service.shard_info import ITERATOR_LIFE_S
from spark_job.driver.prober import Answer, Probe
from spark_job.driver.shard_tips import ShardTips
from state.plan import ShardReadResult
from state.position import TRIM_HORIZON


def end(*, at_tip: bool = False, iterator: str | None = "hint") -> ShardReadResult:
    return ShardReadResult(shard_id="s", at_tip=at_tip, iterator=iterator)


def answer(*, has_work: bool = False, tip_ms: int | None = None) -> Answer:
    return Answer("s", has_work=has_work, iterator="probed", tip_ms=tip_ms)


def test_a_shard_that_was_never_looked_at_is_neither_idle_nor_behind_and_long_due_for_a_look() -> (
    None
):
    tips = ShardTips()
    assert (tips.is_idle("s"), tips.is_behind("s")) == (False, False)
    assert tips.checked_s("s") == float("-inf")
    assert (tips.iterator("s", 0.0), tips.verified_ms("s")) == (None, None)


def test_a_read_that_ended_at_the_tip_makes_it_idle_and_another_one_behind() -> None:
    tips = ShardTips()
    tips.on_end(end(at_tip=True), 7.0)
    assert (tips.is_idle("s"), tips.is_behind("s"), tips.checked_s("s")) == (True, False, 7.0)
    tips.on_end(end(at_tip=False), 8.0)
    assert (tips.is_idle("s"), tips.is_behind("s"), tips.checked_s("s")) == (False, True, 8.0)


def test_a_probe_that_found_something_makes_it_behind_and_one_that_found_nothing_idle() -> None:
    tips = ShardTips()
    tips.on_answer(answer(has_work=True), 1.0)
    assert tips.is_behind("s")
    tips.on_answer(answer(tip_ms=900), 2.0)
    assert tips.is_idle("s")
    assert (tips.verified_ms("s"), tips.checked_s("s")) == (900, 2.0)


def test_a_probe_that_saw_no_tip_does_not_take_back_the_last_one() -> None:
    tips = ShardTips()
    tips.on_answer(answer(tip_ms=900), 1.0)
    tips.on_answer(answer(has_work=True), 2.0)
    assert tips.verified_ms("s") == 900


def test_an_iterator_is_a_hint_for_as_long_as_the_service_keeps_it() -> None:
    tips = ShardTips()
    tips.on_end(end(), 100.0)
    assert tips.iterator("s", 100.0 + ITERATOR_LIFE_S - 1) == "hint"
    assert tips.iterator("s", 100.0 + ITERATOR_LIFE_S) is None
    assert tips.probe("s", TRIM_HORIZON, 101.0) == Probe("s", TRIM_HORIZON, "hint")
    assert tips.iterators(["s", "unknown"], 101.0) == {"s": "hint"}


def test_a_read_without_a_next_iterator_forgets_the_old_one() -> None:
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
