"""A consumer as a user would write it: it reports each delivery and each outcome in a line of a
file, keeps some records for a while, and answers them in any order.

python -m kinesis_spout.drills.spout_program '{"stream": ..., ...}'     (`JobArguments`)

It ends in order at SIGTERM, and when the process that started it is gone. An error of the spout
ends it with a traceback.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from random import Random
from typing import TYPE_CHECKING

import msgspec
from tenacity import RetryError, Retrying, before_sleep_log, retry_if_exception, wait_fixed

from kinesis_spout.config import ReadRate
from kinesis_spout.drills.consumer import (
    APPLICATION,
    RETRY_LIMIT,
    Ending,
    JobArguments,
    Teller,
    is_poison,
    key_and_number,
    letter_told,
    told,
)
from kinesis_spout.drills.history.events import Fate, Step, Told, fate
from kinesis_spout.drills.setting import Need
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig
from kinesis_spout.spout.listener import SpoutListener
from kinesis_spout.spout.outages import is_transient
from state.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission

log = logging.getLogger("kinesis_spout")
MAX_HELD = 40
_OPENING_PAUSE_S = 0.5


class Consumer(SpoutListener):
    """Answers some of the records that it has after each new one, and all when none comes."""

    def __init__(self, given: JobArguments, ending: Ending) -> None:
        self._random = Random(given.seed)  # noqa: S311  # to be repeated, not a secret
        self._is_poisoned = Need.POISON in given.setting.has
        self._teller = Teller(given.path)
        self._held: list[SpoutEmission] = []
        self._has_new = False
        self._ending = ending

    def consume(self, spout: KinesisSpout) -> None:
        for emission in spout.emissions(self._stop):
            self._tell(Step.GOT, emission)
            if self._is_poisoned and is_poison(emission.data):
                os.kill(os.getpid(), signal.SIGKILL)
            self._held.append(emission)
            self._has_new = True

    def letter(self, letter: Letter) -> None:
        self._teller.tell(letter_told(letter))

    def checkpointed(self, shard_id: str, checkpoint: str | None) -> None:  # noqa: ARG002  # the listener's
        self._teller.tell(Told(time.monotonic_ns(), Step.COMMIT, shard_id, ""))

    def _stop(self) -> bool:
        """Called after each emission, and before each wait for one."""
        most = self._random.randrange(MAX_HELD) if self._has_new else 0
        self._has_new = False
        while len(self._held) > most:
            self._answer(self._held.pop(self._random.randrange(len(self._held))))
        return self._ending.is_due

    def _answer(self, emission: SpoutEmission) -> None:
        of = fate(key_and_number(emission.data, emission.partition_key)[1])
        if of is Fate.REJECTED:
            self._tell(Step.REJECT, emission)
            emission.fail("rejected", retry=False)
        elif emission.attempt <= of.failures:
            self._tell(Step.FAIL, emission)
            emission.fail("not yet")
        else:
            self._tell(Step.ACK, emission)
            emission.ack()

    def _tell(self, step: Step, of: SpoutEmission) -> None:
        record = of.shard_id, of.sequence_number, of.data, of.partition_key
        self._teller.tell(told(step, record, of.attempt))


def config(given: JobArguments, consumer: Consumer) -> SpoutConfig:
    return SpoutConfig(
        stream=given.stream,
        application=APPLICATION,
        zookeeper=given.zookeeper,
        aws=given.aws,
        starting_position="TRIM_HORIZON",
        rate=ReadRate(reads_per_second=20, bytes_per_second=1e9),
        retry=RetryPolicy(retry_limit=RETRY_LIMIT, first_delay_ms=200, max_delay_ms=1_000),
        commit_interval_s=1.0,
        zookeeper_session_timeout_s=given.session_timeout_s,
        idle_poll_s=0.1,
        read_mode="efo" if given.setting.efo else "polling",
        consumer_name=APPLICATION if given.setting.efo else None,
        shard_refresh_interval_s=2.0,
        task_index=given.task,
        total_tasks=given.tasks,
        dead_letter=consumer.letter,
        listeners=(consumer,),
    )


def main() -> None:
    given = msgspec.json.decode(sys.argv[1], type=JobArguments)
    ending = Ending()
    consumer = Consumer(given, ending)
    spout = KinesisSpout(config(given, consumer))
    opening = Retrying(  # whatever outage there is at the moment
        retry=retry_if_exception(lambda exc: isinstance(exc, Exception) and is_transient(exc)),
        wait=wait_fixed(_OPENING_PAUSE_S),
        stop=lambda _: ending.is_due,
        before_sleep=before_sleep_log(log, logging.WARNING),
    )
    try:
        opening(spout.open)
    except RetryError:
        return  # the end came first
    try:
        consumer.consume(spout)
    finally:
        spout.close()


if __name__ == "__main__":
    main()
