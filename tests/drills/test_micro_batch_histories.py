"""Random histories of a query: no record is lost, no checkpoint passes an unread one, and keys stay
in order over resharding.
"""

from __future__ import annotations

import random

import pytest

from kinesis_spout.clock import SystemClock
from kinesis_spout.testing import FakeKinesisSettings
from spark_job.process_services import ProcessServices, open_store
from state.report import OnFailure
from tests.support.kinesis.services import create_stream, kinesis_client, serve
from tests.support.simulated.micro_batch_history import History, RandomReads
from tests.support.simulated.played_outcomes import PlayedOutcomes, policy
from tests.support.simulated.tracked_history import TrackedHistory, random_failures
from tests.support.spark.source import STREAM, ShiftedClock, StreamUnderTest

HISTORIES = 2  # a check of the seams; tests/simulation plays many more, faster
TRACKED_HISTORIES = 1  # slower: what fails comes up to four times
STEPS = 30


def play(seed: int, zookeeper: str, *, tracked: bool = False) -> None:
    """One history from its seed; a broken promise is raised with the seed and the log."""
    chance = random.Random(seed)  # noqa: S311  # a history to repeat, not a secret
    clock = ShiftedClock()
    service = FakeKinesisSettings(
        end_with_last_records=chance.random() < 0.5, listing_delay_ms=chance.choice((0, 0, 300))
    )
    with serve(clock=clock, settings=service) as fake, kinesis_client(fake.endpoint_url) as client:
        create_stream(client, STREAM, shards=chance.choice((1, 2, 4)))
        stream = StreamUnderTest(client, fake.endpoint_url, zookeeper, clock)
        clock.advance(1)  # the first shards are listed by now
        settings = stream.settings(
            idle_wait="250ms",
            max_records_per_shard=chance.choice((3, 20, 1000)),
            max_records_per_trigger=chance.choice((None, None, 2, 25)),
            max_bytes_per_task=chance.choice(("30B", "64MiB")),
            max_tasks=chance.choice((1, 2, 64)),
            probe_max_shards=chance.choice((0, 100, 100)),
            idle_interval="400ms",
            states_per_write=chance.choice((1, 2, 500)),
            max_unresolved_per_shard=chance.choice((1, 6, 100_000)),
        )
        engine = RandomReads(settings, random=chance)
        history = (TrackedHistory if tracked else History)(stream, fake.model, chance, engine)
        if tracked:
            outcomes = policy(chance.choice(list(OnFailure)), retry_limit=chance.choice((0, 1, 3)))
            engine.tracked = PlayedOutcomes(
                lambda: open_store(settings),
                SystemClock().now_ms,
                random_failures(chance),
                outcomes,
            )
        try:
            for _ in range(STEPS):
                history.step()
            history.finish()
        except Exception as exc:
            told = "\n".join(history.log)
            raise AssertionError(f"seed {seed}, {service}, {settings}:\n{told}\n{exc}") from exc
        finally:
            history.engine.stop()
            ProcessServices.forget_all()


@pytest.mark.parametrize("number", range(HISTORIES))
def test_no_history_loses_a_record_or_passes_an_unread_one(
    number: int, zookeeper_chroot: str
) -> None:
    """Each run plays others: pytest-randomly seeds `random` in each run and prints its seed."""
    play(random.getrandbits(32) + number, zookeeper_chroot)  # a history to repeat, not a secret


@pytest.mark.parametrize("number", range(TRACKED_HISTORIES))
def test_no_history_in_which_records_fail_loses_one_or_acks_one_that_waits(
    number: int, zookeeper_chroot: str
) -> None:
    """Some fail once, some always, some wait for others. In the end each is processed or
    dead-lettered.
    """
    play(
        random.getrandbits(32) + number, zookeeper_chroot, tracked=True
    )  # a history to repeat, not a secret
