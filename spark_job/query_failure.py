"""How a query failed: the cause in one sentence, out of the pages of text that Spark, py4j and the
Python workers wrap around it; and its report in the application's state.

What one stream meets names its plan, shard or application, since a query of one stream needs no
more. In a query of several streams the same text may be of any of them, so the error names its
stream too: on the driver, in the tasks, and where outcomes are reported.

Spark tells the process that has started a query with which error it ended, and not its source. So
`QueryEnds` reports it. A query is known by the plan that its offsets name, which is the newest of
its application until the batch is committed. A tracked query reports by itself what a function has
raised, and not that a process died, which a restart may cure. Nothing is decided by these reports
(`state.store.runs`).
"""

from __future__ import annotations

import atexit
import logging
import re
import threading
import traceback
import weakref
from contextlib import closing, contextmanager, suppress
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from kinesis_spout.application.run_recorder import amend_newest_run, failure, reported
from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.errors import (
    MAX_MESSAGE_CHARS,
    KinesisError,
    described,
    error_sentence,
    text_of,
)
from state.errors import StateError
from state.store.runs import ReportedError, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from spark_job.settings import SourceSettings
    from state.store.runs import RunLog

log = logging.getLogger("kinesis_spout")
_TRACEBACK = "Traceback (most recent call last):"
_ERROR_CLASS = re.compile(r"^\[[A-Z][A-Z0-9_.]*\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: .*$", re.DOTALL)  # with the position and plan that follow
_RAISED = re.compile(r"^((?:\w+\.)*)(\w+)(?:: (.*))?$", re.DOTALL)
_OURS = ("kinesis_spout.", "state.", "scheme.", "spark_job.")
_CALLED = re.compile(r"^An error occurred while calling .*\n: ")  # py4j, before Java's message
_TASK = re.compile(
    r"^(?:[\w.]+Exception: )?Job aborted due to stage failure: "
    r".*?: Lost task [^(]*\(TID \d+\) \([^)]*\): "
)
_FRAME = re.compile(r"^\s|^\tat |^Caused by: |^=== ")
MAX_LENGTH = 600
MAX_TRACE_CHARS = 200_000
# In the description of a query that Spark puts before its offsets.
_OFFSETS = re.compile(r"^Current Available Offsets: (.*)$", re.MULTILINE)
_PLAN = re.compile(r'"(\d+-[0-9a-f]+)"')
_NOT_REPORTED = ("StaleOwnerError", "StoreUnavailableError")


class FunctionError(KinesisError):
    """The function of a batch raised what Spark cannot take: no Exception, or one whose text cannot
    be sent to Java. The message says what it was, and the log has where.
    """


class StreamError(KinesisError):
    """An error of one of several streams, whose own text does not name it."""


def named_error(label: str, error: BaseException) -> BaseException:
    """The error, with the stream's name in its text. Errors of other packages stay as they are."""
    # The name alone may be part of the application's name.
    names_it = re.search(rf"(?:\bstream '?|/){re.escape(label)}(?![\w.-])", str(error))
    if names_it or not isinstance(error, KinesisError | StateError):
        return error
    named = StreamError(f"stream {label}: {error.message}", error.remedy)
    named.__cause__ = error
    return named


@contextmanager
def naming(settings: SourceSettings) -> Iterator[None]:
    """Our errors in the block name the stream, in a query of several streams."""
    try:
        yield
    except (KinesisError, StateError) as error:
        if not settings.named_in_ids or (named := named_error(settings.label, error)) is error:
            raise
        raise named from error


def failure_sentence(text: str) -> str:
    """The cause of a failed query, from its exception's text.

    It is the last Python traceback's error, which is the outermost Python error. Without a
    traceback it is the first line of Spark or Java.
    """
    return _cause(text)[1]


def failure_report(text: str) -> ReportedError:
    """The same as it is stored: Spark passes on the class of an error of ours, and its text."""
    error, cause = _cause(text)
    return ReportedError(sentence(cause), error=error)


def _cause(text: str) -> tuple[str | None, str]:
    before, marker, after = text.rpartition(_TRACEBACK)
    raised = _raised_in(after) if marker else None
    error, cause = raised or _first_line(before or text)
    return error, cause if len(cause) <= MAX_LENGTH else f"{cause[:MAX_LENGTH]}..."


def reported_failure(error: BaseException) -> ReportedError:
    """The error that fails a batch, as it is stored.

    Ours are sentences, and Spark's text is complete: it may be of a task of any sort. What is left
    is Python's own, or of another package, and was raised by the function of the batch.
    """
    module = f"{type(error).__module__}."
    if module.startswith(_OURS):
        return reported(error)
    if module.startswith(("pyspark.", "py4j.")):
        return failure_report(text_of(error, MAX_MESSAGE_CHARS))
    said = f"the function passed to tracked(...) raised {error_sentence(error)}"
    return ReportedError(sentence(said))


def for_spark(error: BaseException, function: str) -> BaseException:
    """The error of a user's function, as Spark can take it from the function of `foreachBatch`:
    an Exception, whose traceback can be sent to Java. With anything else Spark waits for ever, or
    says that a network connection has failed. `function` names it.
    """
    trace = "".join(traceback.format_exception(error))
    # UTF-8 cannot encode half of a surrogate pair, nor Java take a text of a gigabyte.
    can_be_sent = len(trace) <= MAX_TRACE_CHARS and trace == trace.encode(errors="replace").decode()
    if isinstance(error, Exception) and can_be_sent:
        return error
    log.error(
        "%s raised an error that Spark cannot pass on\n%s",
        function,
        text_of(trace, MAX_TRACE_CHARS),
    )
    return FunctionError(f"{function} raised {described(error)}")


