"""Whatever befalls a query, no record is lost, no checkpoint passes an unread one, and keys stay in order over resharding."""

from __future__ import annotations

import random

import pytest

from kinesis_spout.testing import FakeKinesisSettings
from spark_job.worker import WorkerServices
from tests.support.kinesis import create_stream, kinesis_client, serve
from tests.support.micro_batch_history import History, RandomReads
from tests.support.source import STREAM, ShiftedClock, StreamUnderTest

HISTORIES = 12
STEPS = 30


def play(seed: int, zookeeper: str) -> None:
    """One history from its seed; a broken promise is raised with the seed and all that happened."""
    chance = random.Random(seed)  # noqa: S311  # a history to repeat, not a secret
    clock = ShiftedClock()
    service = FakeKinesisSettings(end_with_last_records=chance.random() < 0.5, listing_delay_ms=chance.choice((0, 0, 300)))
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
        )
        history = History(stream, fake.model, chance, RandomReads(settings, random=chance))
        try:
            for _ in range(STEPS):
                history.step()
            history.finish()
        except Exception as exc:
            told = "\n".join(history.log)
            raise AssertionError(f"seed {seed}, {service}, {settings}:\n{told}\n{exc}") from exc
        finally:
            history.engine.stop()
            WorkerServices.forget_all()


@pytest.mark.parametrize("number", range(HISTORIES))
def test_no_history_loses_a_record_or_passes_an_unread_one(number: int, zookeeper_chroot: str) -> None:
    """Each run plays others: pytest-randomly seeds `random` anew, and prints its seed."""
    play(random.getrandbits(32) + number, zookeeper_chroot)  # a history to repeat, not a secret
