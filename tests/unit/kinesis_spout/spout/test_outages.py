"""Outages of the service, in simulated time, and what a spout reports of its run: it continues,
says so, and ends only where its options say so or where waiting cannot help.
"""

from __future__ import annotations

from contextlib import closing, suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from aws_schema_registry.codec import encode

from kinesis_spout.errors import (
    AccessDeniedError,
    CredentialsError,
    KinesisError,
    StillThrottledError,
    StreamNotFoundError,
)
from kinesis_spout.spout.listener import SpoutNotifier
from kinesis_spout.spout.outages import SpoutOutages, SpoutPart
from kinesis_spout.testing import ManualClock
from kinesis_spout.testing.faults import plan as faults
from scheme import AvroScheme, GlueScheme, SchemaVersion, SchemeUnavailableError
from state.retry_policy import RetryPolicy
from state.shard_state import given_up
from state.store.runs import (
    DEACTIVATED,
    FAILED,
    FULL,
    NOT_TAKEN,
    SPOUT,
    STOPPED,
    Hold,
    NoAnswers,
    ReadTrouble,
)
from state.store.shard_states import StateChange
from tests.support.outcomes.glue_cases import FIRST, ORDER_1, REGISTRY, V1
from tests.support.spout.spout_world import STREAM, SpoutUnderTest, drain, pass_time, taken

if TYPE_CHECKING:
    from kinesis_spout.testing.faults.plan import Fault


OUTAGES = {
    "503": faults.service_unavailable(),
    "a dropped connection": faults.drop(),
    "a truncated body": faults.replace(lambda _request: 1),
    "an expired iterator": faults.expired_iterator(),
    "a throttle": faults.throttle(),
    "rotated keys": faults.error("UnrecognizedClientException"),
    "an expired token": faults.error("ExpiredTokenException"),
}
LISTING = {
    "503": OUTAGES["503"],
    "a dropped connection": OUTAGES["a dropped connection"],
    "rotated keys": OUTAGES["rotated keys"],
    "a malformed answer": faults.replace(lambda _request: {"Shards": 1}),
}
FATAL = {
    "AccessDeniedException": AccessDeniedError,
    "KMSAccessDeniedException": AccessDeniedError,
}


def strike(under_test: SpoutUnderTest, fault: Fault, **where: object) -> None:
    under_test.fake.faults.add(fault, times=None, **where)  # type: ignore[arg-type]  # of `add`


@pytest.mark.parametrize("kind", OUTAGES)
def test_an_outage_of_reading_ends_no_spout_and_no_record_is_lost(kind: str) -> None:
    """The pause between attempts grows."""
    under_test = SpoutUnderTest()
    with under_test.fresh() as spout:
        under_test.put(3)
        strike(under_test, OUTAGES[kind], operation="GetRecords")
        assert pass_time(under_test, spout, 1_000, step_s=0.5) == []
        assert 60 < len(under_test.fake.faults.struck) < 1_000
        health = spout.health()
        assert not health.ok
        assert OUTAGES[kind].code in (health.last_error or "")
        told = under_test.run().failing_reads
        assert (told is None) is (kind == "a throttle")
        under_test.fake.faults.clear()
        assert len(pass_time(under_test, spout, 30)) == 3
        assert spout.health().ok


def test_a_read_that_fails_after_its_shard_was_released_is_no_outage() -> None:
    """Nobody reads the shard again, so the outage would never end."""
    under_test = SpoutUnderTest(shards=2)
    first, second = [one.shard_id for one in under_test.fake.shards(STREAM)]
    with under_test.fresh() as spout:
        session = spout._open_session()
        catalog = session._assigner.catalog
        get_records = under_test.service.get_records

        def give_up_meanwhile(**arguments: Any) -> dict[str, Any]:
            before = catalog.states[first]
            catalog.save([StateChange(before=before, after=given_up(before.state))])
            assert session._assigner.release() == [first]
            under_test.service.get_records = get_records  # type: ignore[method-assign]  # as it was
            return get_records(**arguments)

        strike(under_test, OUTAGES["503"], operation="GetRecords", shard_id=first)
        under_test.service.get_records = give_up_meanwhile  # type: ignore[method-assign]  # one slow answer
        under_test.loops.take("fetch")
        strike(under_test, OUTAGES["503"], operation="GetRecords", shard_id=second)
        pass_time(under_test, spout, 30)
        (outage,) = spout.health().outages
        assert outage.shards == (second,)
        under_test.fake.faults.clear()
        pass_time(under_test, spout, 30)
        assert spout.health().ok
        assert under_test.run().failing_reads is None


