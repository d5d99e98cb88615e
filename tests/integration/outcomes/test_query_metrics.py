"""The metrics of a session's queries, scraped over HTTP, are what has happened."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinesis_spout.errors import ConfigError, MissingExtraError
from spark_job import DeadLetter
from spark_job.metrics import QueryMetricsServer, serve
from tests.support.outcomes.tracked import FAST, TrackedQuery, number
from tests.support.spark.source import APPLICATION, STREAM
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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


def await_counts(query: StreamingQuery, server: QueryMetricsServer, wanted: dict[str, int]) -> None:
    """Wait until the query has these counts, or has failed."""

    def has_them() -> bool:
        found = scraped(server)
        counts = {name: found.get(f"stream_records_{name}_total", {}).get(()) for name in wanted}
        return counts == wanted or not query.isActive

    wait_until(has_them, 240)
    assert query.exception() is None


def start(query: TrackedQuery) -> StreamingQuery:
    """Record 3 is rejected, record 7 fails at its first attempt."""

    def process(batch: TrackedBatch) -> None:
        rest = batch.fail_where(batch.df, number() == 3, "no 3", retry=False)
        batch.fail_where(rest, (number() == 7) & (batch.df["attempt"] == 1), "not yet")

    source = query.stream.source()
    tracked = source.tracked(process, dead_letter=DeadLetter.to(query.letters.extend), **FAST)
    frame = source.read_stream(query.spark)
    writer = frame.writeStream.foreachBatch(tracked)
    return writer.option("checkpointLocation", str(query.checkpoint)).start()


def test_a_scrape_shows_what_has_happened_also_over_a_restart(
    session: SparkSession, tracked_query: TrackedQuery
) -> None:
    """Counters go on where the query is started again. Another source's query has no series."""
    names = ("emitted", "acked", "failed", "retried", "dead_lettered")
    tracked_query.stream.put(20)
    with serve(session, 0) as server:
        rate = session.readStream.format("rate").load().writeStream.format("noop")
        other = rate.trigger(processingTime="1 second").start()
        wait_until(lambda: other.lastProgress is not None, 120)
        other.stop()
        assert scraped(server) == {}
        query = start(tracked_query)
        try:
            await_counts(query, server, dict(zip(names, (21, 19, 2, 1, 1), strict=True)))
            seen = scraped(server)
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
        finally:
            query.stop()
        wait_until(lambda: set(scraped(server)) == {"data_losses_total", "query_failures_total"})
        tracked_query.stream.put(5)
        query = start(tracked_query)
        try:
            await_counts(query, server, dict(zip(names, (26, 24, 2, 1, 1), strict=True)))
        finally:
            query.stop()
        assert scraped(server)["query_failures_total"] == {(): 0}


def test_a_port_in_use_is_one_sentence(spark: SparkSession) -> None:
    with (
        serve(spark, 0) as server,
        pytest.raises(ConfigError, match=f"option port: {server.port} cannot be bound at"),
    ):
        serve(spark, server.port)


def test_without_the_package_it_says_what_to_install(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match=r"run pip install .*\[metrics\]'"):
        serve(spark, 0)
