"""`kinesis-spout status`: how an application is, judged over a short window. Read-only."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from kinesis_spout.cli.exit_codes import StopSignals
from kinesis_spout.cli.inspection.applications import look_at_all, print_applications
from kinesis_spout.cli.inspection.looking import (
    DEFAULT_ASKED,
    DEFAULT_WINDOW,
    REFRESH_S,
    Ask,
    Looking,
    MovingWindow,
    Window,
    look_once,
    looking,
    show,
)
from kinesis_spout.cli.inspection.shards import stdout_console
from kinesis_spout.cli.inspection.status_screen import SHOWN, status_screen
from kinesis_spout.cli.places import AsJson, Place, operators_command, takes_place
from kinesis_spout.config import parse_duration_ms
from kinesis_spout.inspection.health import EXIT_CODES
from kinesis_spout.inspection.status import ApplicationStatus, status_of


@takes_place(application="any")
def status(
    ctx: typer.Context,
    *,
    place: Place,
    window: Window = DEFAULT_WINDOW,
    ask: Ask = DEFAULT_ASKED,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help=("Refresh until Ctrl-C. Each verdict is over the latest --window.")
        ),
    ] = False,
    as_json: AsJson = False,
    show_all: Annotated[
        bool, typer.Option("--all", help=f"Show all shards instead of only the worst {SHOWN}.")
    ] = False,
) -> None:
    """Show an application's health: one verdict, then a line for each shard, the worst first.

    Without --application it shows a line for each application and stream in
    ZooKeeper. It only reads, so it may run beside the jobs. The exit code is 0
    for ok, lagging, paused and not running; 1 for stalled, losing and unknown,
    and for an application that does not exist; 3 if Kinesis or ZooKeeper
    cannot be reached.
    """
    if watch and as_json:
        raise typer.BadParameter("give one of the two", param_hint="--watch, --json")
    if not place.application:
        if watch:
            raise typer.BadParameter(
                ("it needs --application: it watches one application"), param_hint="--watch"
            )
        with operators_command(ctx) as stack:
            signals = stack.enter_context(StopSignals())
            window_s = parse_duration_ms(window, option="window") / 1000
            lines = look_at_all(place, signals, window_s, max_asked=ask)
            print_applications(stdout_console(), lines, place, as_json=as_json)
            if code := max((EXIT_CODES[one.verdict] for one in lines), default=0):
                raise typer.Exit(code)
        return
    with (
        operators_command(ctx),
        StopSignals() as signals,
        looking(place, max_asked=ask) as looks,
    ):
        window_s = parse_duration_ms(window, option="window") / 1000
        most = None if show_all else SHOWN
        if watch:
            _watch(looks, signals, window_s, most)
        found = look_once(looks, signals, window_s)
        if as_json:
            typer.echo(json.dumps(found.as_json(), indent=2))
        else:
            _print(stdout_console(), found, most)
        if code := EXIT_CODES[found.verdict]:
            raise typer.Exit(code)


def _watch(looks: Looking, signals: StopSignals, window_s: float, most: int | None) -> None:
    """Show looks until a signal comes, which raises `Interrupted`."""
    console = Console()
    window = MovingWindow(looks, window_s)
    window.begin()
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            found = status_of(window.look())
            room = max(1, console.height - 12) if most is not None else None
            screen = status_screen(
                found,
                width=console.width,
                most=room if most is None or room is None else min(most, room),
            )
            live.update(screen, refresh=True)
            signals.wait(REFRESH_S)


def _print(console: Console, found: ApplicationStatus, most: int | None) -> None:
    show(console, status_screen(found, width=console.width, most=most))
