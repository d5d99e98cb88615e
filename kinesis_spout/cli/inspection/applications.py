"""`kinesis-spout status` without an application: a line for each one in ZooKeeper. Read-only."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.exit_codes import CliError, sentence_of
from kinesis_spout.cli.inspection.looking import Looking, look_once, say_watching, show
from kinesis_spout.cli.inspection.status_screen import COLOURS, lag_cell
from kinesis_spout.cli.places import note
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.errors import KinesisError
from kinesis_spout.inspection.health import SEVERITY, Health
from kinesis_spout.inspection.reader import TipReader
from state.errors import StoredDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from kinesis_spout.cli.exit_codes import StopSignals
    from kinesis_spout.cli.places import Place
    from kinesis_spout.inspection.status import ApplicationStatus

MAX_CONCURRENT_LOOKS = 32
_ONE_FAILS = (KinesisError, StoredDataError, CliError)  # the others are still shown


@dataclass(frozen=True, slots=True)
class ApplicationLine:
    """One application on one stream. `status` is None where it could not be judged, for `error`."""

    application: str
    stream: str
    status: ApplicationStatus | None = None
    error: str = ""

    @property
    def verdict(self) -> Health:
        return Health.UNKNOWN if self.status is None else self.status.verdict

    @property
    def owner(self) -> str:
        stored = None if self.status is None else self.status.look.now.stored
        if stored is None or not stored.owners:
            return "none"
        if stored.total_tasks in {None, 1}:
            info = stored.owners[0].info
            return f"pid {info.pid} on {info.host}"
        return f"{len(stored.owners)} of {stored.total_tasks} tasks"

    def as_json(self) -> dict[str, Any]:
        """The members of `status --json` that fit a list."""
        found: dict[str, Any] = {
            "application": self.application,
            "stream": self.stream,
            "verdict": self.verdict.value,
            "why": self.error,
            "lagMs": None,
            "unresolved": 0,
            "owners": [],
        }
        whole = {} if self.status is None else self.status.as_json()
        return {name: whole.get(name, value) for name, value in found.items()}


def look_at_all(
    place: Place,
    signals: StopSignals,
    window_s: float,
    *,
    max_asked: int,
    is_silent: bool = False,
) -> list[ApplicationLine]:
    """Judge all applications in ZooKeeper, or those on the stream that `place` names, as `status`
    judges one. The worst come first. Blocks for the window, and again for each further
    `MAX_CONCURRENT_LOOKS` applications. Reports that on a terminal, unless it `is_silent`.

    An application whose stream cannot be read is a line with the error. Raises `StateError` where
    ZooKeeper does not answer.
    """
    with ExitStack() as stack:
        stored, clock = place.applications(stack), SystemClock()
        wanted = StreamRef.of(place.stream).name if place.stream else None
        named = [pair for pair in stored.names() if wanted in {None, pair[1]}]

        def judged(pair: tuple[str, str]) -> ApplicationLine:
            application, stream = pair
            line = ApplicationLine(application, stream)
            try:
                topics = stored.topics(application, stream)
                known = topics.identity.read()  # its ARN has the region
                client = replace(place, stream=known.arn if known else stream).client(stack)
                tips = TipReader(client, clock)
                looks = Looking(client, topics, tips, clock, application, max_asked)
                return replace(line, status=look_once(looks, signals, window_s, is_silent=True))
            except _ONE_FAILS as exc:
                return replace(line, error=sentence_of(exc))

        if window_s and named and not is_silent:
            say_watching(window_s)
        with ThreadPoolExecutor(MAX_CONCURRENT_LOOKS) as pool:
            lines = list(pool.map(judged, named))
    return sorted(lines, key=lambda one: (-SEVERITY[one.verdict], one.application, one.stream))


def print_applications(
    console: Console, lines: Sequence[ApplicationLine], place: Place, *, as_json: bool
) -> None:
    if as_json:
        typer.echo(json.dumps([one.as_json() for one in lines], indent=2))
        return
    if not lines:
        on = f" on stream {place.stream}" if place.stream else ""
        note(f"no application has state{on} under {place.zookeeper_root} in {place.zookeeper}")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("application", "stream", "verdict", "lag", "owner"):
        is_figure = name == "lag"
        table.add_column(
            name,
            justify="right" if is_figure else "left",
            no_wrap=is_figure or name == "verdict",
            overflow="fold",
        )
    for one in lines:
        lag = lag_cell(None if one.status is None else one.status.lag_ms)
        verdict = Text(one.verdict.value, COLOURS[one.verdict])
        table.add_row(Text(one.application), Text(one.stream), verdict, lag, Text(one.owner))
    show(console, table)
    for one in lines:
        if one.error:
            note(f"application {one.application} on stream {one.stream}: {one.error}")
