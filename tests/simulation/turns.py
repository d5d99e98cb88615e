"""The standalone spout and Spark, in turns, under one application name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.spout.config import SpoutConfig
from state.retry_policy import RetryPolicy
from tests.simulation.past import Past
from tests.simulation.spout_process import Books, SpoutProcess, letter_id, record_id
from tests.simulation.world import APPLICATION
from tests.support.spout.spout_world import LOOPS

if TYPE_CHECKING:
    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission

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
        config = SpoutConfig(
            stream=self.world.stream,
            application=APPLICATION,
            zookeeper="in-memory:2181",
            aws=self.world.settings.aws,
            starting_position=self.world.settings.starting_position.text,
            fail_on_data_loss=self.world.settings.fail_on_data_loss,
            dead_letter=self._take_letter,
            breaker_failures=None,
            owner_wait_s=0.0,
            message_timeout_s=None,
            retry=retry,
            max_unresolved_per_shard=self.random.choice((2, 1000)),
            prefetch_records=self.random.choice((3, 1000)),
            shard_refresh_interval_s=REFRESH_S,
            listeners=(books,),
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
