"""`kinesis-spout consume`: a stream as lines of JSON on stdout, or through a command.

It needs neither Spark nor Python code of the user. On stderr are a live table, notes above it, and
a summary at the end.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.exec_process import ExecProcess
from kinesis_spout.cli.exit_codes import BROKEN_PIPE, CliError, StopSignals, exit_code_of
from kinesis_spout.cli.line_io import LineWriter
from kinesis_spout.cli.places import Operation, command, note, patience, services, shown_log
from kinesis_spout.cli.plain_text import plural
from kinesis_spout.cli.record_lines import raw_line, record_line
from kinesis_spout.cli.shared_options import flag, option, scheme_flag, with_zone, wrong_usage
from kinesis_spout.config import duration, parse_duration_ms
from kinesis_spout.dead_letter.letter import LetterFile
from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.inspection.wording import short_shard
from kinesis_spout.options import SHARED
from kinesis_spout.prometheus_exporter import MetricsServer
from kinesis_spout.spout.config import DEFAULT_MAX_PENDING
from kinesis_spout.spout.emission import SpoutEmission
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig
from kinesis_spout.spout.metrics import ShardMetrics, SpoutMetrics, quantile_ms
from state.retry_policy import RetryPolicy

INPUT, OUTPUT, MONITORING = "Input", "Output", "Monitoring"
ANSWERS_GRACE_S = 10.0  # how long the command may take for its last answers at the end
COMMAND_MAX_PENDING = 100  # few enough not to time out in the pipe to a slow command
_BATCH_RECORDS = 500
_BATCH_BYTES = 1024 * 1024
_REFRESH_S = 1.0
_WIDE = 200  # in a file, a row must not be folded
MAX_WARNINGS = 10
# Headers of the counts -> fields of the metrics.
_COUNTS = {
    name: name.replace(" ", "_").replace("-", "_")
    for name in ("emitted", "acked", "failed", "retried", "timed out", "dead-lettered")
}
_COLUMNS = (*_COUNTS, "pending", "queued", "lag", "p50", "p99")
# In a terminal that has no room for all columns, headers take two lines, and these are left out.
_BROKEN = {"timed out": "timed\nout", "dead-lettered": "dead-\nlettered"}
_LEAST = ("p50", "retried", "p99", "queued", "timed out", "failed", "dead-lettered", "pending")
MAX_SHARDS = 40
# Fields of SpoutConfig, and of the objects given to it -> options of this command.
_OPTION_NAMES = {
    "starting_position": "--from",
    "shards": "--shard",
    "message_timeout_s": "--message-timeout",
    "port": "--metrics-port",
    "wire_format": "wireFormat",
} | {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *("until", "max_records", "aggregated_records", "read_mode", "consumer_name"),
        *("consumer_arn", "task_index", "total_tasks", "max_pending", "dead_letter", "exec"),
    )
}


@command(
    "optional",
    stream_is_argument=True,
    only_typed="application",  # with an application it writes checkpoints
    panel=INPUT,
    notes=False,
    code_of=exit_code_of,
    options={
        INPUT: {
            "start": option(
                "Start position: LATEST, TRIM_HORIZON, -2h, 14:00 (of today, UTC) or an ISO time. "
                "An application that has already started continues where it stopped.",
                "--from",
            ),
            "until": "End once all records that arrived by this time are read: now, -2h, 14:00 (of "
            "today, UTC) or an ISO time.",
            "shard": option("Read only this shard. Repeatable.", metavar="ID"),
            "task_index": option(
                "The number of this process, counted from 0, among the --total-tasks processes "
                "that share the stream's shards.",
                min=0,
            ),
            "total_tasks": option(
                "How many processes share the stream's shards. Requires --application.", min=1
            ),
            "max_records": option("End after this many records. Retries do not count.", min=1),
            "aggregated_records": flag("aggregated_records"),
            "read_mode": flag("read_mode"),
            "consumer_name": flag("consumer_name"),
            "consumer_arn": flag("consumer_arn"),
            "fail_on_data_loss": option(
                "With records that expired before they were read: stop with an error, or warn and "
                "read the remaining records.",
                "--fail-on-data-loss/--no-fail-on-data-loss",
            ),
        },
        OUTPUT: {
            "raw": "Write only the payloads, each followed by a line end.",
            "scheme": scheme_flag(),
            "exec_": option(
                "Write the lines to the stdin of this command, which answers each with a line: "
                '{"id": "...", "ok": true}, or {"id": "...", "ok": false, "reason": "..."}.',
                "--exec",
                metavar="COMMAND",
            ),
            "message_timeout": "A record that the command has not answered after this time counts "
            "as failed.",
            "max_pending": option(
                "Maximum number of records that wait for an answer of the command (default: 100).",
                min=1,
            ),
            "retry_limit": option("How many times a failed record is retried.", min=0),
            "dead_letter": option(
                "Append each record that has used up its retries to this file, as a line of JSON.",
                metavar="FILE",
            ),
        },
        MONITORING: {
            "stats": option(
                "Show a table of counts on stderr (default: only on a terminal that does not also "
                "show the records).",
                "--stats/--no-stats",
            ),
            "metrics_port": option(
                "Serve metrics to Prometheus on this port of 127.0.0.1.", min=0, max=65_535
            ),
        },
    },
)
def consume(
    op: Operation,
    *,
    start: str = "LATEST",
    until: str | None = None,
    shard: list[str] | None = None,
    task_index: int = 0,
    total_tasks: int = 1,
    max_records: int | None = None,
    aggregated_records: str = SHARED["aggregated_records"].value,
    read_mode: str = SHARED["read_mode"].value,
    consumer_name: str | None = None,
    consumer_arn: str | None = None,
    fail_on_data_loss: bool = True,
    raw: bool = False,
    scheme: Any = None,
    exec_: str | None = None,
    message_timeout: str = "30s",
    max_pending: int | None = None,
    retry_limit: int = RetryPolicy().retry_limit,
    dead_letter: Path | None = None,
    stats: bool | None = None,
    metrics_port: int | None = None,
) -> None:
    """Write a stream's records to stdout as lines of JSON, or pass them to a command.

    With --application it continues where the application stopped. Without
    --application it starts at --from and stores no checkpoints. Ctrl-C stops it cleanly.
    """
    # An empty name is given, too, and refused.
    application, place = op.ctx.params["application"], op.place
    if raw and exec_ is not None:
        raise wrong_usage(
            "--raw, --exec", "--raw leaves out the ids that a command needs; use only one of them"
        )
    if raw and scheme is not None:
        raise wrong_usage(
            "--raw, --scheme", "--raw writes the payloads as they are; use only one of them"
        )
    stop = op.signals()
    timeout_s = parse_duration_ms(message_timeout, option="--message-timeout") / 1000
    try:
        spout = SpoutConfig(
            stream=place.stream,
            application=application,
            zookeeper=None if application is None else place.zookeeper,
            zookeeper_root=place.zookeeper_root,
            zookeeper_security=place.security(),
            aws=place.aws(),
            starting_position=with_zone("--from", start, note) or start,
            until=with_zone("--until", until, note),
            shards=tuple(shard or ()),
            task_index=task_index,
            total_tasks=total_tasks,
            max_records=max_records,
            fail_on_data_loss=fail_on_data_loss,
            aggregated_records=aggregated_records,
            read_mode=read_mode,
            consumer_name=consumer_name,
            consumer_arn=consumer_arn,
            max_pending=max_pending
            or (DEFAULT_MAX_PENDING if exec_ is None else COMMAND_MAX_PENDING),
            # A line on stdout is acked once it is written. A slow reader must not make its
            # record time out.
            message_timeout_s=None if exec_ is None else timeout_s,
            retry=replace(RetryPolicy(), retry_limit=retry_limit),
            scheme=scheme,
        )
        _consume(spout, stop, exec_, dead_letter, raw=raw, stats=stats, port=metrics_port)
    except ConfigError as exc:
        spelt = _OPTION_NAMES.get(exc.option or "")
        raise (exc if spelt is None else exc.respelt(spelt)) from None


def _consume(
    config: SpoutConfig,
    stop: StopSignals,
    exec_: str | None,
    letters: Path | None,
    *,
    raw: bool,
    stats: bool | None,
    port: int | None,
) -> None:
    """Read until the end. Blocks.

    Raises `typer.Exit` when nobody reads stdout any more, `CliError` also when records were not
    processed, though the run has ended, and the errors of the spout.
    """
    stream = config.stream_ref.name
    # By default, only on a terminal that does not also show the records.
    table = sys.stderr.isatty() and not (sys.stdout.isatty() and exec_ is None)
    screen = ConsumeScreen(stream, table=table if stats is None else stats, quiet=stats is False)

    def stopped() -> bool:
        return stop.stopping

    line_of = raw_line if raw else partial(record_line, scheme=config.scheme)
    command = None
    if exec_ is not None:
        on_stderr = screen.print_line if screen.is_live else None
        command = ExecProcess(exec_, warn=screen.warn, stopped=stopped, on_stderr=on_stderr)
    with screen.logs(), ExitStack() as stack:
        spout = KinesisSpout(
            replace(
                config,
                dead_letter=None if letters is None else stack.enter_context(LetterFile(letters)),
                listeners=() if command is None else (command,),
            )
        )
        if port is not None:
            server = stack.enter_context(MetricsServer(spout, port))
            screen.note(f"metrics for Prometheus at {server.url}")
        stack.callback(spout.close)
        with patience(screen.note, services(config.aws, stream, config.zookeeper)):
            spout.open()  # outside of `deferred`, so that a signal interrupts it
        with stop.deferred():
            try:
                with screen.live(spout):
                    if command is not None:
                        is_kept = config.application is not None
                        _run_command(spout, command, line_of, stopped, is_kept=is_kept)
                    else:
                        write_records(spout, line_of, stopped, config.max_records)
                spout.close()
            except BrokenPipeError:  # a reader of stdout that is gone is no error of the run
                spout.close()
                raise typer.Exit(BROKEN_PIPE) from None
            except BaseException as exc:
                spout.close(error=exc if isinstance(exc, Exception) else None)
                screen.finish(spout)
                raise
            screen.finish(spout)
            if command is not None and (bad := command.bad_answers):
                screen.note(f"{bad:,} lines of the command's output are not valid answers")
            count = spout.metrics().total.counts.dead_lettered
            if count and not stop.stopping:
                how = f"dead-lettered to {letters}"
                if letters is None:
                    how = "dropped; --dead-letter FILE keeps such records"
                what = plural(count, "record was", "records were")
                raise CliError(f"{what} not processed, and {how}")


def _run_command(
    spout: KinesisSpout,
    command: ExecProcess,
    line_of: Callable[[SpoutEmission], bytes],
    stopped: Callable[[], bool],
    *,
    is_kept: bool,
) -> None:
    """Pass each record to the command, which answers by itself, until the end or `stopped()`.

    Raises `CliError` when the command ends by itself: a record may have ended it, and will do so
    again in the next run. `is_kept`: whether checkpoints are stored.
    """
    command.open(spout.ack)
    try:
        for emission in spout.emissions(lambda: stopped() or command.has_ended):
            if not command.send(emission, line_of(emission)):
                break
        has_ended = command.has_ended
    finally:
        command.close(ANSWERS_GRACE_S)
    if not has_ended or stopped():
        return
    left = ""
    if command.waiting:
        what = (
            "that it was sent but has not read" if command.has_read_nothing else "without an answer"
        )
        later = "read again in the next run"
        if not is_kept:
            later = "not remembered, because there is no --application"
        verb = "is" if command.waiting == 1 else "are"
        left = f". {plural(command.waiting, 'record')} {what} {verb} {later}"
    ended = CliError(f"the command {command.outcome}, so no more records are processed{left}")
    spout.close(crashed=command.has_crashed, error=ended)
    raise ended


def write_records(
    spout: KinesisSpout,
    line_of: Callable[[SpoutEmission], bytes],
    stopped: Callable[[], bool],
    max_records: int | None,
) -> None:
    """Write a line for each record, and ack the record once all of its line was accepted.

    Returns at the end, or when `stopped()`. Raises BrokenPipeError when nobody reads any more, and
    OSError. A record that could not be written is not acked.
    """
    written, writer = 0, LineWriter(sys.stdout.fileno(), stopped)

    def is_over() -> bool:
        return stopped() or written == max_records or writer.reader_is_gone

    for first in spout.emissions(is_over):
        left = _BATCH_RECORDS if max_records is None else min(_BATCH_RECORDS, max_records - written)
        batch = [(emission, line_of(emission)) for emission in _batch(spout, first, left)]
        taken = writer.write(b"".join(line for _, line in batch))
        for emission, line in batch:
            taken -= len(line)
            if taken < 0:
                return
            emission.ack()
        written += len(batch)
    if writer.reader_is_gone:
        raise BrokenPipeError


def _batch(spout: KinesisSpout, first: SpoutEmission, max_records: int) -> Iterator[SpoutEmission]:
    """`first` and the records that are available now, so that one write does for many."""
    yield first
    size_bytes = len(first.data)
    for _ in range(max_records - 1):
        more = spout.next_tuple() if size_bytes < _BATCH_BYTES else None
        if more is None:
            return
        size_bytes += len(more.data)
        yield more


class ConsumeScreen:
    """Writes to stderr. Any thread may call `note` and `print_line`.

    `table`: whether to show the table. `quiet`: no summary at the end.
    """

    def __init__(self, stream: str, *, table: bool, quiet: bool) -> None:
        console = Console(stderr=True)
        self._console = console if console.is_terminal else Console(stderr=True, width=_WIDE)
        self._stream = stream
        self._table = table
        self._quiet = quiet
        self._warnings = 0
        # Rich places the table by what it drew last. A line that another thread prints while it
        # draws would come in the middle of it.
        self._writing = threading.Lock()

    def note(self, text: str) -> None:
        """Print a sentence above the table."""
        self._print(f"[yellow]note:[/] {escape(text)}")

    def _print(self, line: RenderableType) -> None:
        with self._writing:
            self._console.print(line, highlight=False, soft_wrap=True)

    @property
    def is_live(self) -> bool:
        """Whether the table is redrawn on a terminal: then others print by way of this screen."""
        return self._table and self._console.is_terminal

    def print_line(self, line: str) -> None:
        """Print another program's line above the table, with its colours."""
        self._print(Text.from_ansi(line))

    def warn(self, sentence: str) -> None:
        """Print a note of a kind that may be frequent. After the tenth, none is printed."""
        self._warnings += 1
        if self._warnings <= MAX_WARNINGS:
            self.note(sentence)
        if self._warnings == MAX_WARNINGS:
            self.note(
                "further notes of this kind are only counted. Their number is printed at the end"
            )

    @contextmanager
    def live(self, spout: KinesisSpout) -> Iterator[None]:
        """On a terminal, redraw the table once a second while the block runs. In a file it is
        printed once, by `finish`.
        """
        if not self.is_live:
            yield
            return
        live = Live(self._rendered(spout), console=self._console, auto_refresh=False)
        ended = threading.Event()

        def redraw() -> None:
            while not ended.wait(_REFRESH_S):
                table = self._rendered(spout)
                with self._writing:
                    live.update(table, refresh=True)

        redrawing = threading.Thread(target=redraw, daemon=True)
        with self._writing:
            live.start(refresh=True)
        redrawing.start()
        try:
            yield
        finally:
            ended.set()
            redrawing.join()
            table = self._rendered(spout)
            with self._writing:
                live.update(table, refresh=True)
                live.stop()

    def finish(self, spout: KinesisSpout) -> None:
        """Print the summary, and in a file the table. Call it after the spout is closed."""
        try:
            metrics = spout.metrics()
        except KinesisError:
            return  # the spout was never open
        if self._table and not self._console.is_terminal:
            self._console.print(stats_table(self._stream, metrics))
        if not self._quiet:
            self._console.print(summary(self._stream, metrics), highlight=False, soft_wrap=True)

    def _rendered(self, spout: KinesisSpout) -> RenderableType:
        try:
            return stats_table(self._stream, spout.metrics(), self._console.width)
        except KinesisError:
            return ""

    def logs(self) -> AbstractContextManager[None]:
        """Print warnings and errors of the log as sentences here, while the block runs."""

        def show(record: logging.LogRecord) -> None:
            kind = "[red]error:[/]" if record.levelno >= logging.ERROR else "[yellow]warning:[/]"
            self._print(f"{kind} {escape(record.getMessage())}")

        return shown_log(show)


