"""`kinesis-spout run`: writes a stream to parquet, json, the console or nowhere."""

from __future__ import annotations

import re
import tempfile
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from kinesis_spout.application.run_recorder import amend_newest_run, failure
from kinesis_spout.cli.exit_codes import CliError, StopSignals, one_sentence
from kinesis_spout.cli.places import warnings_as_notes
from kinesis_spout.cli.shared_options import (
    errors,
    flag,
    option,
    parse_pairs,
    typed_text,
    usage_errors,
    with_zone,
)
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import duration
from kinesis_spout.errors import ConfigError
from kinesis_spout.programs import load_function, split_name
from spark_job.commands.spark_options import CONF, LOG_FILE, MASTER, PANEL
from spark_job.commands.spark_session import quiet, spark_session
from spark_job.kinesis_source import KinesisSource
from spark_job.metrics import serve
from spark_job.metrics.source_report import reports_in
from spark_job.process_services import open_store
from spark_job.query_failure import failure_report, failure_sentence, for_spark
from spark_job.registration import refuse_embedded_on_cluster
from spark_job.settings import texts_from_options
from state.failpoint import failpoint
from state.store.runs import DONE, STOPPED, RunEnd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console

    from spark_job.metrics.source_report import SourceReport
    from state.store.runs import RunLog

STREAM, WRITE, MONITORING = "The stream", "The output", "Monitoring"
POLL_S = 0.5
_CONSOLE_ROWS = 20
_QUERY_ID = "sql.streaming.queryId"  # Spark sets it in the thread of `foreachBatch`


class Sink(StrEnum):
    """The sinks of `run`."""

    PARQUET = "parquet"
    JSON = "json"
    CONSOLE = "console"
    NOOP = "noop"

    @property
    def writes_files(self) -> bool:
        return self in (Sink.PARQUET, Sink.JSON)


def run(
    ctx: typer.Context,
    *,
    stream: str | None = option(
        "Name of the stream, or names and ARNs of several streams, separated by commas.",
        panel=STREAM,
    ),
    application: str | None = flag(
        "application", "--application", "-a", panel=STREAM, callback=typed_text
    ),
    zookeeper: str | None = flag(
        "zookeeper", "--zookeeper", "-z", panel=STREAM, envvar="KINESIS_SPOUT_ZOOKEEPER"
    ),
    region: str | None = flag("region", panel=STREAM),
    endpoint_url: str | None = flag("endpoint_url", panel=STREAM),
    start: str | None = option(
        "Starting position of a new application: LATEST (default), TRIM_HORIZON, or a time such "
        "as -2h, 14:00 (today, in UTC) or 2026-01-31T12:00:00Z.",
        "--from",
        panel=STREAM,
    ),
    option: list[str] | None = option(
        "Set any other reader option, such as maxRecordsPerShard=5000. Repeatable.",
        panel=STREAM,
        metavar="KEY=VALUE",
    ),
    sink: Sink = option("Sink that receives the rows.", default=Sink.CONSOLE, panel=WRITE),
    path: str | None = option("Directory that the parquet or json sink writes to.", panel=WRITE),
    process: str | None = option(
        "Apply this function to each batch. The function takes and returns a DataFrame. The "
        "current directory is searched first for the module. With --process, each batch is written "
        "to its own directory, which a replay of the batch replaces.",
        panel=WRITE,
        metavar="MODULE:FUNCTION",
    ),
    checkpoint_location: str | None = option(
        "Spark's checkpoint location for the query (default: PATH/_checkpoint).", panel=WRITE
    ),
    trigger: str | None = option('Time between batches, such as "5 seconds".', panel=PANEL),
    available_now: bool = option(
        "Read all records already on the stream, then exit.",
        "--available-now",
        default=False,
        panel=PANEL,
    ),
    metrics_port: int | None = option(
        "Serve metrics to Prometheus on this port of 127.0.0.1; 0 chooses a free port, which the "
        "command prints.",
        panel=MONITORING,
        min=0,
        max=65_535,
    ),
    master: str | None = MASTER,
    conf: list[str] | None = CONF,
    log_file: Path = LOG_FILE,
) -> None:
    """Write a stream to parquet, json, the console or nowhere, with checkpoints in ZooKeeper.

    Ctrl-C stops the query cleanly. A later run continues from the checkpoints.
    """
    if sink.writes_files and path is None:
        raise typer.BadParameter(f"--sink {sink.value} needs a directory", param_hint="--path")
    if not sink.writes_files and path is not None:
        raise typer.BadParameter(
            f"--sink {sink.value} writes no files; omit --path", param_hint="--path"
        )
    if trigger is not None and available_now:
        raise typer.BadParameter(
            "--trigger cannot be combined with --available-now; omit --trigger",
            param_hint="--trigger",
        )
    named: dict[str, Any] = {
        "stream": stream,
        "application": application,
        "zookeeper": zookeeper,
        "region": region,
        "endpoint_url": endpoint_url,
        "starting_position": with_zone("--from", start),
    }
    pairs, settings = parse_pairs("--option", option or ()), parse_pairs("--conf", conf or ())
    with StopSignals() as stop, one_sentence(errors(), ctx=ctx), ExitStack() as stack:
        with warnings_as_notes():
            fields = named | texts_from_options(pairs)  # which win
            if fields["stream"] is None and "stream_arn" not in fields:
                raise ConfigError.about("--stream", " is missing", "pass the name of the stream")
            source = KinesisSource(**fields)
        if not checkpoint_location and path is not None:
            checkpoint_location = f"{path.rstrip('/')}/_checkpoint"  # a name that readers skip
        elif not checkpoint_location:
            temporary = tempfile.TemporaryDirectory(
                prefix="kinesis-spout-", ignore_cleanup_errors=True
            )
            checkpoint_location = Path(stack.enter_context(temporary)).as_uri()
        job = RunJob(
            source=source,
            sink=sink,
            path=path,
            checkpoint_location=checkpoint_location,
            trigger=trigger,
            available_now=available_now,
            process=None if process is None else load_process(process),
            master=master,
            conf=settings,
            metrics_port=metrics_port,
            log_file=log_file,
        )
        for each in job.source.query().streams:
            refuse_embedded_on_cluster(each.zookeeper, master or settings.get("spark.master"))
        _, console = stack.enter_context(quiet(log_file, keep_stdout=sink is Sink.CONSOLE))
        with one_sentence(console, ctx=ctx, log_file=log_file):
            _run(job, console, stop)


