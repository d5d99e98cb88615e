"""`kinesis-spout drill`: does something to a running job, and says whether it kept its promises."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.console import Console
from rich.markup import escape

from kinesis_spout import __version__
from kinesis_spout.cli.exit_codes import FAILED, UNREACHABLE, CliError, StopSignals, one_sentence
from kinesis_spout.cli.inspection.looking import show
from kinesis_spout.cli.plain_text import visible
from kinesis_spout.cli.shared_options import errors, root_options, usage_errors
from kinesis_spout.drills.choice import Chosen, choose
from kinesis_spout.drills.consumer import SCRATCH, SCRATCH_VARIABLE, takes_scratch
from kinesis_spout.drills.history.checks import Redelivery, redeliveries
from kinesis_spout.drills.history.events import History, encode_history
from kinesis_spout.drills.history.verdict import Verdict, judge, verdict_json
from kinesis_spout.drills.scenarios import DRILLS
from kinesis_spout.drills.setting import DrillError, Setting
from kinesis_spout.drills.tables import listing, overview, verdict_text
from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.page import page
from kinesis_spout.page.page_json import drill_json
from kinesis_spout.programs import load_function
from state.errors import StateError

_FILE_WIDTH = 320
_LOG_LINES = 12
LOCALSTACK = "http://127.0.0.1:4566"
JOB, WORLD, OUTPUT = "The job", "Where it runs", "The verdict"


def drill(
    ctx: typer.Context,
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="Names of drills, or all, or soak.", show_default=False
        ),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the drills and their requirements.")
    ] = False,
    spout: Annotated[
        bool,
        typer.Option(
            "--spout",
            help=("Drill the standalone spout instead of a Spark job."),
            rich_help_panel=JOB,
        ),
    ] = False,
    efo: Annotated[
        bool,
        typer.Option("--efo", help="Read by enhanced fan-out.", rich_help_panel=JOB),
    ] = False,
    executors: Annotated[
        bool,
        typer.Option(
            "--executors",
            help="Run the Spark job on two executors, in processes of their own.",
            rich_help_panel=JOB,
        ),
    ] = False,
    process: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help=(
                "A function of your own that takes a TrackedBatch, as module:function, called "
                "instead of the drill's function. The module is looked for in the current "
                "directory first. Data that the function writes to sinks stays there."
            ),
            rich_help_panel=JOB,
        ),
    ] = None,
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help=(
                "A function of your own that makes the records: it takes a key and a number and "
                "returns bytes."
            ),
            rich_help_panel=JOB,
        ),
    ] = None,
    ensemble: Annotated[
        bool,
        typer.Option(
            "--ensemble", help="Run three ZooKeeper servers instead of one.", rich_help_panel=WORLD
        ),
    ] = False,
    localstack: Annotated[
        bool,
        typer.Option(
            "--localstack",
            help=f"Use the emulator at --endpoint-url (default: {LOCALSTACK}).",
            rich_help_panel=WORLD,
        ),
    ] = False,
    endpoint_url: Annotated[
        str | None,
        typer.Option(
            help=("Kinesis endpoint to use instead of the drill's own local Kinesis."),
            rich_help_panel=WORLD,
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            help=("AWS region whose Kinesis is used instead of the drill's own local Kinesis."),
            rich_help_panel=WORLD,
        ),
    ] = None,
    stream_prefix: Annotated[
        str | None,
        typer.Option(
            help="On AWS: the drill creates the stream PREFIX-drill-ID and deletes it at the end.",
            rich_help_panel=WORLD,
        ),
    ] = None,
    records_per_second: Annotated[
        float,
        typer.Option(
            min=1, max=1_000, help=("Number of records to put per second."), rich_help_panel=WORLD
        ),
    ] = 50.0,
    seed: Annotated[
        int, typer.Option(help="Seed of the keys and of the random faults.", rich_help_panel=WORLD)
    ] = 1,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.1, help=("For how many minutes a soak disturbs the job."), rich_help_panel=WORLD
        ),
    ] = 10.0,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help=("Write the verdicts to this file, as JSON."),
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    html_file: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE",
            help=(
                "Write the verdict to this file, as an HTML page. With several drills, each gets "
                "a file with its name in the file name."
            ),
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep logs, output and ZooKeeper's data in this directory.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Disturb a job with kills, faults and reshards, and show whether a record was lost.

    It starts a job of its own that reads a stream of its own, so it disturbs nothing
    of yours, unless your own function does: --process is called for real, and gets a
    scratch directory to write to. A verdict says what was put, delivered again and lost.

    Exit codes: 0 all promises were kept, 1 one was broken, 3 a service cannot be reached.
    """
    if list_:
        show(_stdout(), listing(list(DRILLS.values())))
        return
    setting = Setting(
        spout=spout,
        efo=efo,
        executors=executors,
        ensemble=ensemble,
        endpoint_url=endpoint_url or (LOCALSTACK if localstack else None),
        region=region,
        stream_prefix=stream_prefix,
        is_emulator=localstack,
        records_per_s=records_per_second,
        process=process,
        payload=payload,
        seed=seed,
    )
    _check(setting)
    chosen, left_out = _choice(names or [], setting, minutes)
    with StopSignals(once=True), one_sentence(errors(), ctx=ctx, debug=root_options(ctx).debug):
        for refusal in left_out:
            _say(f"left out: {refusal}")
        _warn_of_function(setting)
        verdicts: list[Verdict] = []
        undone: list[str] = []
        for one in chosen:
            try:
                with _directory(keep, one.name) as directory:
                    verdict, html = _judged(one, directory, is_kept=keep is not None)
            except DrillError as exc:
                _say_error(exc)
                undone.append(one.name)
                continue
            except (KinesisError, StateError) as exc:  # the next one would meet it, too
                _say_error(exc)
                _report(verdicts, [*undone, one.name], json_file)
                raise typer.Exit(UNREACHABLE) from exc
            if html_file is not None:
                _write(_page_file(html_file, one, chosen), html)
            if verdict.undone is not None:
                undone.append(one.name)
            else:
                verdicts.append(verdict)
        _report(verdicts, undone, json_file)
    if undone or not all(one.ok for one in verdicts):
        raise typer.Exit(FAILED)


