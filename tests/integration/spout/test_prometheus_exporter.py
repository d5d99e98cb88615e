"""Metrics for Prometheus: a scrape shows the counts of the spout."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinesis_spout.errors import ConfigError, MissingExtraError
from kinesis_spout.prometheus_exporter import MetricsServer, SpoutCollector, cumulative, serve
from kinesis_spout.spout.metrics import LATENCY_BUCKETS, ShardCounts
from tests.support.spout.spouts import spout_on

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"
APPLICATION = {"application": "", "stream": "orders"}
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scraped(server: MetricsServer) -> Samples:
    """The value of each sample, by its name and labels."""
    with urlopen(server.url, timeout=10) as answer:  # noqa: S310  # our own server
        families = text_string_to_metric_families(answer.read().decode())
        return {
            (one.name, frozenset(one.labels.items())): one.value
            for family in families
            for one in family.samples
        }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"kinesis_spout_{name}", frozenset({**APPLICATION, **labels}.items())]


@pytest.fixture
def orders(fake_kinesis: ServedFake) -> ServedFake:
    fake_kinesis.model.create("orders", shards=2)
    for number in range(20):
        fake_kinesis.model.put("orders", str(number), b"data")
    return fake_kinesis


def test_a_scrape_shows_the_counts_of_the_spout(orders: ServedFake) -> None:
    """Per shard, and for the stream. No samples before the spout is open; the last counts after it
    is closed.
    """
    spout = spout_on(orders, until="now")
    with serve(spout, 0) as server:
        assert not any(name.startswith("kinesis_spout") for name, _ in scraped(server))
        with spout:
            for emission in spout.emissions():
                fails = emission.attempt == 1 and emission.partition_key == "7"
                emission.fail() if fails else emission.ack()
                if spout.metrics().total.counts.emitted == 5:
                    assert value(scraped(server), "stream_records_emitted_total") == 5
            during = scraped(server)
        assert value(during, "stream_records_emitted_total") == 21
        by_shard = [value(during, "records_acked_total", shard=shard) for shard in (FIRST, SECOND)]
        assert sum(by_shard) == value(during, "stream_records_acked_total") == 20
        assert [
            value(during, f"stream_records_{name}_total")
            for name in ("failed", "retried", "timed_out")
        ] == [1, 1, 0]
        assert (
            value(during, "pending_records", shard=FIRST)
            == value(during, "queued_records", shard=FIRST)
            == 0
        )
        assert value(during, "lag_seconds", shard=FIRST) == 0
        assert (
            value(during, "stream_latency_seconds_bucket", le="+Inf")
            == value(during, "stream_latency_seconds_count")
            == 20
        )
        assert (
            value(during, "stream_latency_seconds_sum")
            == spout.metrics().total.counts.latency_sum_ms / 1000
        )
        assert value(during, "wait_seconds_total", reason="idle") > 0
        assert value(scraped(server), "stream_records_acked_total") == 20


def test_the_buckets_of_the_histogram_are_exact() -> None:
    """Each one counts latencies up to its bound, to the millisecond; the last one counts all."""
    latencies_ms = [-5, 0, 1, 2, 3, 4, 7, 8, 1_000, 2**40]
    counts = ShardCounts()
    for latency_ms in latencies_ms:
        counts.on_ack(latency_ms)
    buckets = cumulative(counts.latency)
    assert len(buckets) == LATENCY_BUCKETS
    for le, seen in buckets:
        assert seen == sum(latency_ms / 1000 <= float(le) for latency_ms in latencies_ms), le
    assert [le for le, _ in buckets[:4]] == ["0.0", "0.001", "0.003", "0.007"]


def test_a_port_in_use_and_one_that_cannot_be_are_one_sentence(orders: ServedFake) -> None:
    spout = spout_on(orders)
    with serve(spout, 0) as server:
        for port in (server.port, 65_536):
            with pytest.raises(ConfigError, match=f"option port: {port} cannot be bound at"):
                serve(spout, port)


def test_without_the_package_it_says_what_to_install(
    orders: ServedFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingExtraError, match="run pip install 'prometheus-client>="):
        SpoutCollector(spout_on(orders))