def load_process(text: str) -> Callable[[Any], Any]:
    """Import the function that `module:function` names, also from the current directory.

    Raises `typer.BadParameter`, or `CliError` when the import fails.
    """
    with usage_errors("--process"):
        split_name(text)
    try:
        return load_function(text)
    except ConfigError as exc:
        raise CliError(f"--process {exc}") from exc


def _run(job: RunJob, console: Console, stop: StopSignals) -> None:
    read = job.source.stream or job.source.stream_arn
    _say(console, f"[bold]{read}[/] to {job.sink.value} {escape(job.path or '')}")
    _say(console, f"[dim]Spark's log: {escape(str(job.log_file))}[/]")
    name, folders = f"kinesis-spout {job.source.application}", (Path.cwd(),)
    with (
        spark_session(name, master=job.master, conf=job.conf, folders=folders) as spark,
        ExitStack() as stack,
    ):
        if job.metrics_port is not None:
            try:
                server = stack.enter_context(serve(spark, job.metrics_port))
            except ConfigError as exc:
                raise exc.respelt("--metrics-port") from exc
            _say(console, f"Prometheus can read the metrics at {server.url}")
        stop.install()  # again: PySpark's context has replaced the handler of SIGINT
        try:
            with warnings_as_notes(lambda text: _say(console, f"[yellow]note:[/] {escape(text)}")):
                query = job.start(spark)
        except (PySparkException, Py4JError) as exc:
            sentence = f"the query cannot start: {failure_sentence(str(exc))}"
            raise CliError(sentence, log_file=job.log_file) from exc
        progress = Progress()
        try:
            with stop.deferred(), progress_line(console) as show:
                progress = follow(query, job, show, stop)
        finally:
            if query.isActive:
                query.stop()
            if stop.stopping:
                _say(console, f"stopped after {progress.total}")
            elif query.exception() is None:
                _say(console, f"ended: {progress.total}")


