"""What the metrics of a session show, from Spark's progress reports."""

from __future__ import annotations

import json
import logging
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_spout.errors import ConfigError
from kinesis_spout.testing import ManualClock
from spark_job.metrics.query_server import QueryLedger, QueryMetricsServer, families
from spark_job.metrics.source_report import reports_in

SHARD = "shardId-000000000000"
KEY = ("etl", "orders")


def report(**changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "application": "etl",
        "stream": "orders",
        "plan": "1-a",
        "lagMs": 5_000,
        "retentionMs": 86_400_000,
        "readableShards": 1,
        "dataLosses": 0,
        "emitted": 10,
        "retried": 1,
        "acked": 8,
        "failed": 2,
        "unresolved": 1,
        "retriesWaiting": 1,
        "exhausted": 1,
        "deadLettered": 1,
        "dropped": 0,
        "oldestUnresolvedMs": 4_000,
        "outage": False,
        "shards": {SHARD: {"lagMs": 5_000, "emitted": 10, "retried": 1, "unresolved": 1}},
        **changes,
    }


def progress(
    *reports: Any, plans: tuple[str, str] = ("", "1-a"), batch_id: int = 0
) -> dict[str, Any]:
    """As Spark's JSON has it. The driver reported a second before the trigger's end."""
    start, end = ({"format": 1, "plan": plan} for plan in plans)
    return {
        "batchId": batch_id,
        "durationMs": {"triggerExecution": 1_500, "latestOffset": 500},
        "sources": [
            {"startOffset": start, "endOffset": end, "latestOffset": one} for one in reports
        ],
    }


def values(ledger: QueryLedger) -> dict[tuple[str, ...], float]:
    return {(name, *labels): value for name, labels, value in ledger.samples()}


def note(ledger: QueryLedger, run: str, *reports: Any, is_batch: bool = True, **told: Any) -> None:
    ledger.add(run, reports_in(progress(*reports, **told)), is_batch=is_batch)


def new_ledger(clock: ManualClock, max_shards: int = 100) -> QueryLedger:
    return QueryLedger(max_shards, clock, lambda _: reported(report()))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(clock: ManualClock) -> QueryLedger:
    return new_ledger(clock)


def test_a_report_gets_older_and_its_lag_is_an_upper_bound(
    ledger: QueryLedger, clock: ManualClock
) -> None:
    """A batch that hangs reports nothing, and the oldest unread record gets older."""
    note(ledger, "run", report())
    clock.advance(3_600)
    seen = values(ledger)
    assert seen["report_age_seconds", *KEY] == 3_601
    assert seen["last_batch_age_seconds", *KEY] == 3_600
    assert seen["stream_oldest_unresolved_seconds", *KEY] == 3_605
    assert seen["stream_lag_seconds", *KEY] == seen["lag_seconds", *KEY, SHARD] == 3_606
    assert seen["stream_retention_left_seconds", *KEY] == 86_400 - 3_606
    clock.advance(1e9)
    assert values(ledger)["stream_retention_left_seconds", *KEY] == 0


def test_counters_go_on_over_a_restart_and_never_back(ledger: QueryLedger) -> None:
    """A run counts from its own start, and so does the next one; its end hides no later one. A
    shard that is over leaves its counts in those of the stream.
    """
    note(ledger, "first", report(emitted=10))
    note(ledger, "first", report(emitted=30))
    note(ledger, "second", report(emitted=0, shards={}))
    ledger.run_ended("first", failed=False, lost_data=False)
    assert values(ledger)["stream_records_emitted", *KEY] == 30
    assert not any(SHARD in series for series in values(ledger))
    note(ledger, "second", report(emitted=7, pushedRecords=3, fallbacks={"broken": 2}))
    ledger.run_ended("second", failed=False, lost_data=False)
    note(ledger, "third", report(emitted=0, pushedRecords=1, fallbacks={"broken": 1}))
    seen = values(ledger)
    assert (seen["stream_records_emitted", *KEY], seen["batches", *KEY]) == (37, 5)
    assert seen["stream_records_pushed", *KEY] == 4
    assert seen["subscription_fallbacks", *KEY, "broken"] == 3


def test_a_report_that_comes_after_a_newer_one_counts_nothing_twice(ledger: QueryLedger) -> None:
    """An idle query is asked for its newest report. The events of the batches up to it may follow;
    the next run begins with a lower number.
    """
    newer = report(emitted=30, lagMs=0)
    note(ledger, "run", newer, is_batch=False, batch_id=7)
    note(ledger, "run", report(emitted=20, shards={}), batch_id=6)
    assert values(ledger)["stream_lag_seconds", *KEY] == 1
    note(ledger, "run", newer, batch_id=7)
    seen = values(ledger)
    assert seen["stream_records_emitted", *KEY] == 30
    assert seen["records_emitted", *KEY, SHARD] == 10
    assert seen["batches", *KEY] == 2
    note(ledger, "next", report(emitted=5), batch_id=0)
    assert values(ledger)["stream_records_emitted", *KEY] == 35