def test_a_shard_in_trouble_delays_no_other() -> None:
    under_test = SpoutUnderTest(shards=4)
    shards = [one.shard_id for one in under_test.fake.shards(STREAM)]
    with under_test.fresh(fetch_concurrency=2) as spout:
        for shard_id in shards[:3]:
            strike(under_test, OUTAGES["503"], operation="GetRecords", shard_id=shard_id)
        for _ in range(20):
            began_s = under_test.clock.monotonic_s()
            under_test.loops.take("fetch")
            assert under_test.clock.monotonic_s() - began_s < 0.5
            under_test.clock.advance(0.25)
        under_test.put(40)
        assert {one.shard_id for one in pass_time(under_test, spout, 3)} == {shards[3]}


def test_health_names_the_shards_of_an_outage_and_when_and_why_it_began() -> None:
    """A fault that is gone at the next attempt is no outage."""
    under_test = SpoutUnderTest(shards=3)
    first, second, _ = [one.shard_id for one in under_test.fake.shards(STREAM)]
    with under_test.fresh() as spout:
        under_test.fake.faults.add(OUTAGES["503"], operation="GetRecords", times=1)
        pass_time(under_test, spout, 10)
        assert spout.health().ok
        assert spout.metrics().outages["fetch"] == 0
        began_ms = under_test.clock.now_ms()
        for shard_id in (first, second):
            strike(under_test, OUTAGES["503"], operation="GetRecords", shard_id=shard_id)
        pass_time(under_test, spout, 300)
        (outage,) = spout.health().outages
        assert (outage.part, outage.shards) == ("fetch", (first, second))
        assert began_ms <= outage.since_ms <= began_ms + 2_000
        assert "try again later" in outage.last_error
        assert spout.metrics().failing_s["fetch"] > 290
        under_test.fake.faults.clear()
        pass_time(under_test, spout, 30)
        assert spout.metrics().failing_s["fetch"] == 0
        assert spout.metrics().outages["fetch"] == 1


def test_a_spout_whose_keys_are_refused_from_the_start_ends() -> None:
    """Nobody is rotating them."""
    under_test = SpoutUnderTest()
    strike(under_test, OUTAGES["rotated keys"])
    with pytest.raises(CredentialsError) as caught, under_test.fresh():
        pass
    assert not caught.value.retryable


def test_a_program_that_answers_nothing_is_told_until_it_answers() -> None:
    """For somebody who looks from outside, with the number of deliveries."""
    under_test = SpoutUnderTest()

    def told(count: int, *, acked: int = 0) -> NoAnswers | None:
        under_test.put(count)
        for number, emission in enumerate(drain(spout, under_test.loops)):
            if number < acked:
                emission.ack()
        under_test.clock.advance(30)
        under_test.loops.take("timeouts")
        under_test.loops.take("commit")
        return under_test.run().no_answers

    with under_test.fresh(message_timeout_s=30, retry=RetryPolicy(retry_limit=0)) as spout:
        began_ms = under_test.clock.now_ms()
        found = told(300)
        assert found is not None
        assert began_ms <= found.since_ms < began_ms + 5_000
        assert found.count == 300
        under_test.clock.advance(60)
        assert told(4) == NoAnswers(since_ms=found.since_ms, count=304)
        assert told(7, acked=5) is None


def test_a_read_that_hangs_is_told_without_an_error() -> None:
    clock = ManualClock()
    random = Random(1)  # noqa: S311  # a test to repeat, not a secret
    outages = SpoutOutages(SpoutNotifier(()), clock, random, give_up_after_s=None)
    began_ms = clock.now_ms()
    for shard_id in ("a", "b"):
        outages.asks(shard_id)
    outages.succeeded(SpoutPart.FETCH, "b")
    assert outages.failing_reads() is None
    clock.advance(60)
    assert outages.failing_reads() == ReadTrouble(since_ms=began_ms)
    outages.succeeded(SpoutPart.FETCH, "a")
    assert outages.failing_reads() is None


