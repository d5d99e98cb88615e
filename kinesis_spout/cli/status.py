"""`kinesis-spout status`: how an application is, judged over a short window, or a line for each
application in ZooKeeper. Read-only.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import typer
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.exit_codes import StopSignals
from kinesis_spout.cli.looking import (
    REFRESH_S,
    Looking,
    MovingWindow,
    look_once,
    looking,
)
from kinesis_spout.cli.places import ASK, WINDOW, Operation, Place, command, fitting, stdout_console
from kinesis_spout.cli.shared_options import note, option, wrong_usage
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef, duration
from kinesis_spout.errors import KinesisError, error_sentence
from kinesis_spout.inspection.health import EXIT_CODES, SEVERITY, Health
from kinesis_spout.inspection.reader import TipReader
from kinesis_spout.inspection.status import (
    ApplicationStatus,
    ShardStatus,
    facts_of,
    status_of,
    verdict_sentence,
)
from kinesis_spout.inspection.wording import are, brief, cut_expiry, short_shard, shortened
from kinesis_spout.threads import DaemonPool
from state.errors import StoredDataError, StreamMismatchError

SHOWN = 20
MAX_CONCURRENT_LOOKS = 32
WIDE = 110
MANY = 1_000
_MORE = f">{MANY - 1}"
# Where a terminal has no room for all columns, these are left out, one after the other.
_LEAST = ("read to", "speed", "state", "tries", "oldest", "expires in", "unres.")
_LEFT = frozenset({"shard", "health", "state", "read to", "checkpoint"})
COLOURS = {
    Health.OK: "green",
    Health.UNKNOWN: "dim",
    Health.PAUSED: "magenta",
    Health.NOT_RUNNING: "blue",
    Health.LAGGING: "yellow",
    Health.STALLED: "bold red",
    Health.LOSING: "bold red",
}
_FACT_COLOURS = {"paused": "magenta", "lost": "bold red", "newest records": "yellow"}


@command("any", shows=True)
def status(
    op: Operation,
    *,
    window: float = WINDOW,
    ask: int = ASK,
    watch: bool = option(
        "Refresh the screen until Ctrl-C. Each verdict covers the time of the last --window."
    ),
    show_all: bool = option(f"Show all shards instead of only the worst {SHOWN}.", "--all"),
) -> None:
    """Show an application's health: one verdict, then a line for each shard, the worst shard first.

    Without --application, the command shows a line for each application and
    stream in ZooKeeper. The command only reads, so it may run while the jobs are
    running. The exit code is 0 for the verdicts ok, lagging, paused and not
    running. The exit code is 1 for the verdicts stalled, losing and unknown, and
    for an application that does not exist. The exit code is 3 if Kinesis or
    ZooKeeper cannot be reached.
    """
    if watch and op.as_json:
        raise wrong_usage("--watch, --json", "use only one of --watch and --json")
    if watch and not op.place.application:
        needs = "--watch needs --application: the command watches one application"
        raise wrong_usage("--watch", needs)
    if not op.place.application:
        lines = look_at_all(op.place, op.window(window), ask)
        show_applications(op, lines)
        code = max((EXIT_CODES[one.verdict] for one in lines), default=0)
    else:
        looks = looking(op.place, op.stack, max_asked=ask)
        most = None if show_all else SHOWN
        if watch:
            _watch(looks, op.signals, window, most)
        found = look_once(looks, op.window(window))
        width = stdout_console().width
        op.show(found.as_json(), [status_screen(found, width=width, most=most)])
        code = EXIT_CODES[found.verdict]
    if code:
        raise typer.Exit(code)


def _watch(looks: Looking, signals: StopSignals, window_s: float, most: int | None) -> None:
    """Show looks until a signal comes, which raises `Interrupted`."""
    console, window = Console(), MovingWindow(looks, window_s)
    with Live(console=console, auto_refresh=False, screen=console.is_terminal) as live:
        while True:
            found = status_of(window.look())
            room = None if most is None else min(most, max(1, console.height - 12))
            live.update(status_screen(found, width=console.width, most=room), refresh=True)
            signals.wait(REFRESH_S)


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
        whole = {} if self.status is None else self.status.as_json()
        return {
            "application": self.application,
            "stream": self.stream,
            "verdict": self.verdict.value,
            "why": whole.get("why", self.error),
            "lagMs": whole.get("lagMs"),
            "unresolved": whole.get("unresolved", 0),
            "owners": whole.get("owners", []),
        }


def look_at_all(
    place: Place, wait: Callable[[], object] | None, max_asked: int
) -> list[ApplicationLine]:
    """Judge all applications in ZooKeeper, or those on the stream that `place` names, as `status`
    judges one. The worst come first. Blocks as `wait` does, and again for each further
    `MAX_CONCURRENT_LOOKS` applications.

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
                looks = Looking(TipReader(client, clock), topics, application, max_asked)
                return replace(line, status=look_once(looks, wait))
            # The others are still shown.
            except (KinesisError, StoredDataError, StreamMismatchError) as exc:
                return replace(line, error=error_sentence(exc))

        with DaemonPool(MAX_CONCURRENT_LOOKS, "looks") as pool:
            lines = list(pool.map(judged, named))
    return sorted(lines, key=lambda one: (-SEVERITY[one.verdict], one.application, one.stream))


