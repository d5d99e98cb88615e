"""The standalone spout: acks and failures, the rules of its `with` block, tuple trees, hooks;
whatever a function of the user raises is the outcome of its record, and costs no other record
anything.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, cast

import pytest

from kinesis_spout.dead_letter.letter import line_of
from kinesis_spout.errors import ConfigError, IllegalAckerEventError
from kinesis_spout.spout.kinesis_spout import (
    FailRecordError,
    KinesisSpout,
    SpoutClosedError,
    SpoutConfig,
)
from kinesis_spout.spout.listener import SpoutListener
from kinesis_spout.spout.scheduler import NothingAckedError
from scheme.json_scheme import JsonScheme
from scheme.plain_schemes import RawScheme
from state.retry_policy import RetryPolicy
from tests.support.outcomes.odd_errors import ODD_ERRORS, BareMalformedError
from tests.support.simulated.simulated_job import SimulatedJob, shard
from tests.support.spout.spout_world import SteppedSpout, emitted, reading
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from kinesis_spout.spout.emission import SpoutEmission
    from scheme.record import Record


def outcomes(spout: SteppedSpout) -> tuple[int, int]:
    """How many were acked, and how many failed."""
    counts = spout.spout.metrics().total.counts
    return counts.acked, counts.failed


def test_a_spout_that_starts_inactive_connects_when_it_is_activated(one: SimulatedJob) -> None:
    """A loop over emissions waits for that."""
    one.put(1)
    one.count_calls()
    spout = SteppedSpout(one, start_active=False)
    assert spout.spout.is_open
    assert spout.spout.next_tuple() is None
    with pytest.raises(SpoutClosedError, match=r"not been active since .*; call activate\(\)"):
        spout.spout.health()
    assert not one.fake.faults.struck
    found: list[SpoutEmission] = []
    loop = threading.Thread(target=lambda: found.extend(spout.spout.emissions(lambda: bool(found))))
    loop.start()
    spout.spout.activate()
    spout.fetch()
    wait_until(lambda: bool(found), timeout_s=20)
    spout.spout.close()
    loop.join(20)
    assert not loop.is_alive()


def test_an_outcome_by_message_id_counts_as_one_by_emission(one: SimulatedJob) -> None:
    spout, (first, second) = emitted(one, 2)
    assert spout.spout.fail(first.message_id, "no")
    assert spout.spout.ack(second.message_id)
    assert not second.ack(), "it was acked before"
    assert not spout.spout.ack(f"{shard(7)}:1:1"), "a shard that is not ours"
    for wrong in ("nonsense", None, first):
        with pytest.raises(ValueError, match="is not a message id"):
            spout.spout.ack(cast("str", wrong))
    spout.after(1.0)
    (again,) = spout.drain(ack=False)
    assert not first.fail("again"), "a late failure of an earlier attempt"
    assert spout.spout.ack(first.message_id), "a late ack of an earlier attempt counts"
    assert not again.ack()


def test_a_spout_takes_a_configuration_only() -> None:
    with pytest.raises(ConfigError, match="config of KinesisSpout is of type str; pass a Spout"):
        KinesisSpout(cast("Any", "orders"))


def test_a_loop_over_the_emissions_of_a_spout_that_was_never_open_is_an_error() -> None:
    """Otherwise a program without open() would end as if there were no records."""
    with pytest.raises(SpoutClosedError, match=r"call open\(\), or use the spout in a with"):
        list(KinesisSpout(SpoutConfig(stream="orders")).emissions())


@pytest.mark.parametrize("timeout_s", [float("inf"), float("nan"), "5", 1e306, 10**400])
@pytest.mark.parametrize("by", ["emission", "tree"])
def test_an_extension_by_no_finite_number_is_refused_and_changes_nothing(
    timeout_s: object, by: str, one: SimulatedJob
) -> None:
    spout, (emission,) = emitted(one, 1, message_timeout_s=5.0)
    extend = {"emission": emission.extend, "tree": emission.tree().extend}[by]
    with pytest.raises(ConfigError, match="; pass a number of seconds, or None"):
        extend(cast("float", timeout_s))
    spout.after(5.0).step("timeouts")
    assert outcomes(spout) == (0, 1), "it times out as before"


def raising(error: BaseException) -> Callable[..., bool]:
    def step(*_: object) -> bool:
        raise error

    return step


def inner_block(_spout: SteppedSpout, emission: SpoutEmission, *, fails: bool = False) -> None:
    with emission:
        if fails:
            emission.fail("no")


STEPS: dict[str, Callable[[SteppedSpout, SpoutEmission], Any]] = {
    "ack": lambda _, emission: emission.ack(),
    "ack by id": lambda spout, emission: spout.spout.ack(emission.message_id),
    "fail": lambda _, emission: emission.fail("no"),
    "fail by id": lambda spout, emission: spout.spout.fail(emission.message_id, "no"),
    "fail a copy": lambda _, emission: emission.decoded(RawScheme()).fail("no"),
    "reject": lambda _, emission: emission.fail("no", retry=False),
    "time out": lambda spout, _: spout.after(5.0).step("timeouts"),
    "an inner block": inner_block,
    "an inner block that fails": partial(inner_block, fails=True),
    "FailRecordError": raising(FailRecordError("not yet")),
    "KeyError": raising(KeyError("airport")),
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
}


@pytest.mark.parametrize(
    ("steps", "raised", "acked", "failed"),
    [
        # the end of the block is an ack, and an exception a failure
        ("", None, 1, 0),
        ("KeyError", KeyError, 0, 1),
        ("FailRecordError", None, 0, 1),
        ("KeyboardInterrupt", KeyboardInterrupt, 0, 0),
        # an outcome inside it stands, also when it comes twice
        ("fail", None, 0, 1),
        ("fail by id", None, 0, 1),
        ("fail a copy", None, 0, 1),
        ("reject", None, 0, 1),
        ("ack; ack, uncounted", None, 1, 0),
        ("fail; fail, uncounted", None, 0, 1),
        ("fail; FailRecordError", None, 0, 1),
        ("ack; KeyError", KeyError, 1, 0),
        ("reject; KeyError", KeyError, 0, 1),
        # one that contradicts it raises
        ("ack; fail", IllegalAckerEventError, 1, 0),
        ("ack; fail by id", IllegalAckerEventError, 1, 0),
        ("ack; FailRecordError", IllegalAckerEventError, 1, 0),
        ("fail; ack", IllegalAckerEventError, 0, 1),
        ("fail; ack by id", IllegalAckerEventError, 0, 1),
        # a late ack counts, a late failure does not
        ("time out", None, 1, 1),
        ("time out; ack", None, 1, 1),
        ("time out; fail, uncounted", None, 0, 1),
        ("time out; fail by id, uncounted", None, 0, 1),
        # blocks in each other have one outcome
        ("an inner block that fails", None, 0, 1),
        ("an inner block; fail", IllegalAckerEventError, 1, 0),
    ],
)
def test_a_with_block_gives_its_record_one_outcome(
    one: SimulatedJob, steps: str, raised: type[BaseException] | None, acked: int, failed: int
) -> None:
    """A contradiction names the record. A failure without a retry is a letter at once."""
    spout, (emission,) = emitted(one, message_timeout_s=5.0)

    def process() -> None:
        with emission:
            for step in filter(None, steps.split("; ")):
                name = step.removesuffix(", uncounted")
                assert STEPS[name](spout, emission) in {None, step == name}

    if raised is None:
        process()
    else:
        named = emission.message_id if raised is IllegalAckerEventError else None
        with pytest.raises(raised, match=named):
            process()
    assert outcomes(spout) == (acked, failed)
    spout.step("letters")
    assert [one.reason for one in spout.letters] == (["no"] if "reject" in steps else [])


@pytest.mark.parametrize(
    "block",
    [lambda one: one, lambda one: one.tree(), lambda one: one.tree().child()],
    ids=["with", "tree", "part"],
)
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_dead_letters_no_record(
    one: SimulatedJob,
    block: Callable[[SpoutEmission], AbstractContextManager[object]],
    interrupt: type[BaseException],
) -> None:
    """Although a single failure would. The next process gets it as if for the first time."""
    one.put(1)
    for _ in range(2):
        spout = reading(one, retry=RetryPolicy(retry_limit=0))
        (emission,) = spout.drain(ack=False)
        assert emission.attempt == 1
        with pytest.raises(interrupt), block(emission):
            raise interrupt
        spout.spout.close()
        assert (outcomes(spout), spout.letters) == ((0, 0), [])


@pytest.mark.parametrize("end", ["ack", "fail", "raise"])
def test_a_tree_made_in_a_with_block_answers_for_it(end: str, one: SimulatedJob) -> None:
    """The end of the block ends the part of the block, not the parts that are still under way."""
    spout, (emission,) = emitted(one)
    with suppress(KeyError), emission:
        part = emission.tree().child()
        if end == "raise":
            raise KeyError("airport")
    assert outcomes(spout) == (0, 1 if end == "raise" else 0)
    if end == "fail":
        part.fail("no")
    else:
        part.ack()
    assert outcomes(spout) == ((1, 0) if end == "ack" else (0, 1))


@pytest.mark.parametrize("by", ["ack", "fail", "ack by id", "the second tree"])
def test_a_tree_ends_with_the_outcome_of_its_emission(by: str, one: SimulatedJob) -> None:
    """Given in another way: by the emission, or by another tree of it. Nothing waits for it any
    more, so it must not stay in memory, and its end changes nothing.
    """
    spout, (emission,) = emitted(one, message_timeout_s=None)
    first, second = emission.tree(), emission.tree()
    part = first.child()
    if by == "the second tree":
        second.ack()
    else:
        STEPS[by](spout, emission)
    assert (first.ended, second.ended) == (True, True)
    expected = (0, 1) if by == "fail" else (1, 0)
    assert outcomes(spout) == expected
    part.ack()
    first.fail("late")
    assert outcomes(spout) == expected


@pytest.mark.parametrize("within", ["both", "tree", "part", "future"])
def test_a_failure_without_a_retry_within_a_tree_is_a_letter_at_once(
    within: str, one: SimulatedJob
) -> None:
    """With the reason that the program gave, as in a `with emission:` block."""
    spout, (emission,) = emitted(one)
    failure = FailRecordError("bad totals", retry=False)
    with suppress(FailRecordError):
        if within == "both":
            with emission, emission.tree():
                raise failure
        elif within == "future":
            future: Future[None] = Future()
            with emission, emission.tree() as tree:
                tree.follow(future)
            future.set_exception(failure)
        else:
            tree = emission.tree()
            with tree if within == "tree" else tree.child():
                raise failure
    spout.step("letters")
    assert [letter.reason for letter in spout.letters] == ["bad totals"]
    assert outcomes(spout) == (0, 1)


@pytest.mark.parametrize("by", ["emission", "tree", "part"])
def test_a_tree_is_extended_with_its_emission(by: str, one: SimulatedJob) -> None:
    """From the emission, from the tree, and from a part of it, in seconds from now."""
    spout, (emission,) = emitted(one, message_timeout_s=5.0)
    tree = emission.tree()
    part = tree.child()
    extend = {"emission": emission.extend, "tree": tree.extend, "part": part.extend}[by]
    assert extend(20.0)
    spout.after(19.9).step("timeouts")
    assert not tree.ended
    assert spout.spout.metrics().total.pending == 1
    spout.after(0.1).step("timeouts")
    assert tree.ended
    assert not part.extend(20.0)
    assert spout.spout.metrics().total.counts.timed_out == 1


def test_a_tree_ends_no_later_than_its_emission(one: SimulatedJob) -> None:
    """Work on it would be in vain: the record is redelivered."""
    spout, (emission,) = emitted(one, message_timeout_s=5.0)
    spout.after(4.0)
    late = emission.tree()
    spout.after(1.0).step("timeouts")
    assert late.ended
    again = emission.tree()
    spout.step("timeouts")
    assert again.ended, "the emission has an outcome already"


@pytest.mark.parametrize("is_one_acked", [True, False])
def test_the_spout_stops_when_everything_fails(one: SimulatedJob, *, is_one_acked: bool) -> None:
    """The fault is not in the records then, so none is dead-lettered. One ack ends the counting."""
    spout, emissions = emitted(one, 10, breaker_failures=5)
    if is_one_acked:
        emissions.pop().ack()
    for emission in emissions[:5]:
        emission.fail("no database")
    if is_one_acked:
        assert spout.spout.next_tuple() is None
    else:
        with pytest.raises(NothingAckedError, match="no record was acked"):
            spout.spout.next_tuple()
    assert spout.letters == []


def test_the_breaker_counts_malformed_records_and_listeners_get_its_error(
    one: SimulatedJob,
) -> None:
    one.put(3, data=b"nonsense")
    seen: list[Exception] = []
    listener = SpoutListener()
    listener.error = seen.append  # type: ignore[method-assign, assignment]  # of this one
    spout = reading(one, scheme=JsonScheme("n INT"), breaker_failures=3, listeners=(listener,))
    with pytest.raises(NothingAckedError):
        spout.spout.next_tuple()
    assert [type(error) for error in seen] == [NothingAckedError]


def stored_reasons(spout: SteppedSpout) -> dict[str, str | None]:
    """By sequence number, after a commit, as a new process would read them."""
    spout.coordinate()
    spout.spout.next_tuple()  # raises an error that has stopped the spout
    records = spout.job.states()[shard(0)].unresolved
    return {str(one.first): one.reason for one in records if one.attempts}


class OddFailureError(FailRecordError):
    """It does not call the class above it."""

    def __init__(self) -> None:
        Exception.__init__(self, "bare")

    def __str__(self) -> str:
        raise RuntimeError("no text")

    @property
    def retry(self) -> bool:  # type: ignore[override]  # a user may
        raise RuntimeError("no retry")


def test_a_failure_without_a_text_fails_its_record_and_the_loop_goes_on(
    one: SimulatedJob,
) -> None:
    """Also one without the field `retry`: it is retried."""
    spout, (emission,) = emitted(one)
    with emission:
        raise OddFailureError
    assert len(stored_reasons(spout)) == 1


REASONS: dict[Any, str] = {
    "half \ud83d": "half \\ud83d",
    "a\0b": "a\\x00b",
    404: "404",
    ("code", 1): "('code', 1)",
    "x" * 5_000_000: "x" * 997 + "...",
}


@pytest.mark.parametrize("by", ["emission", "message id", "tree"])
def test_any_reason_is_kept_as_text_in_the_state_and_in_the_letter(
    by: str, one: SimulatedJob
) -> None:
    heard: list[str | None] = []
    spout, emissions = emitted(one, len(REASONS), on_fail=lambda _, why: heard.append(why))
    for reason, emission in zip(REASONS, emissions, strict=True):
        if by == "emission":
            emission.fail(reason)
        elif by == "message id":
            spout.spout.fail(emission.message_id, reason)
        else:
            emission.tree().fail(reason)
    kept = list(REASONS.values())
    assert heard == kept
    assert list(stored_reasons(spout).values()) == kept
    spout.after(1.0)
    for reason, again in zip(REASONS, spout.drain(ack=False), strict=True):
        again.fail(reason, retry=False)
    spout.step("letters", times=len(REASONS))
    assert [letter.reason for letter in spout.letters] == kept
    assert all(map(line_of, spout.letters))


def test_any_exception_of_a_hook_or_listener_changes_nothing(one: SimulatedJob) -> None:
    errors = cycle(ODD_ERRORS)

    def raising(*_: object) -> None:
        raise next(errors)

    class Listener(SpoutListener):
        def __repr__(self) -> str:
            raise RuntimeError("no text")

        emitted = acked = failed = timed_out = exhausted = checkpointed = raising  # type: ignore[assignment]

    count = len(ODD_ERRORS)
    spout, emissions = emitted(
        one,
        3 * count,
        on_ack=raising,
        on_fail=raising,
        listeners=(Listener(),),
        message_timeout_s=5.0,
    )
    assert all(emission.ack() for emission in emissions[:count])
    assert all(emission.fail("no", retry=False) for emission in emissions[count : 2 * count])
    spout.after(5.0).step("timeouts")
    spout.step("letters", times=count)
    assert len(stored_reasons(spout)) == count
    counts = spout.spout.metrics().total.counts
    assert (counts.acked, counts.failed) == (count, 2 * count)
    assert (counts.timed_out, counts.dead_lettered) == (count, count)


def test_any_exception_of_a_scheme_is_the_outcome_of_its_record(one: SimulatedJob) -> None:
    """The records behind them are delivered, and an outcome by message id counts though the scheme
    raises by then.
    """
    left = list(ODD_ERRORS)

    class Broken(RawScheme):
        def decode(self, record: Record) -> tuple[bytes]:
            if left:
                raise left.pop(0)
            return super().decode(record)

    spout, (first, second) = emitted(one, len(left) + 2, scheme=Broken())
    spout.step("letters", times=len(ODD_ERRORS))
    others = [error for error in ODD_ERRORS if not isinstance(error, BareMalformedError)]
    assert [letter.reason for letter in spout.letters] == ["bare"] * (len(ODD_ERRORS) - len(others))
    assert {letter.attempts for letter in spout.letters} == {1}, "malformed ones are not retried"
    assert spout.spout.metrics().total.counts.malformed == len(spout.letters)
    for error, reason in zip(others, stored_reasons(spout).values(), strict=False):
        assert type(error).__name__ in str(reason)
    left += [ValueError("x")] * 9
    assert spout.spout.ack(first.message_id)
    assert spout.spout.fail(second.message_id, "no")
