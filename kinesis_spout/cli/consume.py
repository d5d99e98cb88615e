"""`kinesis-spout consume`: a stream as lines of JSON on stdout, or through a command, without Spark
and without code.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.cli.consume_screen import ConsumeScreen
from kinesis_spout.cli.errors import CliError, StopSignals, one_sentence
from kinesis_spout.cli.exec_process import AnsweringCommand
from kinesis_spout.cli.letter_file import LetterFile
from kinesis_spout.cli.line_io import LineWriter
from kinesis_spout.cli.record_lines import raw_line, record_line
from kinesis_spout.cli.shared_options import connection_of, errors, root_options
from kinesis_spout.config import parse_duration_ms
from kinesis_spout.errors import ConfigError
from kinesis_spout.spout.config import DEFAULT_MAX_PENDING
from kinesis_spout.spout.emission import SpoutEmission
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutConfig
from kinesis_spout.spout.prometheus_exporter import MetricsServer
from state.retry_policy import RetryPolicy
from state.zookeeper.store import DEFAULT_ROOT

READ, DONE, SHOWN = "What is read", "What is done with it", "What is shown"
BROKEN_PIPE = 141  # as of a program that SIGPIPE has ended
ANSWERS_GRACE_S = 10.0  # after a signal, for the command's last answers
COMMAND_MAX_PENDING = 100  # what waits in the pipe to a slow command must not time out there
_TIMEOUT = "30s"
_BATCH_RECORDS = 500
_BATCH_BYTES = 1024 * 1024
# Fields of SpoutConfig, and of what makes it, as the options are called.
_SPELT = {
    "starting_position": "--from",
    "until": "--until",
    "shards": "--shard",
    "max_records": "--max-records",
    "max_pending": "--max-pending",
    "message_timeout_s": "--message-timeout",
    "dead_letter": "--dead-letter",
    "exec": "--exec",
    "port": "--metrics-port",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeJob:
    """What the options ask for."""

    spout: SpoutConfig
    command: str | None
    letters: Path | None
    raw: bool
    stats: bool | None
    metrics_port: int | None


# long: its parameters are the command's options, and typer takes the help from them
def consume(
    ctx: typer.Context,
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="Name or ARN of the stream.", show_default=False)
    ],
    *,
    application: Annotated[
        str | None,
        typer.Option(
            help="Name under which positions are kept; without it, nothing is remembered.",
            rich_help_panel=READ,
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            help="Connect string, with chroot if any, or embedded:DIRECTORY; with --application.",
            rich_help_panel=READ,
        ),
    ] = None,
    zookeeper_root: Annotated[
        str,
        typer.Option(help="Folder in ZooKeeper that holds all applications.", rich_help_panel=READ),
    ] = DEFAULT_ROOT,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="Where to begin: LATEST, TRIM_HORIZON, -2h or an ISO time. An application that has begun goes on.",
            rich_help_panel=READ,
        ),
    ] = "LATEST",
    until: Annotated[
        str | None,
        typer.Option(
            help="End when all is read that arrived until then: now, -2h or an ISO time.",
            rich_help_panel=READ,
        ),
    ] = None,
    shard: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Read only this shard. Repeatable.", rich_help_panel=READ),
    ] = None,
    max_records: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="End after so many records; their retries are not counted.",
            rich_help_panel=READ,
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(help="AWS region; else the AWS configuration's.", rich_help_panel=READ),
    ] = None,
    endpoint_url: Annotated[
        str | None,
        typer.Option(help="Another Kinesis endpoint, a local one say.", rich_help_panel=READ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Any other connection option, e.g. profile=work. Repeatable.",
            rich_help_panel=READ,
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Write the payloads alone, a line end after each.", rich_help_panel=DONE
        ),
    ] = False,
    exec_: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Give the lines to this command instead. It answers each with a line of its own: "
            '{"id": "...", "ok": true}, or {"id": "...", "ok": false, "reason": "..."}.',
            rich_help_panel=DONE,
        ),
    ] = None,
    message_timeout: Annotated[
        str,
        typer.Option(
            help="A record that the command has not answered for so long has failed.",
            rich_help_panel=DONE,
        ),
    ] = _TIMEOUT,
    max_pending: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="So many records may wait for the command's answers (default: 100).",
            rich_help_panel=DONE,
        ),
    ] = None,
    retry_limit: Annotated[
        int,
        typer.Option(
            min=0, help="So often a record that failed is tried again.", rich_help_panel=DONE
        ),
    ] = RetryPolicy().retry_limit,
    dead_letter: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Append what is not tried again to this file, as lines of JSON.",
            rich_help_panel=DONE,
        ),
    ] = None,
    stats: Annotated[
        bool | None,
        typer.Option(
            "--stats/--no-stats",
            help="A table of counts on stderr (default: where it disturbs nothing).",
            rich_help_panel=SHOWN,
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Serve counts to Prometheus on this port of 127.0.0.1.",
            rich_help_panel=SHOWN,
        ),
    ] = None,
) -> None:
    """Read a stream to stdout, a line of JSON for each record; or have a command process each.

    With --application it goes on where it stopped; without, it begins at --from and remembers
    nothing. Ctrl-C stops it in order.
    """
    if (application is None) != (zookeeper is None):
        raise typer.BadParameter("give both or neither", param_hint="--application, --zookeeper")
    if raw and exec_ is not None:
        raise typer.BadParameter(
            "a command needs the ids that --raw leaves out; give one of them",
            param_hint="--raw, --exec",
        )
    with StopSignals() as stop, one_sentence(errors(), debug=root_options(ctx).debug):
        timeout_s = parse_duration_ms(message_timeout, option="--message-timeout") / 1000
        try:
            spout = SpoutConfig(
                stream=stream,
                application=application,
                zookeeper=zookeeper,
                zookeeper_root=zookeeper_root,
                aws=connection_of({"region": region, "endpoint_url": endpoint_url}, option or ()),
                starting_position=start,
                until=until,
                shards=tuple(shard or ()),
                max_records=max_records,
                max_pending=max_pending
                or (DEFAULT_MAX_PENDING if exec_ is None else COMMAND_MAX_PENDING),
                # a line on stdout is acked when it is written: how long its reader takes is no
                # fault of the record
                message_timeout_s=None if exec_ is None else timeout_s,
                retry=replace(RetryPolicy(), retry_limit=retry_limit),
            )
            job = ConsumeJob(
                spout=spout,
                command=exec_,
                letters=dead_letter,
                raw=raw,
                stats=stats,
                metrics_port=metrics_port,
            )
            _consume(job, stop)
        except ConfigError as exc:
            raise exc.respelt(_SPELT[exc.option]) if exc.option in _SPELT else exc from None


def _consume(job: ConsumeJob, stop: StopSignals) -> None:
    """Blocks until the end. Raises `typer.Exit` when nobody reads stdout any more, `CliError`, and
    what the spout raises.
    """
    screen = ConsumeScreen(
        job.spout.stream_ref.name, table=_shows_table(job), quiet=job.stats is False
    )
    command = None
    if job.command is not None:
        command = AnsweringCommand(
            job.command,
            complain=screen.complain,
            stopped=lambda: stop.stopping,
            on_stderr=screen.pass_on if screen.is_live else None,
        )
    with screen.logs(), ExitStack() as stack:
        letters = None if job.letters is None else stack.enter_context(LetterFile(job.letters))
        spout = KinesisSpout(
            replace(job.spout, dead_letter=letters, listeners=() if command is None else (command,))
        )
        if job.metrics_port is not None:
            server = stack.enter_context(MetricsServer(spout, job.metrics_port))
            screen.note(f"counts for Prometheus at {server.url}")
        stack.callback(spout.close)
        spout.open()  # a signal interrupts it
        with stop.deferred():
            try:
                with closing(spout), screen.live(spout):
                    _run(job, spout, command, stop)
            except BrokenPipeError:
                raise typer.Exit(BROKEN_PIPE) from None
            except BaseException:
                screen.finish(spout)
                raise
            screen.finish(spout)


def _run(
    job: ConsumeJob, spout: KinesisSpout, command: AnsweringCommand | None, stop: StopSignals
) -> None:
    def stopped() -> bool:
        return stop.stopping

    if command is None:
        line_of = raw_line if job.raw else record_line
        write_records(
            spout,
            LineWriter(sys.stdout.fileno(), stopped),
            line_of,
            stopped=stopped,
            max_records=job.spout.max_records,
        )
        return
    command.open()
    try:
        went_on = run_command(spout, command, stopped=stopped)
    finally:
        command.close(ANSWERS_GRACE_S)
    if not went_on and not stop.stopping:
        later = (
            "come again in the next run"
            if job.spout.application
            else "are not remembered, as there is no --application"
        )
        left = (
            f"; {command.waiting} records that it has not answered {later}"
            if command.waiting
            else ""
        )
        raise CliError(
            f"the command {command.how_it_ended}, and nobody processes records now{left}"
        )
    if command.bad_answers:
        raise CliError(
            f"{command.bad_answers} lines of the command's output were no answers; make it print "
            "nothing else there"
        )


def write_records(
    spout: KinesisSpout,
    writer: LineWriter,
    line_of: Callable[[SpoutEmission], bytes],
    *,
    stopped: Callable[[], bool],
    max_records: int | None,
) -> None:
    """A line for each record; a record is acked once all of its line was taken. Returns at the end,
    or when it is to stop.

    Raises BrokenPipeError when nobody reads any more, and OSError; nothing of what could not be
    written is acked.
    """
    written = 0

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


def run_command(
    spout: KinesisSpout, command: AnsweringCommand, *, stopped: Callable[[], bool]
) -> bool:
    """Hand each record to the command, which answers by itself. Returns at the end, or when it is
    to stop; False when the command has ended by itself.
    """
    for emission in spout.emissions(lambda: stopped() or command.has_ended):
        if not command.send(emission):
            break
    return not command.has_ended


def _batch(spout: KinesisSpout, first: SpoutEmission, most: int) -> Iterator[SpoutEmission]:
    """What is there now, so that one write does for many records."""
    yield first
    size_bytes = len(first.data)
    for _ in range(most - 1):
        more = spout.next_tuple() if size_bytes < _BATCH_BYTES else None
        if more is None:
            return
        size_bytes += len(more.data)
        yield more


def _shows_table(job: ConsumeJob) -> bool:
    """Where it disturbs nothing: on a terminal that does not show the records as well."""
    if job.stats is not None:
        return job.stats
    return sys.stderr.isatty() and not (sys.stdout.isatty() and job.command is None)
