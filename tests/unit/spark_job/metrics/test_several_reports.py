"""A query of several streams has a report, and series, for each of them."""

from __future__ import annotations

from spark_job.commands.run_progress import Progress
from spark_job.metrics.source_report import reports_in
from tests.unit.spark_job.metrics.test_ledger import report

ARN = "arn:aws:kinesis:us-east-1:444455556666:stream/orders"


def progress(start: object, end: object) -> dict[str, object]:
    latest = {
        "format": 2,
        "streams": [
            report(application="etl", stream="clicks", lagMs=10, unresolved=2),
            report(application="us", stream=ARN, lagMs=70, unresolved=3),
        ],
    }
    return {
        "batchId": 1,
        "sources": [{"startOffset": start, "endOffset": end, "latestOffset": latest}],
    }


def test_each_stream_has_its_report_and_its_batches() -> None:
    """A stream has had no batch where its plan has not changed; the first offset names none."""
    before = {"format": 2, "plans": {"etl/clicks": "1-a", "us/orders": "1-b"}}
    after = {"format": 2, "plans": {"etl/clicks": "1-a", "us/orders": "2-c"}}
    found = list(reports_in(progress(before, after)))
    assert [(one.report.stream, one.had_plan) for one in found] == [("clicks", False), (ARN, True)]


def test_the_progress_line_shows_the_sum_of_all_streams() -> None:
    seen = Progress().after(progress(None, None))
    assert (seen.lag_ms, seen.unresolved) == (70, 5)
