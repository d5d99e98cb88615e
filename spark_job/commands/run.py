"""`kinesis-spout run`: writes a stream to parquet, json, the console or nowhere."""

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console
from rich.markup import escape

from kinesis_spout.cli.exit_codes import CliError, StopSignals, one_sentence
from kinesis_spout.cli.places import note, warnings_as_notes, zookeeper_flag
from kinesis_spout.cli.shared_options import (
    errors,
    flag,
    parse_pairs,
    root_options,
    typed_text,
    usage_errors,
    with_zone,
)
from kinesis_spout.errors import ConfigError
from kinesis_spout.programs import load_function, split_name
from spark_job.commands.run_job import Progress, ProgressLine, RunJob, Sink, follow
from spark_job.commands.spark_options import DEFAULT_LOG, PANEL, Conf, LogFile, Master
from spark_job.commands.spark_session import quiet, spark_session
from spark_job.kinesis_source import KinesisSource
from spark_job.metrics import serve
from spark_job.preflight import refuse_embedded_on_cluster
from spark_job.query_failure import failure_sentence
from spark_job.settings import texts_from_options

STREAM, WRITE, MONITORING = "The stream", "The output", "Monitoring"


def run(
    ctx: typer.Context,
    *,
    stream: Annotated[
        str | None,
        typer.Option(
            help="Name of the stream, or names and ARNs of several streams, separated by commas.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    application: Annotated[
        str | None, flag("application", "--application", "-a", panel=STREAM, callback=typed_text)
    ] = None,
    zookeeper: Annotated[str | None, zookeeper_flag(panel=STREAM)] = None,
    region: Annotated[str | None, flag("region", panel=STREAM)] = None,
    endpoint_url: Annotated[str | None, flag("endpoint_url", panel=STREAM)] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Where a new application starts: LATEST (default), TRIM_HORIZON, -2h, 14:00 (of "
            "today, UTC), or an ISO time.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Any other reader option, e.g. maxRecordsPerShard=5000. Repeatable.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    sink: Annotated[
        Sink, typer.Option(help="Where the rows go.", rich_help_panel=WRITE)
    ] = Sink.CONSOLE,
    path: Annotated[
        str | None, typer.Option(help="Directory of a parquet or json sink.", rich_help_panel=WRITE)
    ] = None,
    process: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help=(
                "A function that takes a DataFrame and returns one, applied to each batch. The "
                "module is looked for in the current directory first. Each batch is then written "
                "to a directory of its own, so a replayed batch replaces its first version."
            ),
            rich_help_panel=WRITE,
        ),
    ] = None,
    checkpoint_location: Annotated[
        str | None,
        typer.Option(
            help="Directory of Spark's own log of the query (default: PATH/_checkpoint).",
            rich_help_panel=WRITE,
        ),
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(help='Time between batches, e.g. "5 seconds".', rich_help_panel=PANEL),
    ] = None,
    available_now: Annotated[
        bool,
        typer.Option(
            "--available-now",
            help="Read the records that are on the stream now, then end.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help=(
                "Serve metrics to Prometheus on this port of 127.0.0.1; 0 takes a free port and "
                "prints it."
            ),
            rich_help_panel=MONITORING,
        ),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    log_file: LogFile = DEFAULT_LOG,
) -> None:
    """Write a stream to parquet, json, the console or nowhere, with checkpoints in ZooKeeper.

    Ctrl-C stops the query in order. A later run continues from the checkpoints.
    """
    if sink.writes_files and path is None:
        raise typer.BadParameter(f"--sink {sink.value} needs a directory", param_hint="--path")
    if not sink.writes_files and path is not None:
        raise typer.BadParameter(
            f"--sink {sink.value} writes no files; leave --path out", param_hint="--path"
        )
    if trigger is not None and available_now:
        raise typer.BadParameter(
            "--trigger does not apply with --available-now, which ends by itself; leave "
            "--trigger out",
            param_hint="--trigger",
        )
    named = {
        "stream": stream,
        "application": application,
        "zookeeper": zookeeper,
        "region": region,
        "endpoint_url": endpoint_url,
        "starting_position": with_zone("--from", start, note),
    }
    pairs, settings = parse_pairs("--option", option or ()), parse_pairs("--conf", conf or ())
    debug = root_options(ctx).debug
    with StopSignals() as stop, one_sentence(errors(), ctx=ctx, debug=debug), ExitStack() as stack:
        with warnings_as_notes():
            source = source_of(named, pairs)
        job = RunJob(
            source=source,
            sink=sink,
            path=path,
            checkpoint_location=checkpoint_location or _checkpoint_location(sink, path, stack),
            trigger=trigger,
            available_now=available_now,
            process=None if process is None else load_process(process),
        )
        for each in job.source.query().streams:
            refuse_embedded_on_cluster(each.zookeeper, master or settings.get("spark.master"))
        console = Console(
            file=stack.enter_context(quiet(log_file, keep_stdout=sink is Sink.CONSOLE)).stderr
        )
        with one_sentence(console, ctx=ctx, debug=debug, log_file=log_file):
            _run(
                job,
                console,
                stop,
                master=master,
                conf=settings,
                log_file=log_file,
                metrics_port=metrics_port,
            )


