"""`kinesis-spout drill`: does something to a running job, and says whether it kept its promises."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import typer

from kinesis_spout import __version__
from kinesis_spout.cli.exit_codes import FAILED, UNREACHABLE, CliError, StopSignals
from kinesis_spout.cli.places import say, show, stdout_console, write_file
from kinesis_spout.cli.shared_options import (
    argument,
    option,
    own_options,
    tell,
    usage_errors,
    warn,
    wrong_usage,
)
from kinesis_spout.drills.choice import choose
from kinesis_spout.drills.consumer import SCRATCH, SCRATCH_VARIABLE, takes_scratch
from kinesis_spout.drills.drill import Drill, run_drill
from kinesis_spout.drills.history.checks import redeliveries
from kinesis_spout.drills.history.events import encode_history
from kinesis_spout.drills.history.picture import drill_json
from kinesis_spout.drills.history.verdict import Verdict, judge, verdict_json
from kinesis_spout.drills.scenarios import DRILLS
from kinesis_spout.drills.setting import DrillError, Need, Setting
from kinesis_spout.drills.tables import listing, overview, verdict_text
from kinesis_spout.errors import KinesisError
from kinesis_spout.inspection.wording import visible
from kinesis_spout.page import page
from kinesis_spout.programs import load_function
from state.errors import StateError

_LOG_LINES = 12
LOCALSTACK = "http://127.0.0.1:4566"


_job, _world, _verdict = (
    partial(option, panel=panel) for panel in ("The job", "The drill's environment", "The verdict")
)


@own_options
def drill(
    *,
    names: list[str] | None = argument(
        "Names of the drills to run, or `all`, or `soak`. --list shows the names.", "NAME..."
    ),
    list_: bool = option("List the drills and their requirements.", "--list"),
    spout: bool = _job("Drill the spout (the consumer without Spark) instead of a Spark job."),
    efo: bool = _job("Read by enhanced fan-out."),
    executors: bool = _job("Run the Spark job on two executors, each in its own process."),
    process: str | None = _job(
        "Call your own function for each TrackedBatch, instead of the drill's function. The "
        "module may be in the current directory. The drill does not delete data that your "
        "function writes.",
        metavar="MODULE:FUNCTION",
    ),
    payload: str | None = _job(
        "Make the records' data with your own function, which takes a key and a number and returns "
        "bytes.",
        metavar="MODULE:FUNCTION",
    ),
    ensemble: bool = _world("Run three ZooKeeper servers instead of one."),
    localstack: bool = _world(f"Use the emulator at --endpoint-url (default: {LOCALSTACK})."),
    endpoint_url: str | None = _world(
        "Kinesis endpoint to use instead of the drill's own local Kinesis."
    ),
    region: str | None = _world(
        "AWS region whose Kinesis is used instead of the drill's own local Kinesis."
    ),
    stream_prefix: str | None = _world(
        "On AWS, the drill creates the stream PREFIX-drill-ID and deletes it at the end."
    ),
    records_per_second: float = _world(
        "Number of records to put per second.", default=50.0, min=1, max=1_000
    ),
    seed: int = _world("Seed of the random keys and faults.", default=1),
    minutes: float = _world(
        "Number of minutes for which the drill `soak` disturbs the job.", default=10.0, min=0.1
    ),
    json_file: Path | None = _verdict(
        "Write the verdicts to this file, as JSON.", "--json", metavar="FILE"
    ),
    html_file: Path | None = _verdict(
        "Write the verdict to this file, as an HTML page. With several drills, each drill gets "
        "its own file, with the drill's name in the file name.",
        "--html",
        metavar="FILE",
    ),
    keep: Path | None = _verdict(
        "Keep logs, output and ZooKeeper's data in this directory.", metavar="DIR"
    ),
) -> None:
    """Disturb a job with kills, faults and reshards, and show whether a record was lost.

    The drill starts its own job on its own stream, and does not touch your jobs.
    Your function (--process) is really called, with a scratch directory. The
    verdict counts the records that were put, redelivered and lost.

    The exit code is 0 if all guarantees were kept, 1 if a guarantee was broken,
    and 3 if a service of the drill cannot be reached.
    """
    if list_:
        show(stdout_console(), listing(list(DRILLS.values())))
        return
    setting = Setting(
        spout=spout,
        efo=efo,
        endpoint_url=endpoint_url or (LOCALSTACK if localstack else None),
        region=region,
        stream_prefix=stream_prefix,
        is_emulator=localstack,
        records_per_s=records_per_second,
        process=process,
        payload=payload,
        seed=seed,
        has=frozenset(
            need
            for need, is_wanted in ((Need.EXECUTORS, executors), (Need.ENSEMBLE, ensemble))
            if is_wanted
        ),
    )
    _check(names or [], setting, {"--json": json_file, "--html": html_file})
    with usage_errors("NAME"):
        chosen, left_out = choose(names or [], setting, minutes=minutes)
    with StopSignals(once=True):
        for refusal in left_out:
            tell(f"omitted: {refusal}")
        if process is not None:
            parameter = (
                "To get the directory as an argument, give the function a parameter named "
                f"{SCRATCH}."
            )
            if takes_scratch(load_function(process)):
                parameter = f"The function's parameter {SCRATCH} also gets the directory."
            warn(
                f"the drill calls your function {process} with the drill's records, some of them "
                "more than once. The drill does not delete what the function writes outside its "
                f"scratch directory. The environment variable {SCRATCH_VARIABLE} names the scratch "
                f"directory. {parameter}"
            )
        verdicts: list[Verdict] = []
        undone: list[str] = []  # the drills that could not do their work, and so have no verdict
        try:
            for one in chosen:
                undone.append(one.name)
                try:
                    with _directory(keep, one.name) as directory:
                        verdict, html = _judged(one, setting, directory, is_kept=keep is not None)
                except DrillError as exc:
                    tell(str(exc), "error:", "bold red")
                    continue
                if html_file is not None:
                    of_several = html_file.with_stem(f"{html_file.stem}-{one.name}")
                    write_file(html_file if len(chosen) == 1 else of_several, html)
                if verdict.undone is None:
                    verdicts.append(verdict)
                    undone.pop()
        except (KinesisError, StateError) as exc:  # the next drill would meet it, too
            tell(str(exc), "error:", "bold red")
            _report(verdicts, undone, json_file)
            raise typer.Exit(UNREACHABLE) from exc
        _report(verdicts, undone, json_file)
    if undone or not all(one.ok for one in verdicts):
        raise typer.Exit(FAILED)


def _check(names: Sequence[str], setting: Setting, files: Mapping[str, Path | None]) -> None:
    """Raises typer's usage error for options that contradict each other, name no function, or name
    a file that cannot be written: a drill takes minutes, and a soak hours.
    """
    for name, file in files.items():
        if file is not None and (file.is_dir() or not os.access(file.absolute().parent, os.W_OK)):
            problem = f"cannot write to {file}; pass a file in an existing directory"
            raise wrong_usage(name, problem)
    if setting.spout and (setting.process or Need.EXECUTORS in setting.has):
        raise wrong_usage(
            "--spout",
            "--process and --executors need a Spark job; omit these two options, or omit --spout",
        )
    if not setting.is_fake and not setting.is_emulator and setting.stream_prefix is None:
        raise wrong_usage(
            "--stream-prefix",
            "--stream-prefix is missing: the drill creates a stream on AWS whose name starts "
            "with this prefix",
        )
    for name, text in (("--process", setting.process), ("--payload", setting.payload)):
        if text is not None:
            with usage_errors(name):
                load_function(text)  # a wrong one is reported before anything is started
    if not names:
        raise wrong_usage(
            "NAME", "pass the name of a drill, `all` or `soak`; --list shows the names"
        )


def _judged(
    one: Drill, setting: Setting, directory: Path, *, is_kept: bool
) -> tuple[Verdict, bytes]:
    """Run a drill, and judge it. Returns the verdict and its page. Raises as `run_drill` does."""
    tell(f"{one.name}: {one.sentence}")
    began_s = time.monotonic()

    def timed(sentence: str) -> None:
        tell(f"{time.monotonic() - began_s:6.1f} s  {sentence}")

    drilled = run_drill(one, setting, directory, timed)
    again = redeliveries(drilled.history)
    verdict = judge(drilled, again)
    about = f"kinesis-spout {__version__}, {time.strftime('%Y-%m-%d %H:%M:%S %z')}"
    stored, figures = encode_history(drilled.history), verdict_json(verdict)
    html = page(drill_json(drilled.history, verdict, again, [about]))
    for name, data in (("history.json", stored), ("verdict.json", figures), ("verdict.html", html)):
        write_file(directory / name, data)
    if drilled.undone is not None:
        tell(drilled.undone, "error:", "bold red")
    else:
        timed("ok" if verdict.ok else "BROKEN")
    if drilled.log and (drilled.undone is not None or drilled.troubles):
        # The end of the log of a job that did not do what the drill waited for.
        log = Path(drilled.log)
        where = str(log) if is_kept else f"{log.name} (to keep the log, pass --keep DIR)"
        lines: list[str] = []
        with suppress(OSError):
            lines = log.read_text("utf-8", errors="replace").splitlines()
        tell(f"the last lines of {where}:" if lines else f"the log {where} is empty")
        for line in lines[-_LOG_LINES:]:
            tell(f"  {visible(line)}")
    return verdict, html


@contextmanager
def _directory(keep: Path | None, name: str) -> Iterator[Path]:
    try:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=keep)).absolute()
    except OSError as exc:
        problem = f"cannot create a directory in {keep or tempfile.gettempdir()}: {exc.strerror}"
        raise CliError(problem, "pass a writable directory with --keep") from exc
    try:
        yield directory
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)


def _report(verdicts: Sequence[Verdict], undone: Sequence[str], json_file: Path | None) -> None:
    for one in verdicts:
        say(verdict_text(one))
    if len(verdicts) > 1:
        show(stdout_console(), overview(verdicts))
    for name in undone:
        say(f"{name}: not done")
    if json_file is not None:
        data = b"[" + b",".join(verdict_json(one) for one in verdicts) + b"]\n"
        write_file(json_file, data)
