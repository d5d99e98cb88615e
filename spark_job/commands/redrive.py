"""`kinesis-spout redrive`: puts dead letters back on the streams that they came from.

Files on this machine are read here, and pyspark is not imported. Spark reads all other places.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.exit_codes import (
    TYPED_CODES,
    CliError,
    StopSignals,
    one_sentence,
    stdout_errors,
)
from kinesis_spout.cli.places import show
from kinesis_spout.cli.shared_options import (
    connection_values,
    errors,
    flag,
    option,
    parse_pairs,
    typed_text,
    with_zone,
)
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.dead_letter.files import LetterFiles, LetterFormat, LocalLetterFiles
from kinesis_spout.dead_letter.letter import moment
from kinesis_spout.dead_letter.redrive import Found, Redrive, Selection
from kinesis_spout.options import connection_of
from kinesis_spout.programs import how_to_install
from spark_job.commands.spark_options import CONF, LOG_FILE, MASTER
from state.errors import InvalidPositionError
from state.position import StartingPosition

_TIMES = "-2h (s, m, h or d), 14:00, or an ISO time such as 2026-01-31T12:00:00Z"
_CONFIGURATIONS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")
WHICH, WHERE = "Which dead letters", "The destination"


def redrive(
    ctx: typer.Context,
    path: Annotated[
        str,
        typer.Argument(
            help="Path of the dead letters: the path of the job's DeadLetter, or the file of "
            "consume --dead-letter."
        ),
    ],
    *,
    reason: list[str] | None = option(
        "Redrive only dead letters whose reason contains TEXT. Repeatable.",
        panel=WHICH,
        metavar="TEXT",
    ),
    since: str | None = option(
        "Redrive only dead letters that last failed at or after this time, such as -2h, 14:00 "
        "(today, in UTC) or 2026-01-31T12:00:00Z.",
        panel=WHICH,
    ),
    until: str | None = option(
        "Redrive only dead letters that last failed before this time.", panel=WHICH
    ),
    limit: int | None = option(
        "Maximum number of records to put. Run the command again to put the remaining records.",
        panel=WHICH,
        min=1,
    ),
    format: LetterFormat | None = option(  # noqa: A002  # the option's name
        "Format of the files (default: derived from the file names).", panel=WHICH
    ),
    stream: str | None = option(
        "Put all records on this stream (name or ARN) instead of their original streams.",
        panel=WHERE,
    ),
    region: str | None = flag("region", panel=WHERE),
    endpoint_url: str | None = flag("endpoint_url", panel=WHERE),
    option: list[str] | None = option(
        "Set any other connection option, such as profile=work. Repeatable.",
        panel=WHERE,
        metavar="KEY=VALUE",
    ),
    dry_run: bool = option(
        "Count the dead letters by reason, without putting them.", "--dry-run", default=False
    ),
    yes: bool = option(
        "Put the records without asking for confirmation.", "--yes", "-y", default=False
    ),
    as_json: bool = option("Print only one JSON object on stdout.", "--json", default=False),
    master: str | None = MASTER,
    conf: list[str] | None = CONF,
    log_file: Path = LOG_FILE,
) -> None:
    """Put the records of dead letters on their original streams again, each record once.

    Files of JSON lines or parquet on this machine are read directly. For any
    other path, the command starts Spark. A ledger in the directory _redriven,
    beside the dead letters, lists the dead letters that were put, so a second run
    puts no record twice. After a killed run, up to 500 records may be put again.
    Do not run two redrives on the same path at the same time.
    """
    settings = parse_pairs("--conf", conf or ())
    with (
        StopSignals() as stop,
        one_sentence(errors(), ctx=ctx, codes=TYPED_CODES),
        ExitStack() as stack,
    ):
        values = connection_values(option or (), region=region, endpoint_url=endpoint_url)
        aws = connection_of(values)
        selection = selection_of(
            reasons=reason or (),
            since=with_zone("--since", since),
            until=with_zone("--until", until),
            stream=stream,
            region=aws.region,
            now_ms=SystemClock().now_ms(),
        )
        if not (dry_run or yes or sys.stdin.isatty()):
            raise CliError(
                "stdin is not a terminal, so redrive cannot ask whether to put the records",
                "pass --yes to put the records, or --dry-run to count the dead letters",
            )
        out, notes = Console(), errors()
        files: LetterFiles | None = LocalLetterFiles.at(path)
        if files is None:
            refuse_missing(path, settings)
            spark_files = _spark_files(
                ctx, stop, path, master=master, conf=settings, log_file=log_file
            )
            files, out, notes = stack.enter_context(spark_files)
        work = stack.enter_context(Redrive(files, selection, aws))
        work.read(format, heads=dry_run)
        found = work.find()
        if not as_json:
            _show(out, found)
        asked = 0 if dry_run else min(found.to_put, limit or found.to_put)
        if asked and not yes and not _confirmed(notes, asked):
            raise typer.Exit(1)
        put = _put_back(work, notes, stop, asked) if asked else 0
        if as_json:
            report = {"path": path, "dryRun": dry_run, "put": put} | msgspec.to_builtins(found)
            with stdout_errors():
                typer.echo(json.dumps(report), file=out.file)
        elif asked:
            show(out, f"put {put:,}")


def refuse_missing(path: str, conf: Mapping[str, str]) -> None:
    """Raise `CliError` if the path is of this machine and does not exist, since Spark takes long to
    find that out. Spark may read a path without a scheme from another file system, if its
    configuration says so, and a pattern from several files.
    """
    place = path.removeprefix("file://")
    has_own_default = place == path and (
        any("fs.default" in name for name in conf) or any(map(os.environ.get, _CONFIGURATIONS))
    )
    if has_own_default or set(place) & set(":*?{") or Path(place).exists():
        return
    raise CliError(
        f"{path} does not exist on this machine",
        "correct the path of the dead letters. For another file system, begin the path with its "
        "scheme, such as hdfs:// or s3a://",
    )


@contextmanager
def _spark_files(
    ctx: typer.Context,
    stop: StopSignals,
    path: str,
    *,
    master: str | None,
    conf: Mapping[str, str],
    log_file: Path,
) -> Iterator[tuple[LetterFiles, Console, Console]]:
    """The files as Spark reads them, and consoles on stdout and stderr, while all other output goes
    to the log. Errors of the block are reported there.
    """
    if find_spec("pyspark") is None:
        raise CliError(
            f"{path} contains no local files that redrive can read without Spark",
            f"to let Spark read them, {how_to_install('spark')}",
        )
    from py4j.protocol import Py4JError  # noqa: PLC0415  # only here Spark is needed
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from spark_job.commands.spark_session import quiet, spark_session  # noqa: PLC0415
    from spark_job.dead_letter.spark_files import SparkLetterFiles  # noqa: PLC0415
    from spark_job.query_failure import failure_sentence  # noqa: PLC0415

    with (
        quiet(log_file) as (out, notes),
        one_sentence(notes, ctx=ctx, log_file=log_file),
        spark_session("kinesis-spout redrive", master=master, conf=conf) as spark,
    ):
        stop.install()  # again: PySpark's context has replaced the handler of SIGINT
        try:
            yield SparkLetterFiles(spark, path), out, notes
        except (PySparkException, Py4JError) as exc:
            raise CliError(failure_sentence(str(exc)), log_file=log_file) from exc


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
        raise typer.BadParameter("pass a part of the reason's text", param_hint="--reason")
    target = None if stream is None else StreamRef.of(stream)
    if target is not None:
        target.region_or(region)
    first, end = _time("--since", since, now_ms), _time("--until", until, now_ms)
    if first is not None and end is not None and first >= end:
        raise typer.BadParameter(
            "--until is not after --since, so no dead letter can match both", param_hint="--until"
        )
    return Selection(reasons=tuple(reasons), since=first, until=end, target=target)


def _time(option: str, text: str | None, now_ms: int) -> datetime | None:
    if text is None:
        return None
    try:
        position = StartingPosition.parse(text)
    except InvalidPositionError:
        position = None
    if position is None or not position.is_time:
        raise typer.BadParameter(f"{text!r} is not a time; use {_TIMES}", param_hint=option)
    return moment(position.pin(now_ms).timestamp_ms, per_second=1_000)


def _confirmed(notes: Console, count: int) -> bool:
    try:
        return Confirm.ask(f"Put {count:,} records?", console=notes, default=False)
    except EOFError:
        return False


def _put_back(work: Redrive, notes: Console, stop: StopSignals, asked: int) -> int:
    def progress(count: int) -> None:
        if notes.is_terminal:
            notes.print(f"put {count:,} of {asked:,}", highlight=False)

    try:
        # Ctrl-C must not fall between a put and the record of it.
        with stop.deferred():
            return work.put(limit=asked, stopping=lambda: stop.stopping, progress=progress)
    except BaseException:
        notes.print(
            f"{work.count:,} of {asked:,} records were put. Run the command again to put the "
            "remaining records",
            highlight=False,
        )
        raise


def _show(console: Console, found: Found) -> None:
    """Print the letters to put, by stream and reason, and the numbers of those left out."""
    parts: list[RenderableType] = []
    if found.to_put:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("letters", justify="right")
        for name in ("stream", "reason"):
            table.add_column(name, overflow="fold")
        for name in ("first failure", "last failure"):
            table.add_column(name, no_wrap=True)
        for one in found.reasons:
            failures = (one.first_failure, one.last_failure)
            times = ("" if time is None else f"{time:%Y-%m-%d %H:%M}Z" for time in failures)
            table.add_row(f"{one.letters:,}", Text(one.stream), Text(one.reason), *times)
        parts.append(table)
    letters = "dead letter" if found.to_put == 1 else "dead letters"
    for count, line in (
        (found.more_reasons, "and {:,} more reasons"),
        (found.to_put, f"{{:,}} {letters} to put"),
        (not found.to_put, "no dead letters to put"),
        (found.put_before, "dead letters that earlier runs put: {:,}"),
        (
            found.without_payload,
            "dead letters without data, because their records expired before a retry: {:,}",
        ),
        (found.incomplete, "incomplete dead letters, which cannot be put: {:,}"),
        (found.unreadable, "rows in the files that are not dead letters: {:,}"),
    ):
        if count:
            parts.append(Text(line.format(count)))
    show(console, Group(*parts))