def test_other_sources_are_left_alone(ledger: QueryLedger) -> None:
    """Their offsets may be anything, also JSON with a member that is named like one of ours."""
    foreign = [None, 7, "12", "no json", {"format": 1}, {"logOffset": 3}, report(lagMs="far")]
    note(ledger, "run", *foreign)
    ledger.run_ended("run", failed=True, lost_data=False)
    assert values(ledger) == {}
    note(ledger, "run", *foreign, json.dumps(report()))
    assert values(ledger)["stream_records_emitted", *KEY] == 10


def test_more_shards_than_are_wanted_have_no_series_of_their_own(clock: ManualClock) -> None:
    one = {"lagMs": 0, "emitted": 1, "retried": 0, "unresolved": 0}
    ledger = new_ledger(clock, max_shards=1)
    note(ledger, "run", report(shards={"a": one, "b": one}))
    assert all(len(series) == 3 for series in values(ledger))
    note(ledger, "run", report(shards={"a": one}))
    assert values(ledger)["lag_seconds", *KEY, "a"] == 1


def test_each_stream_of_a_query_has_its_report_and_its_batches() -> None:
    """A stream has had no batch where its plan has not changed."""
    arn = "arn:aws:kinesis:us-east-1:444455556666:stream/orders"
    streams = [
        report(application="etl", stream="clicks", lagMs=10, unresolved=2),
        report(application="us", stream=arn, lagMs=70, unresolved=3),
    ]
    told: dict[str, Any] = {
        "batchId": 1,
        "sources": [
            {
                "startOffset": {"format": 2, "plans": {"etl/clicks": "1-a", "us/orders": "1-b"}},
                "endOffset": {"format": 2, "plans": {"etl/clicks": "1-a", "us/orders": "2-c"}},
                "latestOffset": {"format": 2, "streams": streams},
            }
        ],
    }
    found = [(one.report.stream, one.had_plan) for one in reports_in(told)]
    assert found == [("clicks", False), (arn, True)]


# listener -----------------------------------------------------------------------------------------
def event(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def reported(*reports: Any, text: str | None = None) -> Any:
    return event(runId="run", json=text or json.dumps(progress(*reports)))


@pytest.mark.parametrize(
    ("exception", "failures", "losses"),
    [
        (None, 0, 0),
        ("StreamingQueryException: ValueError: no rates", 1, 0),
        ("kinesis_spout.errors.DataLossError: records may be lost", 1, 1),
    ],
)
def test_a_query_that_fails_is_counted(
    ledger: QueryLedger, exception: str | None, failures: int, losses: int
) -> None:
    """An idle one is asked for its progress: its event has none."""
    ledger.onQueryIdle(event(id="query"))
    ledger.onQueryTerminated(event(runId="run", exception=exception))
    assert values(ledger) == {("data_losses", *KEY): losses, ("query_failures", *KEY): failures}


def test_an_error_in_the_listener_is_logged_once(
    ledger: QueryLedger, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "kinesis_spout"):
        for _ in range(3):
            ledger.onQueryProgress(event(progress=reported(text="{")))
    assert len(caplog.records) == 1
    ledger.onQueryProgress(event(progress=reported(report())))
    assert values(ledger)["stream_records_emitted", *KEY] == 10


def test_every_sample_is_of_a_metric_that_a_spark_job_has(ledger: QueryLedger) -> None:
    """And every metric that it is said to have gets a sample, with its labels."""
    told = report(pushedRecords=1, polledRecords=1, fallbacks={})
    ledger.onQueryProgress(event(progress=reported(told)))
    found = families(ledger.samples())
    assert {family.name for family in found if not family.samples} == set()


@pytest.mark.parametrize("says", ["raises", "warns"])
def test_a_session_without_listeners_is_refused_in_one_sentence(says: str) -> None:
    """Spark Connect only warns where its server takes none."""

    def add_listener(_: object) -> None:
        if says == "raises":
            raise NotImplementedError("[NOT_IMPLEMENTED] it is not implemented.")
        warnings.warn("Failed to add the listener: it is not implemented", stacklevel=1)

    server = QueryMetricsServer(event(streams=event(addListener=add_listener)), 0)
    with pytest.raises(ConfigError, match=r"not accept a StreamingQueryListener.*not implemented"):
        server.start()
    assert server._running is None  # the port is free again