def _check(setting: Setting) -> None:
    """Raises typer's usage error for options that contradict each other, or name no function."""
    if setting.spout and (setting.process or setting.executors):
        raise typer.BadParameter(
            "--process and --executors need a Spark job; leave them or --spout out",
            param_hint="--spout",
        )
    if not setting.is_fake and not setting.is_emulator and setting.stream_prefix is None:
        raise typer.BadParameter(
            "--stream-prefix is missing: the drill creates a stream on AWS, whose name begins "
            "with it",
            param_hint="--stream-prefix",
        )
    for option, text in (("--process", setting.process), ("--payload", setting.payload)):
        if text is not None:
            with usage_errors(option):
                load_function(text)  # a wrong one is reported before anything is started


def _choice(
    names: Sequence[str], setting: Setting, minutes: float
) -> tuple[list[Chosen], list[ConfigError]]:
    if not names:
        raise typer.BadParameter(
            ("give the name of a drill, all or soak; --list shows the names"), param_hint="NAME"
        )
    with usage_errors("NAME"):
        return choose(names, setting, minutes=minutes)


def _warn_of_function(setting: Setting) -> None:
    """Say what the drill cannot keep from being touched."""
    if setting.process is None:
        return
    has_parameter = takes_scratch(load_function(setting.process))
    errors().print(
        f"[bold yellow]warning:[/] {escape(setting.process)} is your own code, and the drill "
        "really calls it. Records of the drill that it writes outside of its scratch directory "
        f"stay there, some of them several times. The environment variable {SCRATCH_VARIABLE} "
        "names the scratch directory. "
        + (
            f"So does its parameter {SCRATCH}."
            if has_parameter
            else f"So would a parameter {SCRATCH}, which the function does not have."
        ),
        highlight=False,
        soft_wrap=True,
    )


