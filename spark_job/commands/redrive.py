"""`kinesis-spout redrive`: puts dead letters back on the streams that they came from."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Annotated

import typer
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from rich.console import Console
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.exit_codes import CliError, StopSignals, one_sentence
from kinesis_spout.cli.places import note, warnings_as_notes
from kinesis_spout.cli.shared_options import (
    AWS,
    aws_config,
    errors,
    flag,
    parse_pairs,
    root_options,
    typed_text,
    with_zone,
)
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import ConfigError
from spark_job.commands.spark_session import (
    DEFAULT_LOG,
    Conf,
    LogFile,
    Master,
    Screen,
    quiet,
    spark_session,
)
from spark_job.dead_letter.redrive import Found, LetterFormat, Redrive, Selection
from spark_job.options import OPTIONS
from spark_job.query_failure import failure_sentence
from spark_job.settings import texts_from_options
from state.errors import InvalidPositionError
from state.position import StartingPosition

_TIMES = "an ISO time like 2026-01-31T12:00:00Z, 14:00, or a time ago like -2h (s, m, h or d)"
WHICH, WHERE = "Which dead letters", "The destination"


def redrive(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(help="Directory of the dead letters: the path of the job's DeadLetter."),
    ],
    *,
    reason: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Only letters whose reason contains TEXT. Repeatable.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Only letters that last failed at or after this: an ISO time, 14:00 (of today, "
            "UTC), or -2h.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Only letters that last failed before this.", rich_help_panel=WHICH),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of records to put; a later run puts the others.",
            rich_help_panel=WHICH,
        ),
    ] = None,
    format: Annotated[  # noqa: A002  # the option's name
        LetterFormat | None,
        typer.Option(
            help="Format of the files (default: from their names).", rich_help_panel=WHICH
        ),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            help="Put all records on this stream (name or ARN), not on the one each came from.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    region: Annotated[str | None, flag("region", panel=WHERE)] = None,
    endpoint_url: Annotated[str | None, flag("endpoint_url", panel=WHERE)] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Any other connection option, e.g. profile=work. Repeatable.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the letters by reason, and put nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Put without asking.")] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object on stdout, and nothing else there."),
    ] = False,
    master: Master = None,
    conf: Conf = None,
    log_file: LogFile = DEFAULT_LOG,
) -> None:
    """Put dead letters back on the streams that they came from, each record once.

    PATH/_redriven lists the letters that were put, so a second run puts nothing twice. After a
    killed run, up to 500 records may be put again. Do not run two at a time on one path.
    """
    pairs, settings = parse_pairs("--option", option or ()), parse_pairs("--conf", conf or ())
    debug = root_options(ctx).debug
    with StopSignals() as stop, one_sentence(errors(), ctx=ctx, debug=debug), ExitStack() as stack:
        with warnings_as_notes():
            aws = connection_of({"region": region, "endpoint_url": endpoint_url}, pairs)
        now_ms = SystemClock().now_ms()
        selection = selection_of(
            reasons=reason or (),
            since=with_zone("--since", since, note),
            until=with_zone("--until", until, note),
            stream=stream,
            region=aws.region,
            now_ms=now_ms,
        )
        if not (dry_run or yes or sys.stdin.isatty()):
            raise CliError(
                "stdin is not a terminal, so redrive cannot ask whether to put the records",
                "give --yes, or --dry-run to count them",
            )
        screen = stack.enter_context(quiet(log_file))
        with one_sentence(Console(file=screen.stderr), ctx=ctx, debug=debug, log_file=log_file):
            spark = stack.enter_context(
                spark_session("kinesis-spout redrive", master=master, conf=settings)
            )
            stop.install()  # again: PySpark's context has replaced the handler of SIGINT
            try:
                work = Redrive.open(
                    spark, path, format=format and format.value, selection=selection, aws=aws
                )
                _PuttingBack(path, work, screen, stop, as_json=as_json).run(
                    dry_run=dry_run, yes=yes, limit=limit
                )
            except (PySparkException, Py4JError) as exc:
                raise CliError(failure_sentence(str(exc)), log_file=log_file) from exc


def connection_of(named: Mapping[str, str | None], options: Mapping[str, str]) -> AwsConfig:
    """The connection from the command's own options (by field) and from `--option`, which wins.

    Raises `ConfigError` for a bad option, and for one that is only for reading.
    """
    texts = {name: text for name, text in named.items() if text is not None} | texts_from_options(
        options
    )
    for name in texts:
        if name not in AWS:
            known = ", ".join(option.name for option in AWS.values())
            raise ConfigError(
                f"option {OPTIONS[name].name} is for reading",
                f"use the options for putting: {known}",
            )
    return aws_config(texts)


def selection_of(
    *,
    reasons: Sequence[str],
    since: str | None,
    until: str | None,
    stream: str | None,
    region: str | None,
    now_ms: int,
) -> Selection:
    """The selection of letters. Times like -2h count back from `now_ms`.

    Raises `typer.BadParameter`, or `ConfigError` for a bad stream.
    """
    reasons = [typed_text(text) or "" for text in reasons]
    if not all(text.strip() for text in reasons):
        raise typer.BadParameter("give a part of the reason's text", param_hint="--reason")
    target = None
    if stream is not None:
        target = StreamRef.of(stream)
        target.region_or(region)
    times = _time("--since", since, now_ms), _time("--until", until, now_ms)
    if times[0] is not None and times[1] is not None and times[0] >= times[1]:
        raise typer.BadParameter(
            "it is not after --since, so no letter is between them", param_hint="--until"
        )
    return Selection(reasons=tuple(reasons), since=times[0], until=times[1], target=target)


class _PuttingBack:
    """One redrive: finds the letters, shows them, asks, puts them and reports."""

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
            _show(self._out, found)
        asked = 0 if dry_run else found.to_put if limit is None else min(limit, found.to_put)
        if asked:
            if not yes and not self._confirmed(asked):
                raise typer.Exit(1)
            self._put_back(asked, limit)
        if self._as_json:
            report = report_of(self._path, found, put=None if dry_run else self._put)
            self._out.print(
                json.dumps(report), highlight=False, markup=False, emoji=False, soft_wrap=True
            )
        elif asked:
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
            # Ctrl-C must not fall between a put and the record of it.
            with self._stop.deferred():
                self._work.put(limit=limit, stopping=lambda: self._stop.stopping, progress=progress)
        except BaseException:
            self._notes.print(
                f"{self._put:,} of {asked:,} are put and recorded; run it again for the others",
                highlight=False,
            )
            raise


def _time(option: str, text: str | None, now_ms: int) -> datetime | None:
    if text is None:
        return None
    try:
        moment = StartingPosition.parse(text)
    except InvalidPositionError:
        moment = None
    if moment is None or not moment.is_time:
        raise typer.BadParameter(f"{text!r} is not a time; give {_TIMES}", param_hint=option)
    timestamp_ms = moment.pin(now_ms).timestamp_ms
    return None if timestamp_ms is None else datetime.fromtimestamp(timestamp_ms / 1_000, UTC)


def report_of(path: str, found: Found, *, put: int | None) -> dict[str, object]:
    """The object that `--json` prints: the letters found in `path`, and how many were put, None in
    a dry run. Times are in ISO 8601, UTC.
    """
    return {
        "path": path,
        "dryRun": put is None,
        "toPut": found.to_put,
        "put": put or 0,
        "putBefore": found.put_before,
        "withoutPayload": found.without_payload,
        "incomplete": found.incomplete,
        "unreadable": found.unreadable,
        "reasons": [
            {
                "stream": count.target,
                "reason": count.reason,
                "letters": count.letters,
                "firstFailure": _iso(count.first_failure),
                "lastFailure": _iso(count.last_failure),
            }
            for count in found.reasons
        ],
        "moreReasons": found.more_reasons,
    }


def _show(console: Console, found: Found) -> None:
    """Print the letters to put, by stream and reason, and the numbers of those left out."""
    if found.to_put:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("letters", justify="right")
        for name in ("stream", "reason"):
            table.add_column(name, overflow="fold")
        for name in ("first failure", "last failure"):
            table.add_column(name, no_wrap=True)
        for reason in found.reasons:
            times = (_minute(reason.first_failure), _minute(reason.last_failure))
            table.add_row(f"{reason.letters:,}", Text(reason.target), Text(reason.reason), *times)
        console.print(table)
    letters = "dead letter" if found.to_put == 1 else "dead letters"
    no_payload = (
        f"{found.without_payload:,} have no payload (their records were past the stream's "
        "retention) and cannot be put"
    )
    missing_parts = (
        f"{found.incomplete:,} are in parts of which some are missing, and cannot be put"
    )
    for count, line in (
        (found.more_reasons, f"and {found.more_reasons:,} more reasons"),
        (1, f"{found.to_put:,} {letters} to put" if found.to_put else "no dead letters to put"),
        (found.put_before, f"{found.put_before:,} were put before"),
        (found.without_payload, no_payload),
        (found.incomplete, missing_parts),
        (found.unreadable, f"{found.unreadable:,} rows in the files are not dead letters"),
    ):
        if count:
            console.print(line, highlight=False, soft_wrap=True)


def _iso(moment: datetime | None) -> str | None:
    text = None if moment is None else moment.isoformat(timespec="milliseconds")
    return text and text.replace("+00:00", "Z")


def _minute(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}Z"
