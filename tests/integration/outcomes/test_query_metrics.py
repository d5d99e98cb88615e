"""The metrics of a session's queries, scraped over HTTP, are what has happened."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinesis_spout.errors import MissingExtraError
from spark_job import DeadLetter
from spark_job.metrics import QueryMetricsServer, serve
from tests.support.outcomes.tracked import FAST, TrackedQuery, number
from tests.support.spark.source import APPLICATION, STREAM
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from spark_job import TrackedBatch

pytestmark = pytest.mark.spark
IDLE_EVENTS = "spark.sql.streaming.noDataProgressEventInterval"


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """One that reports an idle query at once, which it does every 10 s by default."""
    spark.conf.set(IDLE_EVENTS, "0")
    yield spark
    spark.conf.unset(IDLE_EVENTS)


def scraped(server: QueryMetricsServer) -> dict[str, dict[tuple[str, ...], float]]:
    """The values by name and shard, of our application and stream only."""
    with urlopen(server.url, timeout=10) as answer:  # noqa: S310  # our own server
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            assert (one.labels["application"], one.labels["stream"]) == (APPLICATION, STREAM)
            shard = (one.labels["shard"],) if "shard" in one.labels else ()
            found.setdefault(one.name.removeprefix("kinesis_spout_"), {})[shard] = one.value
    return found


def test_a_scrape_shows_what_has_happened(
    session: SparkSession, tracked_query: TrackedQuery
) -> None:
    """Record 3 is rejected, record 7 fails at its first attempt. Once the query has ended, only
    what is to be alerted on is left.
    """
    tracked_query.stream.put(20)

    def process(batch: TrackedBatch) -> None:
        rest = batch.fail_where(batch.df, number() == 3, "no 3", retry=False)
        batch.fail_where(rest, (number() == 7) & (batch.df["attempt"] == 1), "not yet")

    source = tracked_query.stream.source()
    letters = DeadLetter.to(tracked_query.letters.extend)
    writer = source.read_stream(session).writeStream.foreachBatch(
        source.tracked(process, dead_letter=letters, **FAST)
    )
    wanted = {"emitted": 21, "acked": 19, "failed": 2, "retried": 1, "dead_lettered": 1}
    with serve(session, 0) as server:
        query = writer.option("checkpointLocation", str(tracked_query.checkpoint)).start()
        try:

            def has_all() -> bool:
                found = scraped(server)
                counts = {
                    name: found.get(f"stream_records_{name}_total", {}).get(()) for name in wanted
                }
                return counts == wanted or not query.isActive

            wait_until(has_all, 240)
            assert query.exception() is None
            seen = scraped(server)
        finally:
            query.stop()
        wait_until(lambda: set(scraped(server)) == {"data_losses_total", "query_failures_total"})
        assert scraped(server)["query_failures_total"] == {(): 0}
    assert len(tracked_query.letters) == 1
    assert seen["stream_queued_records"] == {(): 0}
    assert seen["stream_oldest_unresolved_seconds"] == {(): 0}
    by_shard = seen["records_emitted_total"]
    assert len(by_shard) == 4
    assert sum(by_shard.values()) == 21
    assert seen["batches_total"][()] >= 2
    assert 0 <= seen["stream_lag_seconds"][()] < 60
    left_s = 86_400 - seen["stream_lag_seconds"][()]
    assert seen["stream_retention_left_seconds"][()] == pytest.approx(left_s)


def test_without_the_package_it_says_what_to_install(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match="run pip install 'prometheus-client>="):
        serve(spark, 0)
