"""The checker of drills: what excuses a repeat or a late record, and what does not; the verdict,
and a history as JSON. That it accepts right histories and rejects each bad one:
`tests/property/test_drill_histories.py`.

They begin with `tests.support.drills.short_history`.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import msgspec
import pytest

from kinesis_spout.drills.history.checks import broken_promises, left
from kinesis_spout.drills.history.events import (
    Fault,
    History,
    Put,
    Sample,
    Step,
    Told,
    decode_history,
    encode_history,
)
from kinesis_spout.drills.history.verdict import (
    Delays,
    Drilled,
    FaultFigures,
    Verdict,
    judge,
    verdict_json,
)
from kinesis_spout.drills.use import Uses, levels
from state.tracker.inflight_record_tracker import UNANSWERED
from tests.support.drills.made_up_history import MadeUp
from tests.support.drills.short_history import (
    FIRST,
    KEY,
    SECOND,
    SHARD,
    S,
    good,
    sample,
    state,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_a_history_that_keeps_all_promises_is_accepted() -> None:
    """So is none at all, but for the states that nobody has read."""
    assert broken_promises(good()) == []
    assert broken_promises(History()) == [
        "1 shard states are unfinished at the end: the drill has read no shard state"
    ]


def test_what_a_process_has_committed_is_stored_though_no_state_was_read_in_time() -> None:
    """The process told of its commits."""
    history = good()
    history.samples = [sample(30, state(3))]
    history.told = [*history.told, told(25, Step.GOT, 1, SECOND)]
    broken = broken_promises(history)
    assert any("were redelivered without a reason: ann 1" in one for one in broken), broken


def late_after_a_kill() -> History:
    """Record 3 went out just before the kill, untold, and comes as a retry after record 4."""
    history = good()
    history.puts = [Put(KEY, number, SHARD, 100 + number) for number in range(5)]
    rest = [one for one in history.told if one.number != 3]
    again = [told(20, Step.GOT, 4, SECOND), told(21, Step.ACK, 4, SECOND)]
    late = [told(24, Step.GOT, 3, SECOND), told(25, Step.ACK, 3, SECOND)]
    history.told = sorted([*rest, *again, *late], key=lambda one: one.at_ns)
    history.samples = [*history.samples[:-1], sample(26, state(4))]
    return history


REWIND = Fault("ZooKeeper restored", 24 * S, 25 * S, rewinds=True)
AWAY = Fault("ZooKeeper away", 12 * S, 30 * S)


def again_after(fault: Fault | None, *more: Sample) -> History:
    """Record 0, which is stored as resolved, comes again at 26 s."""
    history = good()
    history.faults = [*history.faults, *([] if fault is None else [fault])]
    lines = [told(26, Step.GOT, 0, SECOND), told(27, Step.ACK, 0, SECOND)]
    history.told = [*history.told, *lines]
    history.samples = [*history.samples, *more, sample(30, state(3))]
    return history


def test_only_a_fault_that_rewinds_brings_back_what_was_stored() -> None:
    """Not without a fault, not after one of another kind, nor after one that was over before."""
    assert broken_promises(again_after(REWIND)) == []
    for fault in (None, AWAY, REWIND._replace(began_ns=0, ended_ns=0)):
        (broken,) = broken_promises(again_after(fault))
        assert "1 records were redelivered without a reason: ann 0" in broken


def test_states_go_back_once_after_a_fault_that_rewinds() -> None:
    """Not twice, and not before it."""
    back = sample(25.5, state(2, 0))
    assert broken_promises(again_after(REWIND, back)) == []
    twice = again_after(REWIND, back, sample(27.5, state(3)), sample(28, state(2)))
    assert any("1 checkpoints moved back" in one for one in broken_promises(twice))
    early = again_after(REWIND._replace(began_ns=26 * S, ended_ns=27 * S), back)
    assert any("1 checkpoints moved back" in one for one in broken_promises(early))
    not_at_once = again_after(REWIND, sample(25.2, state(3, 1)), sample(25.8, state(2)))
    assert any("checkpoints moved back" in one for one in broken_promises(not_at_once))


def test_a_process_that_was_killed_cannot_be_why_the_records_of_another_come_again() -> None:
    """Record 3 was acked by the first process and not stored."""
    history = good()
    history.tasks = {FIRST: 0, SECOND: 0, "third": 1}
    history.faults = [history.faults[0]._replace(run="third")]
    (broken,) = broken_promises(history)
    assert "were redelivered without a reason: ann 3" in broken
    history.faults = [history.faults[0]._replace(run="")]
    assert broken_promises(history) == []


def test_a_process_that_is_over_leaves_what_is_pending() -> None:
    """Without any fault; not while it still speaks, and not what it has acked."""
    history = good()
    history.faults = []
    assert any("ann 3" in one for one in broken_promises(history))
    history.told = [one for one in history.told if one != told(12, Step.ACK, 3)]
    assert broken_promises(history) == []
    history.told = [*history.told, told(30, Step.COMMIT)]
    broken = broken_promises(history)
    assert any("were redelivered without a reason: ann 3" in one for one in broken)


def test_an_excuse_needs_a_record_that_its_process_can_have_delivered() -> None:
    """Record 3 comes first after record 4, and a kill may have taken its line. Not if it was put
    later, was overtaken before, or if a state says after the kill that nobody had read it.
    """
    history = late_after_a_kill()
    assert broken_promises(history) == []
    later = late_after_a_kill()
    later.puts = [put._replace(at_ns=15 * S) for put in later.puts]
    assert any("out of order: ann 3 after 4" in one for one in broken_promises(later))
    before = late_after_a_kill()
    before.told = [
        one._replace(at_ns=one.at_ns - 8 * S) if one.number == 4 else one for one in before.told
    ]
    before.told = sorted(before.told, key=lambda one: one.at_ns)
    assert any("out of order: ann 3 after 4" in one for one in broken_promises(before))
    unread = late_after_a_kill()
    unread.samples = [unread.samples[0], sample(16, state(2)), *unread.samples[2:]]
    assert any("out of order: ann 3 after 4" in one for one in broken_promises(unread))


@pytest.mark.parametrize(
    ("number", "attempts", "reason", "what"),
    [
        (99, 3, "not yet", "the dead letter of record ann 99 has 3 attempts instead of 4"),
        (8, 1, f"{UNANSWERED} 1 times", ""),
        (8, 2, f"{UNANSWERED} 2 times", "ann 8 was dead-lettered"),
    ],
)
def test_a_letter_has_the_attempts_and_the_reason_of_its_record(
    number: int, attempts: int, reason: str, what: str
) -> None:
    """A record that nobody answered had a kill for each attempt."""
    history = good()
    history.retry_limit = 3
    history.puts = [*history.puts, Put(KEY, number, SHARD, 100 + number)]
    letter = told(31, Step.LETTER, number, SECOND)._replace(attempt=attempts, reason=reason)
    history.told = [*history.told, told(30, Step.GOT, number, SECOND), letter]
    history.samples = [*history.samples, sample(40, state(number))]
    broken = broken_promises(history)
    assert any(what in one for one in broken) if what else not broken, broken


def test_with_fates_that_nobody_knows_each_ack_and_each_letter_is_right() -> None:
    """But each record needs one, and a letter its reason."""
    history = good()
    history.fates_known = False
    letter = told(12, Step.LETTER, 3)._replace(reason="bad", attempt=7)
    history.told = [letter if one == told(12, Step.ACK, 3) else one for one in history.told]
    assert broken_promises(history) == []
    history.told = [one._replace(reason="") for one in history.told]
    assert broken_promises(history) == [
        "1 dead letters are wrong: the dead letter of record ann 3 has no reason"
    ]
    history.told = [one for one in history.told if one.number != 1 or one.step is not Step.ACK]
    assert any("records were lost: ann 1" in one for one in broken_promises(history))


def test_a_drill_is_not_done_while_acks_of_a_killed_process_are_not_stored() -> None:
    """All records have an outcome then, and nothing stored is unresolved, but they come again."""
    history = good()
    before, after = history.samples[:2], history.samples[2:]
    for samples in (before, [sample(7, state(1))]):
        history.samples = samples
        assert any(left(history))
    history.samples = after
    assert not any(left(history))


def growing(memory: Iterator[float], *, seconds: int) -> Uses:
    return {
        FIRST: [
            (at_s, Counter({"memory in MiB": int(next(memory)), "threads": 10}))
            for at_s in range(seconds)
        ]
    }


def test_memory_that_grows_is_told_from_memory_that_warms_up() -> None:
    """The first quarter does not count. A short soak has no verdict."""
    warm = (min(60.0 + at_s, 100.0) for at_s in count())
    assert [level.is_level for level in levels(growing(warm, seconds=600), FIRST)] == [True] * 2
    leak = levels(growing((60 + at_s / 10 for at_s in count()), seconds=600), FIRST)
    assert [level.measure for level in leak if not level.is_level] == ["memory in MiB"]
    assert not any(levels(growing(count(60.0), seconds=60), FIRST))


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


def test_a_drill_that_was_not_done_has_lost_and_broken_nothing() -> None:
    """Its records have no outcome because nothing ran, and nobody waited for them."""
    history = good()
    history.told = []
    verdict = judge(Drilled(drill="short", history=history, undone="the job was still starting"))
    assert (verdict.ok, verdict.undone) == (False, "the job was still starting")
    assert (verdict.broken, verdict.lost) == ([], 0)
    assert msgspec.json.decode(verdict_json(verdict), type=Verdict) == verdict


LONG = 49_545_115_243_490_985_018_280_067_714_973_144_582_180_062_593_244_200_961
LINES = [
    Told(10, Step.GOT, SHARD, "job-1", LONG, "ann", 0, 1),
    Told(11, Step.GOT, SHARD, "job-2", LONG + 1, "ann", 1, 1),
    Told(12, Step.LETTER, SHARD, "job-1", LONG, "ann", 0, 4, "not yet ready"),
    Told(13, Step.COMMIT, SHARD, "job-2"),
    Told(14, Step.ACK, SHARD, "job-2", LONG + 1),
]
SHORT = dataclasses.replace(
    good(),
    puts=[Put("ann", 0, SHARD, LONG, 5), Put("ann", 1, SHARD, LONG + 1, 6)],
    told=LINES,
    faults=[Fault("kill -9", 20, 21, run=FIRST, rewinds=True)],
    samples=[sample(7, state(2, 2)), sample(8, state(3)), sample(9)],
    fates_known=False,
    retry_limit=3,
)
EMPTY = History(puts=[], told=[], faults=[], samples=[])


@pytest.mark.parametrize(
    "history",
    [SHORT, EMPTY, MadeUp(records=200, names=("a", "b")).history()],
    ids=["short", "empty", "made up"],
)
def test_a_history_is_read_from_json_as_it_was_written(history: History) -> None:
    assert decode_history(encode_history(history)) == history


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[]", "not a drill's history"),
        (b"{}", "not a drill's history"),
        (b'{"format": 2}', "has format 2"),
        (encode_history(SHORT).replace(b"AFTER:", b"ASIDE:"), "not a drill's history"),
        (encode_history(SHORT).replace(b"10 got", b"ten got"), "invalid literal"),
    ],
)
def test_another_text_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        decode_history(data)
