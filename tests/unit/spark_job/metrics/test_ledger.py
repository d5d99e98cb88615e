"""What the metrics of a session show, from Spark's progress reports."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kinesis_spout.reading.fallback import Fallback
from spark_job.commands.run_progress import Progress
from spark_job.metrics.ledger import QueryLedger
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


def values(ledger: QueryLedger, now_s: float = 100.0) -> dict[tuple[str, ...], float]:
    return {(one.name, *one.labels): one.value for one in ledger.samples(now_s)}


def note(
    ledger: QueryLedger,
    run: str,
    *reports: Any,
    now_s: float = 100.0,
    is_batch: bool = True,
    **told: Any,
) -> None:
    found = reports_in(progress(*reports, **told))
    ledger.on_progress(run, found, now_s, is_batch=is_batch)


@pytest.fixture
def ledger() -> QueryLedger:
    return QueryLedger(100)


def test_a_report_shows_its_totals_and_how_old_they_are(ledger: QueryLedger) -> None:
    note(ledger, "run", report())
    seen = values(ledger, 102.0)
    assert seen["stream_records_emitted", *KEY] == 10
    assert seen["stream_records_dead_lettered", *KEY] == 1
    assert seen["stream_queued_records", *KEY] == 1
    assert seen["report_age_seconds", *KEY] == 3
    assert seen["last_batch_age_seconds", *KEY] == 2
    assert seen["stream_oldest_unresolved_seconds", *KEY] == 7
    assert seen["records_emitted", *KEY, SHARD] == 10


def test_the_lag_is_an_upper_bound_while_nothing_is_reported(ledger: QueryLedger) -> None:
    """A batch that hangs reports nothing, and the oldest unread record gets older."""
    note(ledger, "run", report())
    for name, labels in (("stream_lag_seconds", KEY), ("lag_seconds", (*KEY, SHARD))):
        assert values(ledger, 100.0)[name, *labels] == 6
        assert values(ledger, 3_700.0)[name, *labels] == 3_606
    seen = values(ledger, 3_700.0)
    assert seen["stream_retention_left_seconds", *KEY] == 86_400 - 3_606
    assert values(ledger, 1e9)["stream_retention_left_seconds", *KEY] == 0


def test_counters_go_on_over_a_restart_and_never_back(ledger: QueryLedger) -> None:
    """A run counts from its own start, and so does the next one; its end hides no later one. A
    shard that is over leaves its counts in those of the stream.
    """
    note(ledger, "first", report(emitted=10))
    note(ledger, "first", report(emitted=30))
    note(ledger, "second", report(emitted=0, shards={}))
    ledger.on_end("first", failed=False, lost_data=False)
    assert values(ledger)["stream_records_emitted", *KEY] == 30
    assert not any(SHARD in series for series in values(ledger))
    note(ledger, "second", report(emitted=7))
    assert values(ledger)["stream_records_emitted", *KEY] == 37
    assert values(ledger)["batches", *KEY] == 4


def test_a_query_that_ended_leaves_only_what_is_to_be_alerted_on(ledger: QueryLedger) -> None:
    """Of each of its streams."""
    note(ledger, "run", report(), report(stream="bills", emitted=4))
    seen = values(ledger)
    assert seen["stream_records_emitted", *KEY] == 10
    assert seen["stream_records_emitted", "etl", "bills"] == 4
    ledger.on_end("run", failed=True, lost_data=True)
    assert values(ledger) == {
        (name, "etl", stream): 1
        for name in ("data_losses", "query_failures")
        for stream in ("orders", "bills")
    }


def test_an_idle_trigger_is_no_batch(ledger: QueryLedger) -> None:
    note(ledger, "run", report())
    note(ledger, "run", report(), now_s=110.0, is_batch=False)
    note(ledger, "run", report(), now_s=120.0, plans=("1-a", "1-a"))
    seen = values(ledger, 120.0)
    assert (seen["batches", *KEY], seen["last_batch_age_seconds", *KEY]) == (1, 20)
    assert seen["report_age_seconds", *KEY] == 1


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


def test_what_was_pushed_and_polled_goes_on_over_a_restart_and_fallbacks_by_why(
    ledger: QueryLedger,
) -> None:
    """All reasons are there from the beginning; a query that only polls has none of this."""
    note(ledger, "polls", report())
    pushed = {"stream_records_pushed", "stream_records_polled", "subscription_fallbacks"}
    assert not {name for name, *_ in values(ledger)} & pushed
    note(ledger, "run", report(pushedRecords=5, polledRecords=2, fallbacks={"broken": 1}))
    ledger.on_end("run", failed=False, lost_data=False)
    note(ledger, "next", report(pushedRecords=3, polledRecords=0, fallbacks={"broken": 2}))
    seen = values(ledger)
    assert seen["stream_records_pushed", *KEY] == 8
    assert seen["stream_records_polled", *KEY] == 2
    reasons = {reason: seen["subscription_fallbacks", *KEY, reason] for reason in Fallback}
    assert reasons == dict.fromkeys(Fallback, 0) | {Fallback.BROKEN: 3}


def test_other_sources_are_left_alone(ledger: QueryLedger) -> None:
    """Their offsets may be anything, also JSON with a member that is named like one of ours."""
    foreign = [None, 7, "12", "no json", {"format": 1}, {"logOffset": 3}, report(lagMs="far")]
    note(ledger, "run", *foreign)
    ledger.on_end("run", failed=True, lost_data=False)
    assert values(ledger) == {}
    note(ledger, "run", *foreign, json.dumps(report()))
    assert values(ledger)["stream_records_emitted", *KEY] == 10


def test_more_shards_than_are_wanted_have_no_series_of_their_own() -> None:
    one = {"lagMs": 0, "emitted": 1, "retried": 0, "unresolved": 0}
    ledger = QueryLedger(1)
    note(ledger, "run", report(shards={"a": one, "b": one}))
    assert all(len(series) == 3 for series in values(ledger))
    note(ledger, "run", report(shards={"a": one}))
    assert values(ledger)["lag_seconds", *KEY, "a"] == 1


def test_each_stream_of_a_query_has_its_report_and_its_batches() -> None:
    """A stream has had no batch where its plan has not changed; the first offset names none. The
    line of the command shows the sum of all streams.
    """
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
    told["sources"][0] |= {"startOffset": None, "endOffset": None}
    seen = Progress().after(told)
    assert (seen.lag_ms, seen.unresolved) == (70, 5)
