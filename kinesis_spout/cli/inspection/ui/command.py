"""`kinesis-spout ui`: an application as a page in a browser. Read-only."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from kinesis_spout.cli.exit_codes import CliError, Interrupted, StopSignals
from kinesis_spout.cli.inspection.looking import (
    DEFAULT_ASKED,
    DEFAULT_WINDOW,
    look_once,
    looking,
)
from kinesis_spout.cli.inspection.ui.letter_folder import LetterFolder
from kinesis_spout.cli.inspection.ui.observed import (
    ObservedApplication,
    ObservedApplications,
    Settings,
)
from kinesis_spout.cli.inspection.ui.page_answers import PageAnswers
from kinesis_spout.cli.inspection.ui.page_server import LOOPBACK, PageServer, is_loopback
from kinesis_spout.cli.inspection.ui.watcher import Watcher
from kinesis_spout.cli.places import Place, note, operators_command, takes_place
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef, parse_duration_ms
from kinesis_spout.page import page

DEFAULT_PORT = 8_642
_WAKE_S = 3_600.0


@takes_place(application="any")
def ui(
    ctx: typer.Context,
    *,
    place: Place,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page; 0 takes a free port.")
    ] = DEFAULT_PORT,
    host: Annotated[
        str,
        typer.Option(
            help=(
                "Address to listen on. With any other address than loopback, other machines can "
                "open the page."
            )
        ),
    ] = LOOPBACK,
    window: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long to watch before the verdict, e.g. 30s or 5m."),
    ] = DEFAULT_WINDOW,
    ask: Annotated[
        int,
        typer.Option(
            metavar="SHARDS",
            min=0,
            help=(
                "How many shards to ask for their tips at each refresh. Each question takes one "
                "of a shard's 5 reads per second."
            ),
        ),
    ] = DEFAULT_ASKED,
    dead_letters: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help=(
                "File or folder with dead letters (JSON, parquet, orc). The page shows their "
                "reasons."
            ),
        ),
    ] = None,
    once: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=("Write the page to this file and end, without serving it.")
        ),
    ] = None,
) -> None:
    """Serve a live page of an application: shards over time, lags, unresolved records, reasons.

    Without --application the page starts with a list of all applications in ZooKeeper; click
    one to open it. It only reads, so it may run beside the jobs. The page has no login.
    Only this machine can open it, unless --host is given. Ctrl-C ends it.
    """
    if dead_letters is not None and not place.application:
        raise typer.BadParameter(
            ("it needs --application: the application of the letters"), param_hint="--dead-letters"
        )
    with operators_command(ctx) as stack:
        signals = stack.enter_context(StopSignals())
        settings = Settings(
            window_s=parse_duration_ms(window, option="window") / 1000,
            max_asked=ask,
            commands=ctx.find_root().command.list_commands(ctx),  # type: ignore[attr-defined]  # a group
            clock=SystemClock(),
        )
        every = ObservedApplications(place, settings, signals, is_at_once=once is None)
        one = None
        if place.application:
            letters = None
            if dead_letters is not None:
                stream = StreamRef.of(place.stream).name
                letters = LetterFolder(dead_letters, place.application, stream)
                letters.check()
            one = ObservedApplication(place, settings, letters)
        if once is not None:
            data = every.observe() if one is None else _once(one, signals)
            _write(page({**data, "shard": None, "trouble": None}), once)
            return

        def opened(application: str, stream: str) -> Watcher | None:
            arn = every.streams.get((application, stream))
            if arn is None:
                return None
            its_place = replace(place, application=application, stream=arn)
            watcher = settings.watcher(ObservedApplication(its_place, settings))
            watcher.open(first_look=False)
            return watcher

        first = settings.watcher(one or every)
        _serve(PageAnswers(first, None if one else opened), signals, port, host)


def _once(one: ObservedApplication, signals: StopSignals) -> dict[str, Any]:
    with looking(one.place, max_asked=one.settings.max_asked) as looks:
        return one.json_of(look_once(looks, signals, one.settings.window_s))


def _serve(answers: PageAnswers, signals: StopSignals, port: int, host: str) -> None:
    """Serve until a signal comes, which raises `Interrupted`."""
    try:
        answers.first.open()
        with PageServer(answers, port, host) as server:
            if not is_loopback(host):
                note(
                    f"the page has no login: anybody who can reach {host}:{server.port} sees "
                    "names, positions and reasons. To avoid that, listen on 127.0.0.1 and use ssh "
                    "-L"
                )
            typer.echo(server.url)
            while True:
                signals.wait(_WAKE_S)
    except Interrupted as exc:
        if not answers.first.close():
            # A call to a service that does not answer would hold the end up. Nothing is written.
            os._exit(exc.exit_code)
        raise
    finally:
        answers.close()
        answers.first.close()


def _write(data: bytes, file: Path) -> None:
    try:
        file.write_bytes(data)
    except OSError as exc:
        raise CliError(
            f"--once {file} cannot be written: {exc.strerror}", "choose another file"
        ) from exc
