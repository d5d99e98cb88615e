"""Records that may have expired unread are reported as loss, and nothing else is. Sequences of
events across processes, and positions that the service refuses, lose no record. In simulated time.
"""

from __future__ import annotations

from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from kinesis_spout.checkpoints.application_moves import find_moves, write_moves
from kinesis_spout.checkpoints.moves import RequestedPosition
from kinesis_spout.errors import DataLossError, RequestRefusedError
from kinesis_spout.testing import end_without_children, expired_iterator
from kinesis_spout.testing.service import requests
from state.plan import PlanStatus, plan_number
from state.position import Position
from state.process import this_process
from state.sequence_number import SequenceNumber
from state.store.identity import StartPin
from state.store.shard_states import StateChange
from state.znodes.shard_states import ShardStateZnodes
from tests.support.simulated.micro_batch_engine import Crash
from tests.support.simulated.played_outcomes import tracked
from tests.support.simulated.simulated_driver import next_plan, pointer, read_all, run, run_tracked
from tests.support.simulated.simulated_job import (
    STREAM,
    SimulatedJob,
    in_both_modes,
    shard,
    simulated,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_job.driver.coordinator import Coordinator
    from state.shard_state import ShardState

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S


def test_a_shard_of_the_pin_is_loss_also_where_a_crash_came_between_the_first_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of two states was written. When the job is back, days later, the other shard has
    expired: what is left of its range are its children, which say nothing of it.
    """

    def save_first(states: ShardStateZnodes, changes: list[StateChange], **rest: Any) -> None:
        save(states, changes[:1], **rest)
        raise Crash("between two writes")

    with simulated(shards=2) as job:
        job.put(5, key=job.key_of(1))
        save = ShardStateZnodes.save
        first = job.coordinator()
        with monkeypatch.context() as patched:
            patched.setattr(ShardStateZnodes, "save", save_first)
            with pytest.raises(Crash):
                next_plan(first)
        first.close()
        assert set(job.states()) == {shard(0)}
        job.fake.split(STREAM, shard(1))
        job.clock.advance(2 * DAY_S)
        strict = job.coordinator()
        with pytest.raises(DataLossError, match=f"that were never read: {shard(1)};"):
            next_plan(strict)
        strict.close()
        tolerant = job.coordinator(fail_on_data_loss=False)
        next_plan(tolerant)
        with closing(job.store()) as store:
            never_read, lapsed = store.runs.read()[None].losses
        assert never_read.says.endswith(f"that were never read: {shard(1)}")
        assert "for longer than the retention of 24 h" in lapsed.says
        assert set(job.states()) == {shard(0), shard(2), shard(3)}


@pytest.mark.parametrize(
    ("pause_s", "wait_s", "said"),
    [
        (2 * DAY_S, 20.0, ["have not been read for longer than the retention of 24 h"]),
        (2 * DAY_S, HOUR_S, ["have not been read for longer", "were read after some"]),
        (DAY_S - HOUR_S, 2 * HOUR_S, ["were read after some"]),
    ],
)
def test_what_expires_soon_between_the_report_of_a_loss_and_its_read_is_of_the_same_loss(
    pause_s: float, wait_s: float, said: list[str]
) -> None:
    """Time passes from each plan to its tasks. After a long time it is a loss of its own."""
    with simulated(shards=1) as job:
        job.put(5)
        plan = next_plan(driver := job.coordinator())
        run(job, driver, plan)
        next_plan(driver, plan)
        driver.close()
        job.clock.advance(pause_s)
        job.put(5)
        driver = job.coordinator(fail_on_data_loss=False)
        plan = next_plan(driver, plan)
        job.clock.advance(wait_s)
        run(job, driver, plan)
        next_plan(driver, plan)
        with closing(job.store()) as store:
            losses = [one.says for one in store.runs.read()[None].losses]
        assert all(words in loss for words, loss in zip(said, losses, strict=True))


@in_both_modes
def test_a_finished_shard_of_the_pin_is_no_loss_when_its_state_is_removed(
    read_mode: dict[str, Any],
) -> None:
    """The service does not list it any more, and the job starts again."""
    with simulated(shards=1, read_mode=read_mode) as job:
        put = job.put(5)
        job.fake.split(STREAM, shard(0))
        driver = job.coordinator()
        plan = next_plan(driver)
        assert run(job, driver, plan) == put
        job.clock.advance(DAY_S / 2)
        plan = next_plan(driver, plan)
        run(job, driver, plan)
        job.clock.advance(DAY_S * 0.6)
        plan = next_plan(driver, plan)
        driver.close()
        assert shard(0) not in job.states()
        next_plan(job.coordinator(), plan)


def test_whole_generations_that_came_and_went_unobserved_are_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No listed shard overlapped in time with a shard that has a state. The loss is reported once:
    then the state of the shard without observed children is removed.
    """
    with simulated(shards=1, listing_delay_ms=120_000) as job:
        job.clock.advance(121)
        job.fake.faults.add(end_without_children(), operation="GetRecords", times=None)
        job.put(1)
        job.fake.split(STREAM, shard(0))
        driver = job.coordinator()
        plan = next_plan(driver)
        run(job, driver, plan)
        assert next_plan(driver, plan) == plan
        driver.close()
        job.put(9)
        pass_generations(job, 60)
        told = f"Kinesis never listed their child shards: {shard(0)}"
        with pytest.raises(DataLossError, match="that were never read"):
            next_plan(driver := job.coordinator(), plan)
        driver.close()
        with caplog.at_level("WARNING", "kinesis_spout"):
            next_plan(driver := job.coordinator(fail_on_data_loss=False), plan)
        assert told in caplog.text
        driver.close()
        next_plan(job.coordinator(), plan)
        assert set(job.states()) == {shard(7), shard(8)}


def test_generations_that_came_and_went_during_an_absence_are_reported_once() -> None:
    """By the run whose user accepts the loss. The runs after it find nothing that is lost since:
    not for want of children of a shard that was given up, and of its parents.
    """
    with simulated(shards=1) as job:
        plan = run_once(job)
        job.fake.split(STREAM, shard(0))
        job.clock.advance(61)
        plan = run_once(job, plan)
        assert set(job.states()) == {shard(0), shard(1), shard(2)}
        pass_generations(job, DAY_S)
        plan = run_once(job, plan, fail_on_data_loss=False)
        for _ in range(3):
            job.clock.advance(HOUR_S)
            plan = run_once(job, plan)
        assert set(job.states()) == {shard(7), shard(8)}


def test_what_the_last_run_has_seen_of_an_idle_shard_counts_after_most_of_the_retention() -> None:
    """Also if it was seen less than an hour before, which a job that runs on does not store."""
    with simulated(shards=2) as job:
        plan = ""
        for hours in (0, 0.9, 23.9):
            job.clock.advance(hours * HOUR_S)
            job.put(1, key=job.key_of(0))
            plan = run_once(job, plan)


@pytest.mark.parametrize("is_kept", [True, False], ids=["an old record is there", "none is"])
def test_a_longer_retention_brings_nothing_back(*, is_kept: bool) -> None:
    """Records expired while a job was down, and before it is back the retention is raised. If a
    record is left that came before them, it was raised in time. The oldest record of a shard may
    come after empty pages, and iterators may expire at once.
    """
    with simulated(shards=2) as job:
        for number in range(2):
            job.fake.insert_empty_pages(STREAM, shard(number), 4)
        job.put(1, key=job.key_of(1))
        plan = run_once(job)
        put = job.put(3, key=job.key_of(0))
        job.clock.advance(0.9 * DAY_S if is_kept else 2 * DAY_S)
        job.fake.increase_stream_retention_period(
            requests.ChangeRetention(stream_name=STREAM, retention_period_hours=168)
        )
        job.clock.advance(DAY_S)
        driver = job.coordinator()
        # Of these iterators, the driver's probe of each shard takes two.
        job.fake.faults.add(expired_iterator(), operation="GetRecords", times=6)
        if is_kept:
            assert read_all(job, driver, plan)[1] == put
            return
        with pytest.raises(DataLossError, match=rf"was raised to 168 h: {shard(0)}.*{shard(1)}"):
            read_all(job, driver, plan)
        driver.close()
        job.clock.advance(DAY_S)  # what is known of the earlier retention is stored
        plan = run_once(job, plan, fail_on_data_loss=False)
        job.clock.advance(6 * DAY_S)
        put = job.put(3, key=job.key_of(0))
        assert read_all(job, job.coordinator(), plan)[1] == put


@pytest.mark.parametrize("ends", ["never", "before it settles", "when it settles"])
def test_a_batch_that_reads_on_behind_a_lowered_retention_is_a_loss(ends: str) -> None:
    """The process may end before the next listing is due. Then another process reports the loss."""
    with simulated(shards=1) as job:
        stream = job.fake.stream(STREAM)
        stream.retention_hours = 168
        job.put(1)
        plan = run_once(job)
        job.put(1)
        job.clock.advance(30 * HOUR_S)
        job.put(1)
        driver = job.coordinator()
        plan = next_plan(driver, plan)
        stream.retention_hours = 24
        assert len(run(job, driver, plan)) == 1
        if ends == "when it settles":
            with pytest.raises(DataLossError, match="retention of 24 h"):
                driver.settle(plan)
        if ends != "never":
            driver.close()
            driver = job.coordinator()
        job.clock.advance(61)
        with pytest.raises(DataLossError, match="retention of 24 h"):
            next_plan(driver, plan)


def pass_generations(job: SimulatedJob, apart_s: float) -> None:
    """Shards 1 and 2 are merged, and so on up to shards 7 and 8. Then two days pass."""
    for parents in ((1, 2), (3,), (4, 5), (6,)):
        job.clock.advance(apart_s)
        change = job.fake.merge if len(parents) == 2 else job.fake.split
        change(STREAM, *map(shard, parents))
    job.clock.advance(2 * DAY_S)


def run_once(job: SimulatedJob, plan: str = "", **options: Any) -> str:
    """An AvailableNow run; the last plan."""
    driver = job.coordinator(**options)
    driver.prepare_available_now()
    plan, _ = read_all(job, driver, plan)
    driver.close()
    return plan


@in_both_modes
def test_a_shard_that_was_first_listed_late_may_have_lost_what_came_since_the_last_listing(
    one: SimulatedJob,
) -> None:
    """The job is down for most of the retention twice: records of the first downtime expire in the
    second.
    """
    read_all(one, driver := one.coordinator())
    driver.close()
    one.fake.split(STREAM, shard(0))
    one.put(9)
    one.clock.advance(0.7 * DAY_S)
    driver = one.coordinator()
    plan = next_plan(driver)
    assert run(one, driver, plan) == []
    plan = next_plan(driver, plan)
    assert one.states()[shard(0)].end_was_read
    driver.close()
    one.clock.advance(0.7 * DAY_S)
    with pytest.raises(DataLossError, match=f"longer than the retention.*{shard(1)}"):
        next_plan(one.coordinator(), plan)


@in_both_modes
def test_a_batch_replayed_after_the_retention_reports_the_shards_that_it_can_no_longer_read(
    job: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """Once settled, the shard would look as if nothing had been missed."""
    job.put(5, key=job.key_of(0))
    before = job.coordinator()
    plan = next_plan(before)
    before.close()
    job.clock.advance(2 * DAY_S)
    put = job.put(1, key=job.key_of(0))
    strict = job.coordinator()
    with pytest.raises(DataLossError, match=f"longer than the retention.*{shard(0)}"):
        run(job, strict, plan)
    strict.close()
    lenient = job.coordinator(fail_on_data_loss=False)
    with caplog.at_level("WARNING", "kinesis_spout"):
        assert run(job, lenient, plan) == put
    assert f"{shard(0)} (read position TRIM_HORIZON; records" in caplog.text


# idle, and not read -----------------------------------------------------------------------------


def test_a_backlog_that_expires_soon_after_the_first_start_is_a_loss(job: SimulatedJob) -> None:
    """Its records are a day old nearly, whenever the application began: while it was down, and
    while it runs.
    """
    for _ in range(3):
        job.put(10, key=job.key_of(0))
        job.clock.advance(2 * HOUR_S)
    job.clock.advance(17 * HOUR_S)
    first = job.coordinator(max_records_per_shard=5)
    start = next_plan(first)
    assert len(run(job, first, start)) == 5
    start = next_plan(first, start)
    first.close()
    job.clock.advance(2 * HOUR_S)
    again = job.coordinator(max_records_per_shard=5)
    with pytest.raises(DataLossError, match=rf"retention of 24 h.*{shard(0)}"):
        next_plan(again, start)


def test_a_shard_that_loses_records_again_is_reported_again(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """By the same process, after the shard was read on."""
    driver = one.coordinator(fail_on_data_loss=False)
    plan, _ = read_all(one, driver)
    for _ in range(2):
        one.put(3)
        one.clock.advance(2 * DAY_S)
        kept = one.put(2)
        caplog.clear()
        with caplog.at_level("WARNING", "kinesis_spout"):
            plan, found = read_all(one, driver, plan)
        assert found == kept
        assert f"longer than the retention of 24 h: {shard(0)}" in caplog.text
    assert driver.report()["dataLosses"] == 2
    with closing(one.store()) as store:
        assert len(store.runs.read()[None].losses) == 2


def change_state(job: SimulatedJob, change: Callable[[ShardState], ShardState]) -> None:
    """Another process with the ownership changes the state of the first shard."""
    with closing(job.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
        stored = store.shard_states.load()[shard(0)]
        store.shard_states.save([StateChange(before=stored, after=change(stored.state))])


# a lost ZooKeeper and a surviving checkpoint of Spark
# --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("start", ["LATEST", "TRIM_HORIZON"])
def test_a_plan_that_spark_knows_without_a_start_in_zookeeper_is_data_loss(
    start: str, one: SimulatedJob
) -> None:
    """Also when the query begins with the replay of its first batch. It stops at each restart. To
    the source, an application or a stream of another name is one that has lost its state.
    """
    one.put(5)
    said = r"batch 5-ab, .* application etl .*\. If applicationName, the stream .*failOnDataLoss"
    for begin in (lambda driver: next_plan(driver, "5-ab"), lambda driver: driver.tasks("5-ab")):
        again = one.coordinator(starting_position=start)
        with pytest.raises(DataLossError, match=said):
            begin(again)
        again.close()
        assert one.store().identity.read_start() is None


@pytest.mark.parametrize("begin", ["next_plan", "tasks"])
def test_with_fail_on_data_loss_off_a_lost_application_starts_at_the_oldest_record(
    begin: str, one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """A start at LATEST would skip all that came while the job was down."""
    put = one.put(5)
    one.clock.advance(60)  # LATEST is pinned a little before now
    driver = one.coordinator(starting_position="LATEST", fail_on_data_loss=False)
    with caplog.at_level("WARNING", "kinesis_spout"):
        if begin == "tasks":
            assert driver.tasks("5-ab") == {}
        assert read_all(one, driver, "5-ab")[1] == put
    assert "records may be lost" in caplog.text
    assert "read from its oldest record" in caplog.text


def test_states_that_name_a_settled_plan_are_evidence_of_a_lost_start(one: SimulatedJob) -> None:
    """Spark's checkpoint location is new, so only they tell."""
    one.put(2)
    driver = one.coordinator()
    read_all(one, driver)
    driver.close()
    one.backend.remove([f"{one.store().paths.base}/start"])
    with pytest.raises(DataLossError, match="has no state"):
        next_plan(one.coordinator(starting_position="LATEST"))


def test_a_query_that_goes_on_after_a_reset_is_told_of_it(one: SimulatedJob) -> None:
    """And not that ZooKeeper was lost. Once it has begun again, the reset is forgotten."""
    one.put(2)
    driver = one.coordinator()
    plan = next_plan(driver)
    driver.close()
    with closing(one.store()) as store:
        store.identity.reset(this_process(one.clock.now_ms()), timeout_s=10)
    again = one.coordinator()
    with pytest.raises(
        DataLossError, match=r"kinesis-spout reset \(pid \d+ on .*\) has removed .*\. Give"
    ):
        next_plan(again, plan)
    again.close()
    fresh = one.coordinator()
    next_plan(fresh)
    fresh.close()
    with closing(one.store()) as store:
        assert store.identity.read_reset() is None


@in_both_modes
def test_a_plan_of_a_shard_that_another_process_has_read_on_is_not_settled(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark, then the standalone spout, then Spark, under one application name."""
    put = one.put(5)
    driver = one.coordinator()
    plan = next_plan(driver)
    assert run(one, driver, plan) == put
    driver.close()
    ahead = SequenceNumber(put[2])
    change_state(one, lambda s: replace(s, checkpoint=ahead, read_position=Position.after(ahead)))
    again = one.coordinator()
    with caplog.at_level("WARNING", "kinesis_spout"):
        _, found = read_all(one, again, plan)
    assert found == put[3:]
    assert f"batch {plan} does not fit the state of shard {shard(0)}" in caplog.text
    assert one.states()[shard(0)].checkpoint == SequenceNumber(put[-1])


def lose_state(job: SimulatedJob) -> None:
    path = f"{job.store().paths.base}/{shard(0)}"
    job.backend.remove([path, f"{path}/state"])


@in_both_modes
@pytest.mark.parametrize("was_read", [True, False])
def test_a_plan_of_a_state_that_was_removed_by_hand_is_not_settled_into_its_successor(
    one: SimulatedJob, *, was_read: bool
) -> None:
    """The successor starts at the pin: settling would skip what lies between. Nor where that is the
    position of the plan: the removed state may have said more, such as that all was to be read
    again.
    """
    put = one.put(5)
    driver = one.coordinator()
    start = read_all(one, driver)[0] if was_read else ""
    put += one.put(5)
    plan = next_plan(driver, start)
    run(one, driver, plan)
    driver.close()
    lose_state(one)
    assert read_all(one, one.coordinator(), plan)[1] == put


def test_the_number_of_a_plan_is_above_those_that_the_states_name(one: SimulatedJob) -> None:
    """The states were moved to another ZooKeeper, or `/plan` was removed by hand. A lower number
    would be settled already, as far as the states know.
    """
    one.put(5)
    driver = one.coordinator()
    driver.open()
    read_all(one, driver)
    driver.close()
    change_state(one, lambda state: replace(state, settled_plan="70-ab"))
    put = one.put(5)
    outcomes = tracked(one, lambda row: int(row["sequenceNumber"]) == put[2])
    again = one.coordinator()
    plan = next_plan(again)
    assert plan_number(plan) > 70
    run_tracked(one, again, plan, outcomes)
    next_plan(again, plan)
    assert [record.first.sequence for record in one.states()[shard(0)].unresolved] == [put[2]]


def test_an_available_now_run_that_dies_after_settling_has_listed_the_children() -> None:
    """Their records may expire before the next run: only a state tells that they were there."""
    with simulated(shards=1) as job:
        job.put(3)
        driver = job.coordinator()
        driver.prepare_available_now()
        plan = next_plan(driver)
        run(job, driver, plan)
        job.fake.faults.add(end_without_children(), operation="GetRecords", times=None)
        job.fake.split(STREAM, shard(0))
        job.clock.advance(300)
        job.put(4)
        driver.settle(plan)
        driver.close()  # before the next listing
        assert pointer(job).status is PlanStatus.SETTLED
        assert set(job.states()) == {shard(0), shard(1), shard(2)}


def test_records_that_expire_between_two_pages_of_a_read_are_data_loss(one: SimulatedJob) -> None:
    """Each page is compared with the one before it."""
    read_all(one, driver := one.coordinator())
    one.put(2_501)  # the first page has one less
    one.clock.advance(DAY_S - HOUR_S)
    one.put(1)
    plan = next_plan(driver)
    client = one.executor().client
    fetch, pages = client.get_records, count(1)

    def slow_after_the_first(*args: Any, **named: Any) -> Any:
        if next(pages) == 2:
            one.clock.advance(2 * HOUR_S)
        return fetch(*args, **named)

    client.get_records = slow_after_the_first  # type: ignore[method-assign]  # one slow answer
    assert len(run(one, driver, plan)) == 2_501  # the last of the first ones has expired
    with pytest.raises(DataLossError, match="read after some"):
        next_plan(driver, plan)


@pytest.mark.parametrize("is_probed", [True, False], ids=["by a probe", "by a task"])
def test_a_stored_time_that_the_service_has_not_reached_loses_no_record(
    one: SimulatedJob, caplog: pytest.LogCaptureFixture, *, is_probed: bool
) -> None:
    """Its clock was set back, and the shard has had no record since its start."""
    one.clock.advance(2 * HOUR_S)
    driver = probing_coordinator(one, starting_position="LATEST", is_probed=is_probed)
    driver.open()
    plan, read = read_all(one, driver) if is_probed else ("", [])
    assert read == []
    driver.close()
    one.clock.set_back(HOUR_S)
    put = one.put(3)
    again = probing_coordinator(one, is_probed=is_probed)
    plan = next_plan(again, plan)
    assert run(one, again, plan) == put
    assert "was set back, so position" in caplog.text


def test_a_stored_number_that_the_service_refuses_can_be_moved_away_from(
    one: SimulatedJob,
) -> None:
    """An earlier version stored it, in the start and in the shard's state. The error names the
    shard and how to move it.
    """
    numbers = one.put(2)
    strange = Position.after(SequenceNumber(numbers[0] * 7))
    with closing(one.store()) as store:
        store.identity.pin_start(
            StartPin(time_ms=0, requested=str(strange), position=strange, shards=(shard(0),))
        )
    for _ in range(2):
        driver = probing_coordinator(one)
        with pytest.raises(
            RequestRefusedError, match=f"{shard(0)} .*did not come from this stream.*checkpoint set"
        ):
            next_plan(driver)
        driver.close()
    assert one.states()[shard(0)].read_position == strange
    with closing(one.client()) as client, closing(one.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
        oldest = RequestedPosition.parse("TRIM_HORIZON")
        found = find_moves(client, store, oldest, (), clock=one.clock, max_counted=9)
        write_moves(store, found, one.clock.now_ms)
    assert read_all(one, probing_coordinator(one))[1] == numbers


def probing_coordinator(
    one: SimulatedJob, *, is_probed: bool = True, **options: Any
) -> Coordinator:
    return one.coordinator(**options, probe_max_shards=128 if is_probed else 0)