def stats_table(stream: str, metrics: SpoutMetrics, width: int = _WIDE) -> Table:
    """A row of totals, then the first `MAX_SHARDS` shards, in so many columns of a terminal. p50
    and p99 are upper bounds of the time from a record's arrival to its ack.
    """
    shown = list(metrics.shards)[:MAX_SHARDS]
    cells = [_cells(metrics.total), *(_cells(metrics.shards[shard_id]) for shard_id in shown)]
    widths = {name: max(len(row[at]) for row in cells) for at, name in enumerate(_COLUMNS)}
    names, gap = ["all shards", *shown], 2
    headers = {name: name for name in _COLUMNS}

    def needed() -> int:
        parts = [max(widths[name], *map(len, text.split("\n"))) for name, text in headers.items()]
        return max(map(len, names)) + sum(parts) + gap * len(parts)

    if needed() > width:
        names, gap = ["all", *(f"shard {short_shard(shard_id)}" for shard_id in shown)], 1
        headers |= _BROKEN
    left_out: list[str] = []
    while needed() > width and len(left_out) < len(_LEAST):
        left_out.append(_LEAST[len(left_out)])
        del headers[left_out[-1]]
    more = len(metrics.shards) - len(shown)
    notes = [f"and {more} more shards"] if more else []
    notes += [f"no room for {', '.join(left_out)}"] if left_out else []
    has_room = len(stream) <= max(map(len, names))  # for its name, in the first column
    table = Table(
        title=None if has_room else stream,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1) if gap > 1 else (0, 1, 0, 0),
        caption="; ".join(notes) or None,
    )
    table.add_column(stream if has_room else "", no_wrap=True)
    for header in headers.values():
        table.add_column(header, justify="right", no_wrap=True)
    for at, (name, row) in enumerate(zip(names, cells, strict=True)):
        kept = (text for column, text in zip(_COLUMNS, row, strict=True) if column in headers)
        table.add_row(name, *kept, style="" if at else "bold")
    return table


def summary(stream: str, metrics: SpoutMetrics) -> str:
    """The counts in one line. Counts of zero are left out, except emitted and acked."""
    counts = metrics.total.counts
    rest = {name: getattr(counts, field) for name, field in _COUNTS.items() if name != "emitted"}
    rest |= {"pending": metrics.total.pending, "queued": metrics.total.queued}
    rest["left out (of another shard)"] = counts.left_out
    parts = [f"{value:,} {name}" for name, value in rest.items() if value or name == "acked"]
    return f"stream {stream}: {counts.emitted:,} emitted, {', '.join(parts)}"


def _cells(one: ShardMetrics) -> list[str]:
    numbers = (*(getattr(one.counts, field) for field in _COUNTS.values()), one.pending, one.queued)
    latency = one.counts.latency
    times = (one.lag_ms, quantile_ms(latency, 0.5), quantile_ms(latency, 0.99))
    return [
        *(f"{number:,}" for number in numbers),
        *("-" if ms is None else duration(ms) for ms in times),
    ]