def _say(console: Console, text: str) -> None:
    console.print(text.rstrip(), highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob:
    """The query to run.

    - `checkpoint_location`: the directory of Spark's own log. ZooKeeper keeps what was consumed.
    - `trigger`: the processing time between batches, like "5 seconds".
    - `process`: applied to each batch; None writes the batch as it is.
    - `master`, `conf`, `log_file`: of Spark. `metrics_port`: of its metrics; None for none.
    """

    source: KinesisSource
    sink: Sink
    path: str | None
    checkpoint_location: str
    trigger: str | None = None
    available_now: bool = False
    process: Callable[[DataFrame], DataFrame] | None = None
    master: str | None = None
    conf: Mapping[str, str]
    metrics_port: int | None = None
    log_file: Path

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query. Raises and warns as `KinesisSource.read_stream`."""
        if self.path is not None:
            refuse_hidden_files(spark, self.path, in_batches=self.process is not None)
        frame = self.source.read_stream(spark)
        writer = frame.writeStream.option("checkpointLocation", self.checkpoint_location)
        if self.available_now:
            writer = writer.trigger(availableNow=True)
        elif self.trigger is not None:
            writer = writer.trigger(processingTime=self.trigger)
        if self.process is not None:
            return writer.foreachBatch(partial(self.write, self.process)).start()
        return writer.format(self.sink.value).start(self.path)

    def write(
        self, process: Callable[[DataFrame], DataFrame], batch: DataFrame, batch_id: int
    ) -> None:
        """Apply the function to a batch, and write the result. Blocks until it is written; Spark
        calls this on the driver.

        Files go to a directory of the batch, `batch=<query>-<id>`, which Spark reads as a partition
        column. The source replays a batch row for row under the same id of the same query, whose
        id its checkpoint location keeps. So a replayed batch replaces its first writing.
        """
        try:
            result = process(batch)
        except BaseException as exc:
            error = for_spark(exc, "the function applied to each batch")
            if error is exc:
                raise
            raise error from None
        if not isinstance(result, type(batch)):
            raise TypeError(
                f"the function applied to each batch returned a {type(result).__name__}, not a "
                "DataFrame; return a DataFrame"
            )
        if self.sink.writes_files:
            query_id = str(batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID))
            place = f"{self.path}/batch={query_id[:8]}-{batch_id}"
            result.write.mode("overwrite").format(self.sink.value).save(place)
        elif self.sink is Sink.CONSOLE:
            result.show(_CONSOLE_ROWS, truncate=False)
        else:
            result.write.mode("overwrite").format("noop").save()
        failpoint("sink-written")


def refuse_hidden_files(spark: SparkSession, path: str, *, in_batches: bool) -> None:
    """Raise `ConfigError` if Spark would not show all files of the directory to its readers.

    A streaming file sink lists its files in `_spark_metadata`. Where this list is, Spark reads what
    it names, and not the directories of batches (`in_batches`) beside it.
    """
    context: Any = spark.sparkContext
    new_path = context._jvm.org.apache.hadoop.fs.Path  # noqa: SLF001  # PySpark cannot list a path
    folder = new_path(path)
    files = folder.getFileSystem(context._jsc.hadoopConfiguration())  # noqa: SLF001
    is_listed = files.exists(new_path(folder, "_spark_metadata"))
    found = files.listStatus(folder) if not is_listed and files.exists(folder) else ()
    has_batches = any(one.getPath().getName().startswith("batch=") for one in found)
    if is_listed if in_batches else has_batches:
        earlier = "without" if in_batches else "with"
        raise ConfigError.about(
            "--path",
            f" is {path!r}, which contains files of a run {earlier} --process, so readers would "
            "see only one run's files",
            "choose another directory",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The figures of a query so far. `rows_per_s`: of the last batch. `streams`: the newest report
    of each stream; none before the first.
    """

    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    streams: Sequence[SourceReport] = ()
    last_batch: int = -1

    def after(self, report: Mapping[str, Any]) -> Progress:
        """The figures after one more of Spark's progress reports.

        A report of a batch already counted adds no rows: an idle query repeats its reports.
        """
        streams = [progress.report for progress in reports_in(report)] or self.streams
        if int(report["batchId"]) <= self.last_batch or not report.get("numInputRows"):
            return replace(self, streams=streams)
        return Progress(
            batches=self.batches + 1,
            rows=self.rows + int(report["numInputRows"]),
            rows_per_s=float(report.get("processedRowsPerSecond") or 0.0),
            streams=streams,
            last_batch=int(report["batchId"]),
        )

    @property
    def total(self) -> str:
        """The totals, without the momentary figures: a run that has ended has no rate or lag."""
        return f"{self.batches:,} {'batch' if self.batches == 1 else 'batches'}  {self.rows:,} rows"

    def __str__(self) -> str:
        streams, parts = self.streams, [self.total, f"{self.rows_per_s:,.0f} rows/s"]
        if streams:
            parts.append(f"lag {duration(max(stream.lag_ms for stream in streams))}")
        if unresolved := sum(stream.unresolved for stream in streams):
            oldest_ms = max(stream.oldest_unresolved_ms for stream in streams)
            oldest = f" (oldest {duration(oldest_ms)})" if oldest_ms else ""
            parts.append(f"{unresolved:,} unresolved{oldest}")
        if dead_lettered := sum(stream.dead_lettered for stream in streams):
            parts.append(f"{dead_lettered:,} dead-lettered")
        if any(stream.outage for stream in streams):
            parts.append("most records fail, so the job reads no new records until retries succeed")
        return "  ".join(parts)


@contextmanager
def progress_line(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Gives a function that shows progress on the console, unless it reads as the last one. For the
    main thread.
    """
    shown = ""
    live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def show(progress: Progress) -> None:
        nonlocal shown
        if str(progress) == shown:
            return
        shown = str(progress)
        if live:
            live.update(Text(shown), refresh=True)
        else:
            console.print(shown, highlight=False, soft_wrap=True)

    with live or nullcontext():
        yield show


_INTERVAL = re.compile(r"(?:interval )?(\d+) *(second|minute|hour|day)s?", re.IGNORECASE)
_UNITS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def interval_ms(trigger: str) -> int | None:
    """Of a trigger like "15 minutes"; None for another form that Spark takes."""
    match = _INTERVAL.fullmatch(trigger.strip())
    return None if match is None else int(match[1]) * _UNITS_MS[match[2].lower()] or None


def follow(
    query: StreamingQuery, job: RunJob, show: Callable[[Progress], None], stop: StopSignals
) -> Progress:
    """Show the query's progress until it ends, or stop the query at a signal. Note in the
    application's state what its source cannot know: the trigger, and how the query ended.

    Blocks; call it with signals deferred. Raises `CliError` with the cause when the query failed.
    """
    progress, interrupted = Progress(), False
    trigger_ms = None if job.trigger is None else interval_ms(job.trigger)
    is_active = True
    while is_active:
        # Asked before the reports are: the last ones come before the query ends.
        if interrupted := query.isActive and stop.wait(POLL_S):
            query.stop()
        is_active = query.isActive and not interrupted
        progress = reduce(Progress.after, query.recentProgress, progress)
        show(progress)
        # The source writes the run that is amended before it reports for the first time.
        if trigger_ms is not None and progress.streams:
            _amend(job, partial(msgspec.structs.replace, trigger_ms=trigger_ms))
            trigger_ms = None
    error = None if interrupted else query.exception()
    now_ms = SystemClock().now_ms()
    end = RunEnd(time_ms=now_ms, kind=STOPPED if interrupted else DONE)
    if error is not None:
        end = failure(failure_report(str(error)), now_ms)
    _amend(job, lambda runs: runs.ended(end))
    if error is not None:
        cause = failure_sentence(str(error))
        raise CliError(f"the query failed: {cause}", log_file=job.log_file) from error
    return progress


def _amend(job: RunJob, amended: Callable[[RunLog], RunLog]) -> None:
    """Amend the newest run of each stream. Blocks on ZooKeeper; raises nothing."""
    with suppress(Exception):
        for settings in job.source.query().with_passwords().streams:
            with closing(open_store(settings)) as store:
                amend_newest_run(store.runs, amended)