@pytest.mark.parametrize("kind", LISTING)
def test_an_outage_of_the_listing_ends_no_spout(kind: str) -> None:
    under_test = SpoutUnderTest()
    with under_test.fresh(shard_refresh_interval_s=1) as spout:
        strike(under_test, LISTING[kind], operation="ListShards")
        pass_time(under_test, spout, 100)
        assert [one.part for one in spout.health().outages] == ["listing"]
        under_test.put(2)
        assert len(pass_time(under_test, spout, 10)) == 2
        under_test.fake.faults.clear()
        pass_time(under_test, spout, 10)
        assert spout.health().ok


@pytest.mark.parametrize(
    ("code", "operation", "raised"),
    [
        *((code, "GetRecords", error) for code, error in FATAL.items()),
        *((code, "ListShards", error) for code, error in FATAL.items()),
        ("ResourceNotFoundException", None, StreamNotFoundError),
    ],
)
def test_an_error_that_waiting_cannot_mend_stops_the_spout_at_once(
    code: str, operation: str | None, raised: type[Exception]
) -> None:
    under_test = SpoutUnderTest()
    with under_test.fresh(shard_refresh_interval_s=1) as spout:
        strike(under_test, faults.error(code), operation=operation)
        with pytest.raises(raised):
            pass_time(under_test, spout, 10)
        health = spout.health()
        assert not health.ok
        assert code in (health.last_error or "")


@pytest.mark.parametrize("kind", OUTAGES)
def test_give_up_after_s_ends_a_spout_that_had_no_success_for_so_long(kind: str) -> None:
    """A success in between starts the time again."""
    under_test = SpoutUnderTest()
    with under_test.fresh(give_up_after_s=60.0) as spout:
        for _ in range(3):
            strike(under_test, OUTAGES[kind], operation="GetRecords")
            assert pass_time(under_test, spout, 50) == []
            under_test.fake.faults.clear()
            pass_time(under_test, spout, 20)
            assert spout.health().ok
        strike(under_test, OUTAGES[kind], operation="GetRecords")
        with pytest.raises(StillThrottledError if kind == "a throttle" else KinesisError):
            pass_time(under_test, spout, 80)


def test_what_was_read_again_before_a_fault_is_not_read_once_more() -> None:
    """Else a shard with many retries, of whose calls some always fail, would never get through."""
    under_test = SpoutUnderTest()
    under_test.put(4_000)  # more than a page is between the two that fail
    policy = RetryPolicy(retry_limit=5, first_delay_ms=1, jitter=0)
    with under_test.fresh(retry=policy) as spout:
        first, *others, last = drain(spout, under_test.loops)
        for one in others:
            one.ack()
        for one in (first, last):
            one.fail("later")
        under_test.loops.take("commit")
    under_test.clock.advance(60)
    with under_test.fresh(retry=policy) as spout:
        came = []
        for _ in range(10):
            under_test.fake.faults.add(OUTAGES["503"], operation="GetRecords", skip=1)
            under_test.loops.take("retries")
            under_test.fake.faults.clear()
            came += [emission.sequence_number for emission in taken(spout, acks=True)]
            under_test.clock.advance(1)
        assert came == [first.sequence_number, last.sequence_number]


class SometimesReachable:
    """A registry of schemas that a test makes unreachable."""

    def __init__(self) -> None:
        self.is_reachable = False
        self.error: BaseException = SchemeUnavailableError(
            "the registry does not answer", "check the network"
        )

    def schema_version(self, version_id: str) -> SchemaVersion | None:
        if not self.is_reachable:
            raise self.error
        return REGISTRY.schema_version(version_id)


