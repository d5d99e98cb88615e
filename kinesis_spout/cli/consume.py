"""`kinesis-spout consume`: a stream as lines of JSON on stdout, or through a command.

It needs neither Spark nor Python code of the user. On stderr are a live table, notes above it, and
a summary at the end.
"""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.exec_process import CommandEndedError, ExecProcess
from kinesis_spout.cli.exit_codes import BROKEN_PIPE, TYPED_CODES, CliError
from kinesis_spout.cli.line_io import LineWriter
from kinesis_spout.cli.places import Operation, command, fitting
from kinesis_spout.cli.record_lines import decoded_by, raw_line, record_line
from kinesis_spout.cli.shared_options import (
    errors,
    flag,
    note,
    option,
    scheme_flag,
    shard_id_of,
    tell,
    with_zone,
    wrong_usage,
)
from kinesis_spout.config import duration, parse_duration_ms
from kinesis_spout.dead_letter.letter import LetterFile
from kinesis_spout.inspection.wording import are, records, short_shard
from kinesis_spout.options import SHARED
from kinesis_spout.prometheus_exporter import MetricsServer
from kinesis_spout.spout.config import DEFAULT_MAX_PENDING
from kinesis_spout.spout.emission import SpoutEmission
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig
from kinesis_spout.spout.metrics import ShardMetrics, SpoutMetrics, quantile_ms
from state.retry_policy import RetryPolicy

INPUT, LOSS, OUTPUT, MONITORING = "Input", "Data loss", "Output", "Monitoring"
_read, _write, _watch = (partial(option, panel=panel) for panel in (INPUT, OUTPUT, MONITORING))
ANSWERS_GRACE_S = 10.0  # how long the command may take for its last answers at the end
COMMAND_MAX_PENDING = 100  # few enough not to time out in the pipe to a slow command
_BATCH_RECORDS = 500
_BATCH_BYTES = 1024 * 1024
_WIDE = 200  # in a file, a row must not be folded
MAX_WARNINGS = 10
# Counts as the table names them; the fields of the metrics have the same names.
_COUNTS = ("emitted", "acked", "failed", "retried", "timed out", "dead-lettered")
# In a terminal that has no room for all columns, headers take two lines, and these are left out.
_BROKEN = {"timed out": "timed\nout", "dead-lettered": "dead-\nlettered"}
_LEAST = ("p50", "retried", "p99", "queued", "timed out", "failed", "dead-lettered", "in flight")
MAX_SHARDS = 40


