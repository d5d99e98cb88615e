"""Probes of idle shards: what counts as work, and where the next read starts."""

from __future__ import annotations

from concurrent.futures import wait
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import AccessDeniedError
from kinesis_spout.testing import early_end, error, expired_iterator, throttle
from spark_job.driver.prober import Probe, Prober, ProbeResult
from state.position import TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from tests.simulation.in_process import InlinePool
from tests.support.simulated.simulated_job import STREAM, SimulatedJob, shard, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def prober(job: SimulatedJob) -> Iterator[Prober]:
    made = Prober(job.services().client, InlinePool)
    yield made
    made.close()


def ask(
    prober: Prober, *, position: Position = TRIM_HORIZON, iterator: str | None = None
) -> ProbeResult:
    (answer,) = prober.ask([Probe(shard(0), position, iterator)])
    return answer


def test_a_shard_at_its_tip_has_no_work_and_gives_the_services_time(
    job: SimulatedJob, prober: Prober
) -> None:
    answer = ask(prober)
    assert (answer.shard_id, answer.has_work, answer.tip_ms) == (
        shard(0),
        False,
        job.clock.now_ms(),
    )
    assert answer.iterator is not None


def test_a_record_is_work_and_the_read_starts_at_it_not_behind_it(
    job: SimulatedJob, prober: Prober
) -> None:
    job.put(1, key=job.key_of(0))
    answer = ask(prober)
    assert (answer.has_work, answer.tip_ms) == (True, None)
    assert ask(prober, iterator=answer.iterator).has_work


def test_a_record_put_after_the_tip_was_seen_is_found_by_its_iterator(
    job: SimulatedJob, prober: Prober
) -> None:
    answer = ask(prober)
    job.put(1, key=job.key_of(0))
    job.count_calls()
    assert ask(prober, iterator=answer.iterator).has_work
    assert job.calls("GetShardIterator") == 0


def test_the_end_of_a_shard_is_work(job: SimulatedJob, prober: Prober) -> None:
    """A task has to read it, so that the children are known and the end is settled."""
    job.fake.split(STREAM, shard(0))
    assert ask(prober).has_work


def test_an_end_without_children_is_work_and_no_end(job: SimulatedJob, prober: Prober) -> None:
    """The task that reads it looks for evidence, and finds the shard open."""
    job.fake.faults.add(early_end(), operation="GetRecords", times=1)
    found = ask(prober)
    assert (found.has_work, found.gone, found.tip_ms) == (True, False, None)
    assert not ask(prober, iterator=found.iterator).has_work


def test_a_stretch_without_records_behind_the_tip_is_work(
    job: SimulatedJob, prober: Prober
) -> None:
    job.fake.insert_empty_pages(STREAM, shard(0), 3)
    job.put(1, key=job.key_of(0))
    answer = ask(prober)
    assert (answer.has_work, answer.tip_ms) == (True, None)


def test_an_expired_iterator_is_created_again_at_the_position(
    job: SimulatedJob, prober: Prober
) -> None:
    first, second = job.put(2, key=job.key_of(0))
    job.fake.faults.add(expired_iterator(), operation="GetRecords")
    assert ask(
        prober, position=Position.after(SequenceNumber(first)), iterator=ask_iterator(job)
    ).has_work
    assert not ask(prober, position=Position.after(SequenceNumber(second))).has_work


def ask_iterator(job: SimulatedJob) -> str:
    return job.services().client.shard_iterator(shard(0), TRIM_HORIZON)


def test_a_shard_that_is_gone_has_no_work(job: SimulatedJob, prober: Prober) -> None:
    """The shard list decides whether records were lost with it."""
    assert prober.ask([Probe("shardId-000000000099", TRIM_HORIZON, None)]) == [
        ProbeResult(
            "shardId-000000000099",
            has_work=False,
            iterator=None,
            tip_ms=None,
            gone=True,
            position=TRIM_HORIZON,
        )
    ]


@pytest.mark.parametrize("operation", ["GetRecords", "GetShardIterator"])
def test_a_shard_that_is_throttled_is_left_to_a_task(
    operation: str, job: SimulatedJob, prober: Prober
) -> None:
    """Other consumers may use up a shard for minutes. An error in the driver would end
    the query.
    """
    job.fake.faults.add(throttle(), operation=operation, times=None)
    assert prober.ask([Probe(shard(0), TRIM_HORIZON, None)]) == [
        ProbeResult(shard(0), has_work=True, iterator=None, tip_ms=None, position=TRIM_HORIZON)
    ]


def test_a_shard_whose_iterators_expire_at_once_is_left_to_a_task(
    job: SimulatedJob, prober: Prober
) -> None:
    job.fake.faults.add(expired_iterator(), operation="GetRecords", times=2)
    assert ask(prober).has_work


def test_a_permanent_error_is_raised(job: SimulatedJob, prober: Prober) -> None:
    job.fake.faults.add(error("AccessDeniedException"), operation="GetRecords", times=None)
    with pytest.raises(AccessDeniedError):
        ask(prober)


def test_many_shards_are_asked_concurrently_and_each_answers_once() -> None:
    with simulated(shards=40) as job:
        job.put(1, key=job.key_of(7))
        prober = Prober(job.services().client)
        answers = prober.ask([Probe(shard(index), TRIM_HORIZON, None) for index in range(40)])
        while any(prober.is_asking(shard(index)) for index in range(40)):  # a busy machine
            wait(prober._asked.values())
            answers += prober.ask([])
        prober.close()
        answers.sort(key=lambda answer: answer.shard_id)
        assert [answer.shard_id for answer in answers] == [shard(index) for index in range(40)]
        assert [answer.shard_id for answer in answers if answer.has_work] == [shard(7)]


def test_nothing_is_asked_for_no_shards(prober: Prober) -> None:
    assert prober.ask([]) == []