def show_applications(op: Operation, lines: Sequence[ApplicationLine]) -> None:
    on = f" on stream {op.place.stream}" if op.place.stream else ""
    where = f"under {op.place.zookeeper_root} in {op.place.zookeeper}"
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("application", "stream", "verdict", "lag", "owner"):
        justify: JustifyMethod = "right" if name == "lag" else "left"
        table.add_column(name, justify=justify, no_wrap=name in {"lag", "verdict"}, overflow="fold")
    for one in lines:
        lag = lag_cell(None if one.status is None else one.status.lag_ms)
        verdict = Text(one.verdict.value, COLOURS[one.verdict])
        table.add_row(Text(one.application), Text(one.stream), verdict, lag, Text(one.owner))
    op.show([one.as_json() for one in lines], [table] if lines else [])
    if op.as_json:
        return
    if not lines:
        note(f"no application has stored state{on} {where}")
    for one in lines:
        if one.error:
            note(f"application {one.application} on stream {one.stream}: {one.error}")


def status_screen(status: ApplicationStatus, *, width: int, most: int | None) -> RenderableType:
    """The whole screen. `most`: how many shards to show, None for all."""
    shown = status.shards if most is None else status.live[:most]
    parts: list[RenderableType] = [_head(status)]
    if shown:
        retention_ms = status.look.now.stream.retention_ms
        parts += ["", shard_table(shown, width=width, retention_ms=retention_ms)]
    if len(shown) < len(status.shards):
        parts.append(Text(_rest(status, shown), "dim"))
    return Group(*parts)


def _head(status: ApplicationStatus) -> Table:
    now, verdict = status.look.now, status.verdict
    stream = (
        f"{now.stream.name} ({now.stream.status}, retention {duration(now.stream.retention_ms)})"
    )
    counts = Counter(one.phase.value for one in status.shards)
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True, style="dim")
    lines.add_column(overflow="fold")
    lines.add_row("application", Text(f"{now.application} on stream {stream}"))
    verdict_text = (verdict.value, COLOURS[verdict])
    lines.add_row("verdict", Text.assemble(verdict_text, f": {verdict_sentence(status)}"))
    for name, said in facts_of(status).items():
        lines.add_row(name, Text(said, _FACT_COLOURS.get(name, "")))
    lines.add_row("shards", Text(", ".join(f"{count:,} {name}" for name, count in counts.items())))
    return lines


def shard_table(shown: Sequence[ShardStatus], *, width: int, retention_ms: int) -> Table:
    """A line for each shard, in the widest layout that fits `width` columns."""

    def layout(less: int, gap: int, *, is_wide: bool = False) -> Table:
        rows = [_cells(one, is_wide=is_wide, retention_ms=retention_ms) for one in shown]
        table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
        names = [name for name in rows[0] if name not in _LEAST[:less]]
        for name in names:
            table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(row[name] for name in names))
        return table

    wide = [layout(0, gap, is_wide=True) for gap in (2, 1)] if width >= WIDE else []
    narrow = (layout(less, gap) for less in range(len(_LEAST) + 1) for gap in (2, 1))
    return fitting(width, chain(wide, narrow))


def _cells(one: ShardStatus, *, is_wide: bool, retention_ms: int) -> dict[str, Text]:
    colour, position = COLOURS[one.health], one.position or "-"
    at_most = "at most " if is_wide else "<"
    bound = "" if one.lag_measured or not one.lag_ms else at_most
    speed, attempts = one.speed if one.lag_ms else None, one.attempts
    cells = {
        "shard": Text(one.shard_id if is_wide else short_shard(one.shard_id)),
        "health": Text(one.health.value, colour),
        "state": Text(one.phase.value),
        "read to": Text(shortened(position) if is_wide else brief(position)),
        "checkpoint": Text(shortened(one.checkpoint or "none")),
        "lag": Text(f"{bound}{lag_cell(one.lag_ms)}"),
        "expires in": Text(
            cut_expiry(one.expires_in_ms, retention_ms, is_bound=bool(bound)),
            "" if one.expires_in_ms is None else colour,
        ),
        "speed": Text("-" if speed is None else _speed(speed)),
        "unres.": Text(_count(one.unresolved)),
        "oldest": Text("-" if one.oldest_ms is None else duration(one.oldest_ms)),
        "tries": Text(str(attempts or "-") if attempts < MANY else _MORE),
    }
    if not is_wide:
        del cells["checkpoint"]
    return cells


def lag_cell(lag_ms: int | None) -> str:
    return "-" if lag_ms is None else duration(lag_ms) if lag_ms else "0 s"


def _speed(speed: float) -> str:
    """In five columns."""
    if speed >= MANY:
        return f"{_MORE}x"
    return f"{speed:.1f}x" if speed < 99.95 else f"{speed:.0f}x"


def _count(count: int) -> str:
    """In five columns up to a hundred million; rounded down from ten thousand on."""
    if count < 10_000:
        return f"{count:,}" if count else "-"
    if count < 1_000_000:
        return f"{count // 1_000}k"
    return f"{count // 100_000 / 10}M"


def _rest(status: ApplicationStatus, shown: Sequence[ShardStatus]) -> str:
    """What is not shown: so many more shards, and those that are over."""
    more = Counter(one.health.value for one in status.live[len(shown) :])
    said = [f"{count:,} more {are(count)} {name}" for name, count in more.items()]
    if over := len(status.shards) - len(status.live):
        said.append(f"{over:,} {are(over)} over")
    return f"{'; '.join(said)} (to see these shards, pass --all)"
