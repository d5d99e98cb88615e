"""The verdict counts what happened, and is written as JSON and as a table of 80 columns."""

from __future__ import annotations

import msgspec

from kinesis_spout.drills.history.events import Step
from kinesis_spout.drills.history.verdict import (
    Delays,
    Drilled,
    FaultFigures,
    Verdict,
    judge,
    verdict_json,
)
from tests.support.drills.short_history import good, told


def test_a_drill_that_kept_all_promises_is_ok() -> None:
    """Each figure of the short history."""
    assert judge(Drilled(drill="short", history=good(), drained_s=0.0)) == Verdict(
        drill="short",
        ok=True,
        broken=[],
        records=4,
        deliveries=5,
        acked=4,
        failed=0,
        letters=0,
        lost=0,
        duplicates=1,
        unexplained=0,
        out_of_order=0,
        drained_s=0.0,
        delays=Delays(median_s=4.0, p99_s=9.0, max_s=9.0),
        faults=[
            FaultFigures(fault="kill -9", at_s=13.0, lasted_s=1.0, recovered_s=None, repeated=1)
        ],
        notes=[],
    )


def test_what_is_broken_is_counted() -> None:
    """Record 0 is lost, and record 1 comes again for no reason."""
    history = good()
    history.told = [one for one in history.told if one.number != 0]
    history.told = [*history.told, told(40, Step.GOT, 1)]
    verdict = judge(Drilled(drill="short", history=history, drained_s=1.0))
    assert (verdict.lost, verdict.unexplained, verdict.duplicates) == (1, 1, 2)
    assert not verdict.ok
    assert verdict.drained_s is None


def test_a_drill_that_was_not_done_has_lost_and_broken_nothing() -> None:
    """Its records have no outcome because nothing ran, and nobody waited for them."""
    history = good()
    history.told = []
    verdict = judge(Drilled(drill="short", history=history, undone="the job was still starting"))
    assert (verdict.ok, verdict.undone) == (False, "the job was still starting")
    assert (verdict.broken, verdict.lost) == ([], 0)
    assert msgspec.json.decode(verdict_json(verdict), type=Verdict) == verdict