def _raised_in(after: str) -> tuple[str | None, str] | None:
    """The error after a traceback's first line: the first line that is not part of a stack, with
    the lines that continue it.
    """
    lines = dropwhile(lambda line: not line.strip() or line[0] in " \t", after.splitlines())
    message = takewhile(lambda line: line.strip() and not _FRAME.match(line), lines)
    raised = " ".join(map(str.strip, message))
    return _without_class(raised) if raised else None


def _without_class(raised: str) -> tuple[str | None, str]:
    """The class of `package.module.Error: message` and the message, for our errors; others keep the
    class's name in the text.
    """
    match = _RAISED.match(raised)
    if match is None:
        return None, raised
    module, name, message = match.groups()
    if not message:
        return None, name
    message = _SQLSTATE.sub("", _ERROR_CLASS.sub("", message))
    return (name, message) if module.startswith(_OURS) else (None, f"{name}: {message}")


def _first_line(text: str) -> tuple[str | None, str]:
    for wrapping in (_CALLED, _TASK):
        match = wrapping.match(text)
        if match is not None:
            return _without_class(_first_line(text[match.end() :])[1])
    first = next(filter(None, map(str.strip, text.splitlines())), None)
    if first is None:
        return None, "the query failed without a message"
    return None, _SQLSTATE.sub("", _ERROR_CLASS.sub("", first))


def plans_of(text: str) -> frozenset[str]:
    """The plans that were to be committed when a query failed, from its exception's text."""
    found = _OFFSETS.findall(text)
    return frozenset(_PLAN.findall(found[-1])) if found else frozenset()


class QueryEnds(StreamingQueryListener):
    """A listener on a session's queries. Raises nothing, and blocks Spark's thread on nothing.

    `manager`: the session's `StreamingQueryManager`.
    """

    def __init__(self, manager: Any, clock: Clock) -> None:
        self._manager = manager
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str, str], SourceSettings] = {}
        self._queries: dict[str, tuple[Any, int]] = {}  # by run, with when it was started

    def add(self, streams: Iterable[SourceSettings]) -> None:
        """Streams that a query of this process may read."""
        with self._lock:
            for stream in streams:
                where = stream.zookeeper, stream.zookeeper_root, stream.state_name
                self._known[where] = stream

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with suppress(Exception):
            query = self._manager.get(str(event.id))
            if query is not None:
                with self._lock:
                    self._queries[str(event.runId)] = query, self._clock.now_ms()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Nothing more is reported of a query that runs."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """The same."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        run_id = str(event.runId)
        with self._lock:
            query, started_ms = self._queries.get(run_id, (None, 0))
            if event.exception is None:
                self._queries.pop(run_id, None)
        if query is not None and event.exception is not None:
            # A driver that ends with the query's error waits for it. py4j's thread, which calls
            # this, is a daemon, and a thread is what the one that makes it is.
            threading.Thread(
                target=self._report_end,
                args=(run_id, query, started_ms, self._clock.now_ms()),
                daemon=False,
            ).start()

    def report_the_rest(self) -> None:
        """Of queries that have failed, and whose end is not stored yet: the process is ending, and
        may wait for no thread any more. While the JVM ends after it, Spark would log an error for
        each event that finds no Python.
        """
        with self._lock:
            queries = dict(self._queries)
        if queries:
            with suppress(Exception):
                self._manager.removeListener(self)
        for run_id, (query, started_ms) in queries.items():
            with suppress(Exception):
                if not query.isActive:
                    self._report_end(run_id, query, started_ms, self._clock.now_ms())

    def _report_end(self, run_id: str, query: Any, started_ms: int, ended_ms: int) -> None:
        """Two threads may do it at a time: the first end that is stored counts."""
        try:
            text = str(query.exception() or "")
            plans = plans_of(text)
            if not plans or any(error in text for error in _NOT_REPORTED):
                return
            end = failure(failure_report(text), ended_ms)

            def ended(runs: RunLog) -> RunLog:
                newest = runs.newest
                is_its = newest is not None and started_ms <= newest.owner.since_ms <= ended_ms
                return runs.ended(end) if is_its else runs

            self._amend(plans, ended)
        except Exception:  # the session has ended, or ZooKeeper is away: nothing depends on it
            log.debug("the end of the query could not be stored in ZooKeeper", exc_info=True)
        finally:
            with self._lock:
                self._queries.pop(run_id, None)

    def _amend(self, plans: frozenset[str], amended: Callable[[RunLog], RunLog]) -> None:
        """Amend the run log of each known stream whose newest plan is one of `plans`."""
        from spark_job.process_services import open_store  # noqa: PLC0415  # it connects

        with self._lock:
            known = list(self._known.values())
        for settings in known:
            with closing(open_store(settings)) as store:
                pointer = store.plans.pointer()
                is_it = pointer is not None and pointer.id in plans
                if is_it and store.reports.read_policy() is None:
                    amend_newest_run(store.runs, amended)


_watching: weakref.WeakKeyDictionary[SparkSession, QueryEnds] = weakref.WeakKeyDictionary()
_watching_lock = threading.Lock()


def watch_ends(spark: SparkSession, streams: Iterable[SourceSettings]) -> bool:
    """Report how queries of this session over these streams end. Idempotent. Returns false for a
    session that takes no listener, as one of Spark Connect.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        return False
    with _watching_lock:
        ends = _watching.get(spark)
        if ends is None:
            ends = QueryEnds(spark.streams, SystemClock())
            try:
                spark.streams.addListener(ends)
            except Exception:  # py4j raises several kinds
                log.debug(
                    "the Spark session does not accept a StreamingQueryListener", exc_info=True
                )
                return False
            _watching[spark] = ends
            atexit.register(ends.report_the_rest)
    ends.add(streams)
    return True