@command(
    "optional",
    stream_is_argument=True,
    only_typed="application",  # with an application it writes checkpoints
    panel=INPUT,
    codes=TYPED_CODES,
)
def consume(
    op: Operation,
    *,
    start: str = _read(
        "Starting position: LATEST, TRIM_HORIZON, or a time such as -2h, 14:00 (today, in UTC) "
        "or 2026-01-31T12:00:00Z. An application with stored state continues where it stopped.",
        "--from",
        default="LATEST",
    ),
    until: str | None = _read(
        "Stop after the last record that arrived by this time: now, -2h, 14:00 (today, in UTC) or "
        "2026-01-31T12:00:00Z."
    ),
    shard: list[str] | None = _read(
        "Read only this shard, by id (shardId-000000000012) or by number (12). Repeatable.",
        metavar="SHARD",
        parser=shard_id_of,
    ),
    task_index: int = _read(
        "Index of this process, from 0 to --total-tasks minus 1.",
        default=0,
        min=0,
    ),
    total_tasks: int = _read(
        "Number of processes that share the stream's shards. Requires --application.",
        default=1,
        min=1,
    ),
    max_records: int | None = _read(
        "Stop after this number of records. Retries of a record do not count.", min=1
    ),
    aggregated_records: str = flag(
        "aggregated_records", default=SHARED["aggregated_records"].value, panel=INPUT
    ),
    read_mode: str = flag("read_mode", default=SHARED["read_mode"].value, panel=INPUT),
    consumer_name: str | None = flag("consumer_name", panel=INPUT),
    consumer_arn: str | None = flag("consumer_arn", panel=INPUT),
    fail_on_data_loss: bool = option(
        "Stop with an error if unread records have expired. With --no-fail-on-data-loss, log a "
        "warning and continue.",
        "--fail-on-data-loss/--no-fail-on-data-loss",
        default=True,
        panel=LOSS,
        metavar="",
    ),
    raw: bool = _write("Write only each record's payload, followed by a newline."),
    scheme: Any | None = scheme_flag(panel=OUTPUT),
    exec_: str | None = _write(
        "Start this command, and write a line for each record to its stdin. The command must "
        'answer each line with a line such as {"id": "...", "ok": true}, or '
        '{"id": "...", "ok": false, "reason": "..."}.',
        "--exec",
        metavar="COMMAND",
    ),
    message_timeout: str = _write(
        "A record counts as failed if the command does not answer it within this time.",
        default="30s",
    ),
    max_pending: int | None = _write(
        "Maximum number of records that may be waiting for the command's answer (default: 100).",
        min=1,
    ),
    retry_limit: int = _write(
        "Maximum number of retries of a failed record.", default=RetryPolicy().retry_limit, min=0
    ),
    dead_letter: Path | None = _write(
        "Append records that have used up their retries to this file, as lines of JSON.",
        metavar="FILE",
    ),
    stats: bool | None = _watch(
        "Show a table of record counts on stderr. Default: yes if stderr is a terminal and stdout "
        "is not.",
        "--stats/--no-stats",
    ),
    metrics_port: int | None = _watch(
        "Serve metrics to Prometheus on this port of 127.0.0.1.", min=0, max=65_535
    ),
) -> None:
    """Write a stream's records to stdout as lines of JSON, or pass them to a command.

    With --application, consume continues where the application stopped. Without
    --application, consume starts at --from and stores no checkpoints. Ctrl-C
    stops consume cleanly.
    """
    place = op.place
    application = place.application or None
    if raw and exec_ is not None:
        raise wrong_usage(
            "--raw, --exec",
            "--raw omits the record ids that the --exec command needs; use only one of the two "
            "options",
        )
    if raw and scheme is not None:
        raise wrong_usage(
            "--raw, --scheme",
            "--raw writes the payloads undecoded; use only one of the two options",
        )
    timeout_s = parse_duration_ms(message_timeout, option="--message-timeout") / 1000
    config = SpoutConfig(
        stream=place.stream,
        application=application,
        zookeeper=None if application is None else place.zookeeper,
        zookeeper_root=place.zookeeper_root,
        zookeeper_security=place.security(),
        aws=place.aws(),
        starting_position=with_zone("--from", start) or start,
        until=with_zone("--until", until),
        shards=tuple(shard or ()),
        task_index=task_index,
        total_tasks=total_tasks,
        max_records=max_records,
        fail_on_data_loss=fail_on_data_loss,
        aggregated_records=aggregated_records,
        read_mode=read_mode,
        consumer_name=consumer_name,
        consumer_arn=consumer_arn,
        max_pending=max_pending or (DEFAULT_MAX_PENDING if exec_ is None else COMMAND_MAX_PENDING),
        # A line on stdout is acked once it is written. A slow reader must not make its record time
        # out.
        message_timeout_s=None if exec_ is None else timeout_s,
        retry=replace(RetryPolicy(), retry_limit=retry_limit),
        scheme=scheme,
    )
    _consume(op, config, exec_, dead_letter, raw=raw, stats=stats, port=metrics_port)


