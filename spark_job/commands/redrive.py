"""`kinesis-spout redrive`: puts dead letters back on their stream."""

import json
import sys
from contextlib import ExitStack
from enum import StrEnum
from typing import Annotated

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console
from rich.prompt import Confirm

from kinesis_spout.cli.errors import CliError, StopSignals, one_sentence
from kinesis_spout.cli.shared_options import errors, parse_pairs, root_options
from kinesis_spout.clock import SystemClock
from spark_job.commands.quiet import Screen, quiet
from spark_job.commands.redrive_report import Report, show_found
from spark_job.commands.redrive_settings import connection_of, selection_of
from spark_job.commands.run_session import spark_session
from spark_job.commands.spark_options import DEFAULT_LOG, Conf, LogFile, Master
from spark_job.dead_letter.redrive import Redrive
from spark_job.query_failure import failure_sentence

WHICH, WHERE = "Which dead letters", "Where to"


class LetterFormat(StrEnum):
    """What the dead letters' files may be."""

    PARQUET = "parquet"
    JSON = "json"
    ORC = "orc"


# long: its parameters are the command's options, and typer takes the help from them
def redrive(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            help="Where the dead letters are: the path that the job's DeadLetter was given."
        ),
    ],
    *,
    reason: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Only letters whose reason holds TEXT. Repeatable.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only those that last failed at or after this: an ISO time, or -2h.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Only those that last failed before this.", rich_help_panel=WHICH),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many; the others next time.", rich_help_panel=WHICH),
    ] = None,
    format: Annotated[  # noqa: A002  # the option's name
        LetterFormat | None,
        typer.Option(help="Told by the files' names if not given.", rich_help_panel=WHICH),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            help="Another stream (name or ARN) than the one each came from.", rich_help_panel=WHERE
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(help="AWS region; else the AWS configuration's.", rich_help_panel=WHERE),
    ] = None,
    endpoint_url: Annotated[
        str | None,
        typer.Option(help="Another Kinesis endpoint, a local one say.", rich_help_panel=WHERE),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Any other connection option, e.g. profile=work. Repeatable.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count them by reason, and put nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object on stdout, and nothing else there."),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    log_file: LogFile = DEFAULT_LOG,
) -> None:
    """Put dead letters back on the stream that they came from, each record once.

    What was put is remembered beside them (PATH/_redriven): a second run puts nothing twice. One
    that was killed may bring the last 500 again. Do not run two at a time on one path.
    """
    pairs, settings = parse_pairs("--option", option or ()), parse_pairs("--conf", conf or ())
    debug = root_options(ctx).debug
    with StopSignals() as stop, one_sentence(errors(), debug=debug), ExitStack() as stack:
        aws = connection_of({"region": region, "endpoint_url": endpoint_url}, pairs)
        now_ms = SystemClock().now_ms()
        selection = selection_of(
            reasons=reason or (),
            since=since,
            until=until,
            stream=stream,
            region=aws.region,
            now_ms=now_ms,
        )
        if not (dry_run or yes or sys.stdin.isatty()):
            raise CliError(
                "nobody is here to be asked whether to put them; give --yes, or --dry-run to see "
                "what there is"
            )
        screen = stack.enter_context(quiet(log_file))
        with one_sentence(Console(file=screen.stderr), debug=debug, log_file=log_file):
            spark = stack.enter_context(
                spark_session("kinesis-spout redrive", master=master, conf=settings)
            )
            stop.install()  # PySpark's context has taken SIGINT over
            try:
                work = Redrive.open(
                    spark, path, format=format and format.value, selection=selection, aws=aws
                )
                _PuttingBack(path, work, screen, stop, as_json=as_json).run(
                    dry_run=dry_run, yes=yes, limit=limit
                )
            except (PySparkException, Py4JError) as exc:
                raise CliError(failure_sentence(str(exc)), log_file=log_file) from exc


class _PuttingBack:
    """Finds, shows, asks, puts and reports."""

    def __init__(
        self, path: str, work: Redrive, screen: Screen, stop: StopSignals, *, as_json: bool
    ) -> None:
        self._path = path
        self._work = work
        self._stop = stop
        self._as_json = as_json
        self._out = Console(file=screen.stdout)
        self._notes = Console(file=screen.stderr)
        self._put = 0

    def run(self, *, dry_run: bool, yes: bool, limit: int | None) -> None:
        found = self._work.find()
        if not self._as_json:
            show_found(self._out, found)
        asked = found.to_put if limit is None else min(limit, found.to_put)
        if asked and not dry_run:
            if not yes and not self._confirmed(asked):
                raise typer.Exit(1)
            self._put_back(asked, limit)
        if self._as_json:
            report = Report(path=self._path, found=found, put=None if dry_run else self._put)
            self._out.print(
                json.dumps(report.as_json()),
                highlight=False,
                markup=False,
                emoji=False,
                soft_wrap=True,
            )
        elif asked and not dry_run:
            self._out.print(f"put {self._put:,}", highlight=False)

    def _confirmed(self, count: int) -> bool:
        try:
            return Confirm.ask(f"Put {count:,} records?", console=self._notes, default=False)
        except EOFError:
            return False

    def _put_back(self, asked: int, limit: int | None) -> None:
        def progress(count: int) -> None:
            self._put = count
            if self._notes.is_terminal:
                self._notes.print(f"put {count:,} of {asked:,}", highlight=False)

        try:
            with (
                self._stop.deferred()
            ):  # so that ctrl-C does not fall between what is put and its being remembered
                self._work.put(limit=limit, stopping=lambda: self._stop.stopping, progress=progress)
        except BaseException:
            self._notes.print(
                f"{self._put:,} of {asked:,} are put and remembered; run it again for the others",
                highlight=False,
            )
            raise