def test_an_outage_of_a_schema_registry_uses_up_no_attempt() -> None:
    """Records stay where they are, longer than their timeout and than all of their retries would
    take, and come decoded and in order once the registry answers. Nothing is dead-lettered.
    """
    under_test, registry = SpoutUnderTest(), SometimesReachable()
    under_test.put(2, data=encode(FIRST, V1))
    scheme = GlueScheme(AvroScheme(ORDER_1), registry)
    letters: list[object] = []
    spout = under_test.fresh(
        scheme=scheme,
        retry=RetryPolicy(retry_limit=1),
        message_timeout_s=5.0,
        dead_letter=letters.append,
    )
    with closing(spout):
        spout.open()
        assert pass_time(under_test, spout, 120.0) == []
        (outage,) = spout.health().outages
        assert (outage.part, outage.last_error) == (
            "scheme",
            "the registry does not answer; check the network",
        )
        registry.error = KeyboardInterrupt()
        under_test.clock.advance(15)
        with pytest.raises(KeyboardInterrupt):
            spout.next_tuple()
        registry.is_reachable = True
        under_test.clock.advance(15)
        came = taken(spout, acks=True)
        assert [emission.values for emission in came] == [(7, "secret")] * 2
        assert [emission.attempt for emission in came] == [1, 1]
        assert spout.metrics().total.counts.failed == 0
        assert spout.health().ok
        assert pass_time(under_test, spout, 30.0) == []
        assert letters == []


def test_a_schema_registry_that_stays_unreachable_stops_a_spout_that_is_told_to_give_up() -> None:
    """It gives no record then, also not the one that waited, once the registry answers."""
    under_test, registry = SpoutUnderTest(), SometimesReachable()
    under_test.put(1, data=encode(FIRST, V1))
    scheme = GlueScheme(AvroScheme(ORDER_1), registry)
    spout = under_test.fresh(scheme=scheme, give_up_after_s=60.0)
    with closing(spout):
        spout.open()
        with pytest.raises(SchemeUnavailableError):
            pass_time(under_test, spout, 120.0)
        registry.is_reachable = True
        under_test.clock.advance(120)
        with pytest.raises(SchemeUnavailableError):
            spout.next_tuple()


def hold(under_test: SpoutUnderTest) -> Hold | None:
    """After two commits, a second apart."""
    for _ in range(2):
        under_test.loops.take("commit")
        under_test.clock.advance(1.0)
    return under_test.run().hold


@pytest.mark.parametrize("error", [None, RuntimeError("no rates")])
def test_a_spout_tells_that_it_began_and_how_it_ended(error: Exception | None) -> None:
    """The log also has the limit of attempts after which a record is dead-lettered."""
    under_test = SpoutUnderTest()
    retry = RetryPolicy(retry_limit=6, max_age_ms=5_000)
    with suppress(RuntimeError), under_test.fresh(max_pending=7, retry=retry):
        run = under_test.run().newest
        assert run is not None
        assert (run.kind, run.max_pending, run.read_mode, run.end) == (SPOUT, 7, "polling", None)
        assert (run.max_attempts, run.max_age_ms) == (7, 5_000)
        if error is not None:
            raise error
    newest = under_test.run().newest
    assert newest is not None
    assert newest.end is not None
    assert (newest.end.kind, newest.end.says) == (
        (FAILED, "RuntimeError: no rates") if error else (STOPPED, None)
    )


def test_what_holds_a_spout_up_is_told_until_it_is_over() -> None:
    """It is deactivated; its program takes no record, though others are there for it: it may have
    one that it works on, or hangs with; or answers none of those that it has.
    """
    under_test = SpoutUnderTest()
    under_test.put(4)
    with under_test.fresh(max_pending=2, message_timeout_s=None) as spout:
        spout.deactivate()
        seen = hold(under_test)
        assert (seen and seen.kind) == DEACTIVATED
        spout.activate()
        under_test.loops.take()
        first = spout.next_tuple()
        assert first is not None
        since_ms = under_test.clock.now_ms()
        assert hold(under_test) == Hold(kind=NOT_TAKEN, since_ms=since_ms)
        second = spout.next_tuple()
        assert second is not None
        under_test.loops.take("commit")
        seen = hold(under_test)
        assert (seen and seen.kind) == FULL
        first.ack()
        second.ack()
        for _ in range(2):
            emission = spout.next_tuple()
            assert emission is not None
            emission.ack()
        assert spout.next_tuple() is None
        assert hold(under_test) is None