def _consume(
    op: Operation,
    config: SpoutConfig,
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
    stop, stream = op.signals, config.stream_ref.name
    # By default, only on a terminal that does not also show the records.
    table = sys.stderr.isatty() and not (sys.stdout.isatty() and exec_ is None)
    screen = ConsumeScreen(stream, table=table if stats is None else stats, quiet=stats is False)

    def stopped() -> bool:
        return stop.stopping

    decoded = None if config.scheme is None else decoded_by(config.scheme)
    line_of = raw_line if raw else partial(record_line, decoded=decoded)
    command = None
    if exec_ is not None:
        on_stderr = (lambda line: tell(Text.from_ansi(line))) if screen.is_live else None
        command = ExecProcess(exec_, warn=screen.warn, stopped=stopped, on_stderr=on_stderr)
    with ExitStack() as stack:
        spout = KinesisSpout(
            replace(
                config,
                dead_letter=None if letters is None else stack.enter_context(LetterFile(letters)),
                listeners=() if command is None else (command,),
            )
        )
        if port is not None:
            server = stack.enter_context(MetricsServer(spout, port))
            note(f"Prometheus can read the metrics at {server.url}")
        stack.callback(spout.close)
        with op.patience(owning=config.application is not None):
            spout.open()  # outside of `deferred`, so that a signal interrupts it
        with stop.deferred():
            try:
                with screen.live(spout):
                    if command is not None:
                        _run_command(spout, command, line_of, stopped)
                    else:
                        write_records(spout, line_of, stopped)
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
                note(f"invalid answers in the command's output: {bad:,}")
            count = spout.metrics().total.counts.dead_lettered
            if count and not stop.stopping:
                were = are(count, "was", "were")
                if letters is None:
                    keep = "pass --dead-letter FILE to keep failed records"
                    raise CliError(f"{records(count)} failed and {were} dropped", keep)
                redrive = shlex.join(("kinesis-spout", "redrive", str(letters)))
                put_back = f"put the records on the stream again with `{redrive}`"
                what = f"{records(count)} failed and {were} dead-lettered to {letters}"
                raise CliError(what, put_back)


def _run_command(
    spout: KinesisSpout,
    command: ExecProcess,
    line_of: Callable[[SpoutEmission], bytes],
    stopped: Callable[[], bool],
) -> None:
    """Pass each record to the command, which answers by itself, until the end or `stopped()`.

    Raises `CommandEndedError` when the command ends by itself: a record may have ended it, and will
    do so again in the next run.
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
    problem = command.outcome
    remedy = "repair the command"
    if count := command.waiting:
        problem = f"{command.outcome} before it answered {records(count)}"
        if command.has_read_nothing:
            problem += "; the command has not read its stdin"
        remedy += "; the next run redelivers the unanswered records"
        if spout.config.application is None:
            remedy = (
                "repair the command; pass --application, so that the next run redelivers these "
                "records"
            )
    ended = CommandEndedError(problem, remedy)
    spout.close(crashed=command.has_crashed, error=ended)
    raise ended


def write_records(
    spout: KinesisSpout,
    line_of: Callable[[SpoutEmission], bytes],
    stopped: Callable[[], bool],
) -> None:
    """Write a line for each record, and ack the record once all of its line was accepted.

    Returns at the end, or when `stopped()`. Raises BrokenPipeError when nobody reads any more, and
    `CliError` when stdout cannot be written. A record that could not be written is not acked.
    """
    writer = LineWriter(sys.stdout.fileno(), stopped)
    for first in spout.emissions(lambda: stopped() or writer.reader_is_gone):
        batch = [(emission, line_of(emission)) for emission in _batch(spout, first)]
        try:
            taken = writer.write(b"".join(line for _, line in batch))
        except BrokenPipeError:
            raise
        except OSError as exc:
            raise CliError(
                f"cannot write to stdout: {exc.strerror}",
                "free some space, and start the command again. Records with incomplete lines are "
                "redelivered",
            ) from exc
        for emission, line in batch:
            taken -= len(line)
            if taken < 0:
                return
            emission.ack()
    if writer.reader_is_gone:
        raise BrokenPipeError


def _batch(spout: KinesisSpout, first: SpoutEmission) -> Iterator[SpoutEmission]:
    """`first` and the records that are available now, so that one write does for many."""
    yield first
    size_bytes = len(first.data)
    for _ in range(_BATCH_RECORDS - 1):
        more = spout.next_tuple() if size_bytes < _BATCH_BYTES else None
        if more is None:
            return
        size_bytes += len(more.data)
        yield more


class ConsumeScreen:
    """The table of a run, and its summary, on stderr.

    `table`: whether to show the table. `quiet`: no summary at the end.
    """

    def __init__(self, stream: str, *, table: bool, quiet: bool) -> None:
        # Whether the table is redrawn on a terminal: then others print by way of its console.
        self.is_live = table and errors().is_terminal
        self._stream = stream
        self._table = table
        self._quiet = quiet
        self._warnings = 0

    def warn(self, sentence: str) -> None:
        """Print a note of a kind that may be frequent, in any thread. After the tenth, none is
        printed.
        """
        self._warnings += 1
        if self._warnings <= MAX_WARNINGS:
            note(sentence)
        if self._warnings == MAX_WARNINGS:
            note(
                "further notes of this kind are counted, but not printed; the end of the output "
                "shows their number"
            )

    def live(self, spout: KinesisSpout) -> AbstractContextManager[object]:
        """On a terminal, redraw the table once a second while the block runs. In a file it is
        printed once, by `finish`.
        """
        if not self.is_live:
            return nullcontext()

        def table() -> Table:
            return stats_table(self._stream, spout.metrics(), errors().width)

        # With a first renderable, the table is drawn at once.
        return Live("", console=errors(), get_renderable=table, refresh_per_second=1)

    def finish(self, spout: KinesisSpout) -> None:
        """Print the summary, and in a file the table. Call it after the spout is closed."""
        metrics = spout.metrics()
        if self._table and not self.is_live:
            Console(stderr=True, width=_WIDE).print(stats_table(self._stream, metrics))
        if not self._quiet:
            tell(summary(self._stream, metrics))


def stats_table(stream: str, metrics: SpoutMetrics, width: int = _WIDE) -> Table:
    """A row of totals, then the first `MAX_SHARDS` shards, in so many columns of a terminal. p50
    and p99 are upper bounds of the time from a record's arrival to its ack.
    """
    shown = list(metrics.shards)[:MAX_SHARDS]
    more = len(metrics.shards) - len(shown)
    rows = [_cells(metrics.total), *(_cells(metrics.shards[shard_id]) for shard_id in shown)]

    def layout(left_out: tuple[str, ...] | None) -> Table:
        """Without these columns; None for all of them under headers of one line."""
        is_wide = left_out is None
        first = ["all shards", *shown]
        if not is_wide:
            first = ["all", *(f"shard {short_shard(shard_id)}" for shard_id in shown)]
        notes = [f"and {more} more shards"] if more else []
        notes += [f"columns not shown: {', '.join(left_out)}"] if left_out else []
        has_room = len(stream) <= max(map(len, first))  # for its name, in the first column
        table = Table(
            title=None if has_room else stream,
            title_justify="left",
            box=None,
            pad_edge=False,
            padding=(0, 1) if is_wide else (0, 1, 0, 0),
            caption="; ".join(notes) or None,
        )
        table.add_column(stream if has_room else "", no_wrap=True)
        names = [name for name in rows[0] if name not in (left_out or ())]
        for name in names:
            header = name if is_wide else _BROKEN.get(name, name)
            table.add_column(header, justify="right", no_wrap=True)
        for at, (name, row) in enumerate(zip(first, rows, strict=True)):
            table.add_row(name, *map(row.__getitem__, names), style="" if at else "bold")
        return table

    return fitting(width, map(layout, [None, *(_LEAST[:most] for most in range(len(_LEAST) + 1))]))


def _counts(one: ShardMetrics) -> dict[str, int]:
    fields = {name: name.replace(" ", "_").replace("-", "_") for name in _COUNTS}
    counts = {name: getattr(one.counts, field) for name, field in fields.items()}
    return counts | {"in flight": one.pending, "queued": one.queued}


def _cells(one: ShardMetrics) -> dict[str, str]:
    latency = one.counts.latency
    times = {"lag": one.lag_ms, "p50": quantile_ms(latency, 0.5), "p99": quantile_ms(latency, 0.99)}
    return {name: f"{number:,}" for name, number in _counts(one).items()} | {
        name: "-" if ms is None else duration(ms) for name, ms in times.items()
    }


def summary(stream: str, metrics: SpoutMetrics) -> str:
    """The counts in one line. Counts of zero are left out, except emitted and acked."""
    total = metrics.total
    found = _counts(total) | {"not delivered (belong to another shard)": total.counts.left_out}
    parts = [f"{value:,} {name}" for name, value in found.items() if value or name in _COUNTS[:2]]
    return f"stream {stream}: {', '.join(parts)}"