def source_of(named: Mapping[str, str | None], options: Mapping[str, str]) -> KinesisSource:
    """The source from the command's own options (by field) and from reader options (`--option`),
    which win.

    Raises `ConfigError` with the name of a bad option.
    """
    fields = {name: text for name, text in named.items() if text is not None} | texts_from_options(
        options
    )
    if "stream" not in fields and "stream_arn" not in fields:
        raise ConfigError("option --stream is missing", "give the name of the stream")
    return KinesisSource(**fields)


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


def _run(
    job: RunJob,
    console: Console,
    stop: StopSignals,
    *,
    master: str | None,
    conf: dict[str, str],
    log_file: Path,
    metrics_port: int | None,
) -> None:
    _say(
        console,
        f"[bold]{job.source.stream or job.source.stream_arn}[/] to {job.sink.value} "
        f"{escape(job.path or '')}",
    )
    _say(console, f"[dim]Spark's log: {escape(str(log_file))}[/]")
    with (
        spark_session(
            f"kinesis-spout {job.source.application}",
            master=master,
            conf=conf,
            folders=(Path.cwd(),),
        ) as spark,
        ExitStack() as stack,
    ):
        if metrics_port is not None:
            try:
                server = stack.enter_context(serve(spark, metrics_port))
            except ConfigError as exc:
                raise exc.respelt("--metrics-port") from exc
            _say(console, f"metrics for Prometheus at {server.url}")
        stop.install()  # again: PySpark's context has replaced the handler of SIGINT
        try:
            query, notes = job.start(spark)
        except (PySparkException, Py4JError) as exc:
            raise CliError(
                f"the query does not start: {failure_sentence(str(exc))}", log_file=log_file
            ) from exc
        for text in notes:
            _say(console, f"[yellow]note:[/] {escape(text)}")
        progress = Progress()
        try:
            with stop.deferred(), ProgressLine(console) as line:
                progress = follow(query, job, line, stop, log_file=log_file)
        finally:
            if query.isActive:
                query.stop()
            if stop.stopping:
                _say(console, f"stopped after {progress.total}")
            elif query.exception() is None:
                _say(console, f"ended: {progress.total}")


def _say(console: Console, text: str) -> None:
    console.print(text.rstrip(), highlight=False, soft_wrap=True)


def _checkpoint_location(sink: Sink, path: str | None, stack: ExitStack) -> str:
    """A directory beside the sink's files, under a name that readers skip; without files, a
    temporary directory of this run.
    """
    if sink.writes_files and path is not None:
        return f"{path.rstrip('/')}/_checkpoint"
    return Path(
        stack.enter_context(
            tempfile.TemporaryDirectory(prefix="kinesis-spout-", ignore_cleanup_errors=True)
        )
    ).as_uri()
