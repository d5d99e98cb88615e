"""`kinesis-spout status` without an application: a line for each one in ZooKeeper. Read-only.

`--json` prints a list with an object for each application on each of its streams, worst first:

    application, stream
    verdict      as in `kinesis-spout status`; unknown where it could not be judged
    why          one sentence on the verdict, or on what went wrong
    lagMs        the largest lag of a shard; null where none is known
    unresolved   number of records that are not acked
    owners       process, host, sinceMs, and task where several share the application
"""

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
from kinesis_spout.cli.inspection.status_screen import COLOURS
from kinesis_spout.cli.places import note
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef, duration
from kinesis_spout.errors import KinesisError
from kinesis_spout.inspection.health import SEVERITY, Health
from kinesis_spout.inspection.reader import TipReader
from kinesis_spout.inspection.status import verdict_sentence
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
    def why(self) -> str:
        return self.error if self.status is None else verdict_sentence(self.status)

    @property
    def lag_ms(self) -> int | None:
        live = () if self.status is None else self.status.live
        return max((one.lag_ms for one in live if one.lag_ms is not None), default=None)

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
        whole = {} if self.status is None else self.status.as_json()
        return {
            "application": self.application,
            "stream": self.stream,
            "verdict": self.verdict.value,
            "why": self.why,
            "lagMs": self.lag_ms,
            "unresolved": sum(one["unresolved"] for one in whole.get("shards", ())),
            "owners": whole.get("owners", []),
        }


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
                known = topics.identity.read()  # its ARN tells the region, where streams differ
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
    for name in ("application", "stream"):
        table.add_column(name, overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("lag", justify="right", no_wrap=True)
    table.add_column("owner", overflow="fold")
    for one in lines:
        lag = "-" if one.lag_ms is None else duration(one.lag_ms) if one.lag_ms else "tip"
        verdict = Text(one.verdict.value, COLOURS[one.verdict])
        table.add_row(Text(one.application), Text(one.stream), verdict, lag, Text(one.owner))
    show(console, table)
    for one in lines:
        if one.error:
            note(f"application {one.application} on stream {one.stream}: {one.error}")
