"""Steps of the query: batches, crashes, restarts, zombies, outages, and turns of a standalone spout
under the same application name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.errors import DataLossError
from state.errors import PlanClosedError, StaleOwnerError, TaskLogError
from state.report import OnFailure
from state.retry_policy import RetryPolicy
from tests.simulation.past import Past
from tests.simulation.spout_process import Books, SpoutProcess, config_of, letter_id, record_id
from tests.support.simulated.micro_batch_engine import CRASHES, TRACKED_CRASHES
from tests.support.simulated.played_outcomes import end_of
from tests.support.spout.spout_world import LOOPS

if TYPE_CHECKING:
    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission

MOST_WRITES = 14
OUTAGE_S = 30.0
OUTAGE_RECORDS = 150
MOST_BATCHES = (
    3_000  # in order, and with every other record failing, some batches bring no more than one
)


class QuerySteps(Past):
    def do_batch(self) -> None:
        self.note(self.run_batch())

    def read_little(self) -> None:
        most = self.world.settings.max_records_per_shard
        self.world.change(max_records_per_shard=self.random.choice((1, 3)))
        for _ in range(self.random.choice((1, 2))):
            self.run_batch()
        self.job.stop()
        self.world.change(max_records_per_shard=most)

    def do_crash(self) -> None:
        where = self.random.choice(CRASHES if self.outcomes is None else TRACKED_CRASHES)
        self.note(where)
        self.note(self.run_batch(where))

    def do_crash_at_write(self) -> None:
        self.job.stop()
        self.job.dies_at = (self.random.randrange(MOST_WRITES), self.random.random() < 0.5)
        self.note(self.job.dies_at)
        try:
            for _ in range(3):
                self.note(self.run_batch())
        finally:
            self.job.dies_at = None
            self.job.stop()

    def do_restart(self) -> None:
        self.job.stop()

    def do_change_of_aggregates(self) -> None:
        """The query ends, perhaps within a batch, and starts with another value of the option."""
        if self.random.random() < 0.5:
            self.do_crash()
        self.job.stop()
        self.world.change(aggregated_records=self.random.choice(("unpack", "raw")))
        self.note(self.world.settings.aggregated_records)
        self.count("times that the option of aggregates was set")
        self.note(self.run_batch())

    def do_available_now(self) -> None:
        """An AvailableNow run that ends after reading at least all that was there at its start."""
        self.job.stop()
        there = self.world.ids()
        begun_at_fault = len(self.world.fake.faults.struck)
        is_out = (
            self.failing is not None
            and self.failing.outage_until_s > self.world.clock.monotonic_s()
        )
        self.query.available_now = True
        self.left_unread = False
        self.count("AvailableNow runs")
        begun_ms = 0
        try:
            for _ in range(MOST_BATCHES):
                if self.query.reader is None:
                    begun_ms = self.world.clock.now_ms()
                if not self.run_batch():
                    break
            else:
                raise AssertionError(
                    f"an AvailableNow run has not ended after {MOST_BATCHES} batches"
                )
        finally:
            self.query.available_now = False
            self.job.stop()
        missing = there - self.resolved() - self.queued()
        if self.days_passed:
            missing &= self.world.kept()
        # In an outage nothing new is read, and behind a failure nothing where order matters; the
        # run waits only so long.
        in_order = (
            self.outcomes is not None and self.outcomes.policy.on_failure is not OnFailure.CONTINUE
        )
        # What seems to be a shard's tip is the end of it for such a run.
        is_excused = (
            is_out
            or self.was_misled(begun_at_fault)
            or (in_order and self.left_unread)
            or self.world.is_paused
        )
        assert is_excused or not missing, (
            f"an AvailableNow run ended early: {sorted(missing)[:5]} and {len(missing)} in all"
        )
        if not (is_excused or self.left_unread):
            self.complete_ms = begun_ms
            self.least_retention_ms = self.world.retention_ms

    def do_zombie(self) -> None:
        """A task that nobody waits for continues to read."""
        if not self.job.kept:
            return
        partition = self.random.choice(self.job.kept)
        self.note((partition.plan_id, partition.task))
        batches = self.query.started().attempt(self.world, partition)
        try:
            rows = [row for batch in batches for row in batch.to_pylist()]
        except PlanClosedError:
            self.count("zombie tasks that were refused")
            return
        except TaskLogError:
            self.count("zombie tasks whose log was removed")
            return
        except DataLossError as error:
            self.go_on_after(error)
            return
        self.count("zombie tasks that read what was read")
        found = {name for row in rows for name in self.world.names(row)}
        assert found <= self.world.ids() | self.world.foreign

    def do_stale_driver(self) -> None:
        """A driver whose session has lapsed continues before it notices that another one has taken
        over.
        """
        stale = self.query.started()
        start = (
            self.query.offsets[self.query.committed]
            if self.query.committed >= 0
            else stale.initialOffset()
        )
        self.note(self.run_batch())
        if self.query.reader is not stale:
            return
        self.query.reader = None
        for session in stale.sessions.values():
            self.world.backend.expire(session)
        self.note(self.run_batch())
        before = self.written()
        try:
            stale.latestOffset(
                self.random.choice([start, *self.query.offsets]), stale.getDefaultReadLimit()
            )
        except StaleOwnerError:
            self.count("stale drivers that were refused")
        except DataLossError as error:
            self.go_on_after(error)
        finally:
            stale.stop()
        assert self.written() == before, "a stale driver has written"

    def do_lose_session(self) -> None:
        self.world.backend.expire(self.query.started().sessions[self.world.stream])
        self.count("sessions that were lost")

    def do_outage(self) -> None:
        """Every record fails for a while."""
        if self.failing is not None:
            self.failing.outage_until_s = self.world.clock.monotonic_s() + OUTAGE_S
            self.world.put(3 if self.world.is_narrow else OUTAGE_RECORDS)
            self.note(self.run_batch())

    def queued(self) -> set[str]:
        """Records that wait for their retry."""
        found = set()
        for shard, state in self.world.states().items():
            for one in state.unresolved:
                numbers = self.world.records.get(shard, [])
                found |= {f"{shard}:{n}" for n in numbers if one.first <= n <= end_of(one)}
        return found


REFRESH_S = 1.0


class Turns(Past):
    def do_spout_turn(self) -> None:
        """A standalone spout takes the application over, works for a while, and leaves it to Spark.

        An application that tracks its records keeps its attempts: the spout acks or leaves them,
        and is closed. In any other one it fails some, and may crash.
        """
        states = self.world.states().values()
        if any(one.count > 1 for state in states for one in state.unresolved):
            return  # its books know single records only
        self.job.stop()
        process = self._open_spout()
        self.thrown_away = True  # Spark may replay what it had read before
        for _ in range(self.random.choice((1, 5, 20))):
            self._take_turn(process)
            self._look_after(process)
        if self.outcomes is None and self.random.random() < 0.5:
            process.crash()
            self.note("crashes")
        else:
            process.close()
            self.note("is closed")
        self.hear()
        self.count("turns of a standalone spout")

    def _open_spout(self) -> SpoutProcess:
        retry = (
            RetryPolicy(retry_limit=self.random.choice((0, 1, 3)), first_delay_ms=500)
            if self.outcomes is None
            else self.outcomes.policy.retry
        )
        books = Books(self.done, set())
        config = config_of(
            self.world,
            books,
            self._take_letter,
            message_timeout_s=None,
            retry=retry,
            max_unresolved_per_shard=self.random.choice((2, 1000)),
            prefetch_records=self.random.choice((3, 1000)),
            shard_refresh_interval_s=REFRESH_S,
        )
        return SpoutProcess(self.world, books, config)

    def _take_letter(self, letter: Letter) -> None:
        self.spout_letters.add(letter_id(letter))

    def _take_turn(self, process: SpoutProcess) -> None:
        if self.random.random() < 0.2:
            self.world.put(self.random.choice((1, 5)))
        self.world.clock.advance(self.random.choice((0, 0.1, REFRESH_S)))
        for name in self.random.sample(LOOPS, len(LOOPS)):
            process.loops.take(name)
        for _ in range(self.random.choice((1, 3, 30))):
            if process.error is not None or (emission := process.emit()) is None:
                break
            self._deliver(emission)
        for emission in list(process.books.pending.values()):
            self._answer(emission)

    def _deliver(self, emission: SpoutEmission) -> None:
        self.count("records that the spout emitted in its turn")
        row = {
            "shardId": emission.shard_id,
            "sequenceNumber": emission.number,
            "partitionKey": emission.partition_key,
        }
        self.job.delivered.append(row)

    def _answer(self, emission: SpoutEmission) -> None:
        kind = self.random.random()
        if kind < 0.6:
            emission.ack()
            if self.failing is not None:
                self.failing.spared.add(record_id(emission))
        elif kind < 0.8 and self.outcomes is None:
            emission.fail("no")

    def _look_after(self, process: SpoutProcess) -> None:
        if process.error is not None:
            raise AssertionError(
                f"the spout was stopped by {type(process.error).__name__}: {process.error}"
            ) from process.error
        process.check()
