"""How long a drill waits."""

from __future__ import annotations

from kinesis_spout.drills.patience import Patience


def test_it_ends_when_nothing_is_told() -> None:
    patience = Patience(10, told=7, now_s=100)
    assert [patience.is_over(7, now_s) for now_s in (101, 110, 111)] == [False, False, True]


def test_it_goes_on_while_the_job_gets_on() -> None:
    patience = Patience(10, told=0, now_s=0)
    assert not patience.is_over(1, 9)
    assert not patience.is_over(1, 19)
    assert patience.is_over(1, 20)
    assert patience.waited_s(20) == 20


def test_it_ends_though_a_job_delivers_for_ever() -> None:
    patience = Patience(10, told=0, now_s=0)
    over_s = next(now_s for now_s in range(1000) if patience.is_over(now_s, now_s))
    assert over_s == 51