def _judged(one: Chosen, directory: Path, *, is_kept: bool) -> tuple[Verdict, bytes]:
    """Run a drill, and judge it. Returns the verdict and its page. Raises as `Chosen.run`."""
    _say(f"{one.name}: {one.sentence}")
    began_s = time.monotonic()
    drilled = one.run(
        directory, lambda sentence: _say(f"{time.monotonic() - began_s:6.1f} s  {sentence}")
    )
    again = redeliveries(drilled.history)
    verdict = judge(
        drilled.history,
        drill=drilled.drill,
        drained_s=drilled.drained_s,
        troubles=drilled.troubles,
        again=again,
        undone=drilled.undone,
    )
    verdict = replace(verdict, notes=[*drilled.notes, *verdict.notes])
    about = f"kinesis-spout {__version__}, {time.strftime('%Y-%m-%d %H:%M:%S %z')}"
    stored, figures = encode_history(drilled.history), verdict_json(verdict)
    html = page(drill_json(figures, stored, _unexplained(drilled.history, again), [about]))
    _write(directory / "history.json", stored)
    _write(directory / "verdict.json", figures)
    _write(directory / "verdict.html", html)
    if drilled.undone is not None:
        _say_error(DrillError(drilled.undone))
    else:
        _say(f"{time.monotonic() - began_s:6.1f} s  {'ok' if verdict.ok else 'BROKEN'}")
    if drilled.log is not None and (drilled.undone is not None or drilled.troubles):
        _show_log(drilled.log, is_kept=is_kept)
    return verdict, html


def _unexplained(history: History, again: Sequence[Redelivery]) -> Iterator[dict[str, Any]]:
    """The repeats without a reason, as the page shows them. Times count from the first put."""
    began_ns = min((put.at_ns for put in history.puts), default=0)
    for now, since in ((one.told, one.since) for one in again if not one.explained):
        yield {
            "key": now.key,
            "number": now.number,
            "shardId": now.shard_id,
            "sequence": f"{now.sequence}" if now.sub is None else f"{now.sequence}.{now.sub}",
            "step": now.step,
            "atMs": (now.at_ns - began_ns) / 1e6,
            "run": now.run,
            "earlierStep": since.step,
            "earlierMs": (since.at_ns - began_ns) / 1e6,
            "earlierRun": since.run,
        }


def _show_log(log: Path, *, is_kept: bool) -> None:
    """The end of the log of a job that did not do what the drill waited for."""
    where = str(log) if is_kept else f"{log.name} (give --keep DIR to keep it)"
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    _say(f"the last lines of {where}:" if lines else f"nothing was written to {where}")
    for line in lines[-_LOG_LINES:]:
        _say(f"  {visible(line)}")


def _page_file(file: Path, one: Chosen, chosen: Sequence[Chosen]) -> Path:
    """A page is about one drill: of several, each has its name in the file's."""
    return file if len(chosen) == 1 else file.with_stem(f"{file.stem}-{one.name}")


@contextmanager
def _directory(keep: Path | None, name: str) -> Iterator[Path]:
    """A directory for a drill: a new one in `keep`, or one that is removed at the end."""
    try:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=keep)).absolute()
    except OSError as exc:
        raise CliError(f"a directory cannot be made in {keep}: {exc.strerror}") from exc
    try:
        yield directory
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)


def _report(verdicts: Sequence[Verdict], undone: Sequence[str], json_file: Path | None) -> None:
    """`undone`: the drills that could not do their work, and so have no verdict."""
    console = _stdout()
    for one in verdicts:
        console.print(verdict_text(one), markup=False, highlight=False, soft_wrap=True)
    if len(verdicts) > 1:
        show(console, overview(verdicts))
    for name in undone:
        console.print(f"{name}: not done", markup=False, highlight=False)
    if json_file is not None:
        _write(json_file, b"[" + b",".join(verdict_json(one) for one in verdicts) + b"]\n")


def _write(file: Path, data: bytes) -> None:
    try:
        file.write_bytes(data)
    except OSError as exc:
        raise CliError(f"{file} cannot be written: {exc.strerror}") from exc


def _stdout() -> Console:
    """As wide as the terminal; a file gets whole lines."""
    console = Console()
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


def _say_error(exc: Exception) -> None:
    errors().print(f"[bold red]error:[/] {escape(str(exc))}", highlight=False, soft_wrap=True)


def _say(sentence: str) -> None:
    errors().print(sentence, highlight=False, markup=False, soft_wrap=True)
