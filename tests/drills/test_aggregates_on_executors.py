"""Aggregates on LocalStack, with executors in processes of their own: the acker over their user
records, and a batch read of a range with reshards in it.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.aggregates.random_producer import RandomProducer
from tests.support.aggregates.wire import aggregate_of
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY, wait_until_active
from tests.support.spark import acker_over_aggregates, range_read_twice
from tests.support.spark.source import STREAM
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.spark.source import StreamUnderTest
    from tests.support.spark.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.emulator, pytest.mark.localstack]
AGGREGATES, USERS = 30, 40
LOST, NEVER = 577, 1_010
RETRY_LIMIT = 2


def text(number: int) -> bytes:
    """The payload of a user record: four words, two of them short."""
    word = {LOST: "lost", NEVER: "never"}.get(number, "good")
    return b"%d at %s of" % (number, word.encode())


def test_the_acker_fails_the_user_record_of_which_a_row_was_lost_and_no_other(
    localstack_orders: StreamUnderTest, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """It alone of its aggregate comes again, and is written then; one that is lost each time is
    dead-lettered alone.
    """
    stream = localstack_orders
    ids: dict[int, str] = {}
    for number in range(AGGREGATES):
        users = range(number * USERS, (number + 1) * USERS)
        key = f"key {number}"
        record_id = stream.put_record(key, aggregate_of([text(n) for n in users], (key,)))
        ids |= {n: record_id + (f".{n % USERS}" if n % USERS else "") for n in users}
    answer = spark_cluster.run(
        {
            "program": acker_over_aggregates.__name__,
            "source": stream.fields(max_records_per_shard=10, available_now_retry_wait="60s"),
            "folder": str(tmp_path),
            "retryLimit": RETRY_LIMIT,
        }
    )

    again = {f"{ids[LOST]}:2", f"{ids[NEVER]}:2", f"{ids[NEVER]}:3"}
    assert sorted(answer["delivered"]) == sorted({f"{one}:1" for one in ids.values()} | again)
    written = {n: f"{ids[n]}:{2 if n == LOST else 1}" for n in ids if n != NEVER}
    rows = {(one, word) for n, one in written.items() for word in text(n).decode().split()}
    assert sorted(map(tuple, answer["kept"])) == sorted(rows)
    assert sorted(map(tuple, answer["short"])) == sorted(row for row in rows if len(row[1]) < 3)
    assert answer["letters"] == [
        [f"{ids[NEVER]}:{RETRY_LIMIT + 1}", RETRY_LIMIT + 1, text(NEVER).decode()]
    ]
    assert stream.checkpoints() == stream.tips()


def test_two_actions_on_a_range_with_reshards_in_it_give_the_same_rows(
    localstack_orders: StreamUnderTest, spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Random aggregates from a record on; between the actions the stream grows and is resharded
    again.
    """
    stream = localstack_orders
    producer = RandomProducer(stream, random.Random(random.getrandbits(32)))  # noqa: S311

    def resharded(reshard: Callable[[], object]) -> None:
        reshard()
        wait_until_active(stream.client, STREAM)
        producer.put(30)  # packed for the shards before the reshard
        producer.refresh()
        producer.put(30)

    producer.refresh()
    producer.put(60)
    shard, sequences = min(stream.records.items())
    skipped = {f"{shard}:{sequence}" for sequence in sequences[:10]}
    for reshard in (stream.split, stream.merge):
        resharded(reshard)
    expected = {
        record_id
        for record_id in (*producer.ids.values(), *producer.malformed)
        if record_id.partition(".")[0] not in skipped
    }
    start = {"default": "TRIM_HORIZON", shard: f"AFTER:{sequences[9]}"}
    spark_cluster.begin(
        {
            "program": range_read_twice.__name__,
            "options": options(stream) | {"startingPosition": json.dumps(start)},
            "folder": str(tmp_path),
        }
    )
    wait_until((tmp_path / "first").exists, timeout_s=120)
    resharded(stream.split)
    (tmp_path / "second").touch()
    first, second = spark_cluster.end()

    assert [row[0] for row in first] == sorted(f"{record_id}:1" for record_id in expected)
    assert second == first
    assert producer.left_out


def options(stream: StreamUnderTest) -> dict[str, Any]:
    return {
        "streamName": STREAM,
        "endpointUrl": stream.endpoint_url,
        "region": REGION,
        "awsAccessKeyId": ACCESS_KEY,
        "awsSecretAccessKey": SECRET_KEY,
        "readsPerSecond": "1000",
        "readBytesPerSecond": "1GiB",
    }
