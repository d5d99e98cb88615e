"""The listener turns Spark's events into figures, and keeps its own errors from the query."""

from __future__ import annotations

import json
import logging
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from kinesis_spout.errors import ConfigError
from kinesis_spout.testing import ManualClock
from spark_job.metrics.ledger import QueryLedger
from spark_job.metrics.query_server import LedgerListener, QueryCollector, QueryMetricsServer
from tests.unit.spark_job.metrics.test_ledger import KEY, progress, report, values


def event(**fields: Any) -> Any:
    return SimpleNamespace(**fields)


def reported(*reports: Any, text: str | None = None) -> Any:
    return event(runId="run", json=text or json.dumps(progress(*reports)))


def listening(last: Any = None) -> tuple[QueryLedger, LedgerListener]:
    ledger = QueryLedger(100)
    return ledger, LedgerListener(ledger, ManualClock(), lambda _: last)


def test_an_idle_query_is_asked_for_its_progress() -> None:
    """Its event has none. A query that has ended meanwhile has none either."""
    ledger, listener = listening(reported(report()))
    listener.onQueryIdle(event(id="query"))
    assert values(ledger)["stream_records_emitted", *KEY] == 10
    assert values(ledger)["batches", *KEY] == 0
    ledger, listener = listening(None)
    listener.onQueryIdle(event(id="query"))
    assert values(ledger) == {}


@pytest.mark.parametrize(
    ("exception", "failures", "losses"),
    [
        (None, 0, 0),
        ("StreamingQueryException: ValueError: no rates", 1, 0),
        ("kinesis_spout.errors.DataLossError: records may be lost", 1, 1),
    ],
)
def test_a_query_that_fails_is_counted(exception: str | None, failures: int, losses: int) -> None:
    ledger, listener = listening()
    listener.onQueryProgress(event(progress=reported(report())))
    listener.onQueryTerminated(event(runId="run", exception=exception))
    assert values(ledger) == {("data_losses", *KEY): losses, ("query_failures", *KEY): failures}


def test_an_error_in_the_listener_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    ledger, listener = listening()
    with caplog.at_level(logging.ERROR, "kinesis_spout"):
        for _ in range(3):
            listener.onQueryProgress(event(progress=reported(text="{")))
    assert len(caplog.records) == 1
    listener.onQueryProgress(event(progress=reported(report())))
    assert values(ledger)["stream_records_emitted", *KEY] == 10


def test_every_sample_is_of_a_metric_that_a_spark_job_has() -> None:
    """And every metric that it is said to have gets a sample, with its labels."""
    ledger, listener = listening()
    told = report(pushedRecords=1, polledRecords=1, fallbacks={})
    listener.onQueryProgress(event(progress=reported(told)))
    families = list(QueryCollector(ledger, ManualClock()).collect())
    assert {family.name for family in families if not family.samples} == set()


@pytest.mark.parametrize("says", ["raises", "warns"])
def test_a_session_without_listeners_is_refused_in_one_sentence(says: str) -> None:
    """Spark Connect only warns where its server takes none."""

    def add_listener(_: object) -> None:
        if says == "raises":
            raise NotImplementedError("[NOT_IMPLEMENTED] it is not implemented.")
        warnings.warn("Failed to add the listener: it is not implemented", stacklevel=1)

    server = QueryMetricsServer(event(streams=event(addListener=add_listener)), 0)
    with pytest.raises(ConfigError, match=r"takes no StreamingQueryListener.*not implemented"):
        server.start()
    assert server._running is None  # the port is free again
