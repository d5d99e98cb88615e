"""`kinesis-spout ui`: an application as a page in a browser. Read-only."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.cli.exit_codes import CliError, Interrupted, StopSignals
from kinesis_spout.cli.inspection.looking import (
    DEFAULT_ASKED,
    DEFAULT_WINDOW,
    MovingWindow,
    looking,
    refuse_another_stream,
    two_snapshots,
)
from kinesis_spout.cli.inspection.ui.application_pages import ApplicationPages
from kinesis_spout.cli.inspection.ui.letter_folder import LetterFolder
from kinesis_spout.cli.inspection.ui.page_server import LOOPBACK, PageServer, is_loopback
from kinesis_spout.cli.inspection.ui.watcher import Watcher
from kinesis_spout.cli.places import Place, note, operators_command, takes_place, whole_command
from kinesis_spout.config import StreamRef, parse_duration_ms
from kinesis_spout.inspection.page.application_page import application_page
from kinesis_spout.inspection.page.view import View

DEFAULT_PORT = 8_642
_WAKE_S = 3_600.0


@takes_place()
def ui(
    ctx: typer.Context,
    *,
    place: Place,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page; 0 takes a free one.")
    ] = DEFAULT_PORT,
    host: Annotated[
        str,
        typer.Option(help="Address to listen at. Another one than loopback shows the page to all."),
    ] = LOOPBACK,
    window: Annotated[
        str,
        typer.Option(metavar="TIME", help="Over how long to judge, e.g. 30s or 5m."),
    ] = DEFAULT_WINDOW,
    ask: Annotated[
        int,
        typer.Option(
            metavar="SHARDS",
            min=0,
            help="How many shards to ask for their tips in a look. Takes one of a shard's 5 reads "
            "a second.",
        ),
    ] = DEFAULT_ASKED,
    dead_letters: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="File or folder with dead letters (JSON, parquet, orc), to show their reasons.",
        ),
    ] = None,
    once: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the page into this file, and serve nothing."),
    ] = None,
) -> None:
    """Serve a live page of an application: shards over time, lags, unresolved records, reasons.

    It only reads, so it may run beside the job. It has no login, and listens on
    this machine only. Ctrl-C ends it.
    """
    with operators_command(ctx) as stack:
        signals = stack.enter_context(StopSignals())
        window_s = parse_duration_ms(window, option="window") / 1000
        letters = None
        if dead_letters is not None:
            letters = LetterFolder(dead_letters, place.application, StreamRef.of(place.stream).name)
            letters.check()
        looks = stack.enter_context(looking(place, max_asked=ask))
        if once is not None:
            before, now = two_snapshots(looks, signals, window_s)
            refuse_another_stream(now)
            view = View(
                look=looks.look(before, now),
                letters=None if letters is None else letters.read(),
                whole_command=partial(whole_command, place),
                is_live=False,
            )
            _write(view, once)
            return
        watcher = Watcher(
            MovingWindow(looks, window_s),
            window_s=window_s,
            clock=looks.clock,
            letters=letters,
        )
        commands = ctx.find_root().command.list_commands(ctx)  # type: ignore[attr-defined]  # a group
        pages = ApplicationPages(watcher.newest, commands, partial(whole_command, place))
        server = PageServer(pages, port, host)
        _serve(watcher, server, signals, host)


def _serve(watcher: Watcher, server: PageServer, signals: StopSignals, host: str) -> None:
    """Serve until a signal comes, which raises `Interrupted`."""
    try:
        watcher.open()
        with server:
            if not is_loopback(host):
                note(
                    f"the page has no login: whoever can reach {host}:{server.port} sees names, "
                    "positions and reasons; listen on 127.0.0.1 and use ssh -L instead"
                )
            typer.echo(server.url)
            while True:
                signals.wait(_WAKE_S)
    except Interrupted as exc:
        if not watcher.close():
            # A call to a service that does not answer would hold the end up. Nothing is written.
            os._exit(exc.exit_code)
        raise
    finally:
        watcher.close()


def _write(view: View, file: Path) -> None:
    try:
        file.write_text(application_page(view), encoding="utf-8")
    except OSError as exc:
        raise CliError(
            f"--once {file} cannot be written: {exc.strerror}", "choose another file"
        ) from exc
