"""The screen of `kinesis-spout status`: lines on the application, and a table of its shards.

It fits 80 columns; where there is room for them it also shows checkpoints, whole ids and positions.
A figure that is too long is rounded, never cut. Worst shards come first, and only so many unless
all are asked for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kinesis_spout.config import duration
from kinesis_spout.inspection.health import OVER, Health
from kinesis_spout.inspection.status import (
    move_sentence,
    owners_sentence,
    plan_sentence,
    unresolved_sentence,
    verdict_sentence,
    waits_sentence,
)
from kinesis_spout.inspection.wording import brief, cut_expiry, short_shard, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinesis_spout.inspection.status import ApplicationStatus, ShardStatus

SHOWN = 20
WIDE = 110
MANY = 1_000
_MORE = f">{MANY - 1}"
_ENDLESS = Console(width=10_000)
COLOURS = {
    Health.OK: "green",
    Health.UNKNOWN: "dim",
    Health.PAUSED: "magenta",
    Health.NOT_RUNNING: "blue",
    Health.LAGGING: "yellow",
    Health.STALLED: "bold red",
    Health.LOSING: "bold red",
}


def status_screen(status: ApplicationStatus, *, width: int, most: int | None) -> RenderableType:
    """The whole screen. `most`: how many shards to show, None for all."""
    shown = status.shards if most is None else status.live[:most]
    parts: list[RenderableType] = [_head(status)]
    if shown:
        retention_ms = status.look.now.stream.retention_ms
        parts += ["", shard_table(shown, width=width, retention_ms=retention_ms)]
    if more := _rest(status, shown):
        parts.append(Text(more, "dim"))
    return Group(*parts)


def _head(status: ApplicationStatus) -> Table:
    now, verdict = status.look.now, status.verdict
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True, style="dim")
    lines.add_column(overflow="fold")
    stream = f"{now.stream.name} ({now.stream.status}, keeps {duration(now.stream.retention_ms)})"
    lines.add_row("application", escape(f"{now.application} on stream {stream}"))
    said = f"[{COLOURS[verdict]}]{verdict.value}[/]: {escape(verdict_sentence(status))}"
    lines.add_row("verdict", said)
    lines.add_row("owner", escape(owners_sentence(status.look)))
    if now.stored.paused:
        lines.add_row("paused", "[magenta]yes[/]; end it with kinesis-spout resume")
    if (plan := plan_sentence(status.look)) is not None:
        lines.add_row("plan", escape(plan))
    if (moved := move_sentence(status.look)) is not None:
        lines.add_row("moved", escape(moved))
    lines.add_row("records", escape(unresolved_sentence(status)))
    counts = Counter(one.phase.value for one in status.shards)
    lines.add_row("shards", ", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if (waits := waits_sentence(status.look)) is not None:
        lines.add_row("waiting", escape(waits))
    if (refused := status.look.refused) is not None:
        lines.add_row("not asked", f"[yellow]{escape(refused)}[/]")
    return lines


def shard_table(shown: Sequence[ShardStatus], *, width: int, retention_ms: int) -> Table:
    """A line for each shard, in the widest layout that fits `width` columns."""
    wide = _table(shown, is_wide=True, retention_ms=retention_ms)
    is_wide = width >= WIDE and wide.__rich_measure__(_ENDLESS, _ENDLESS.options).maximum <= width
    return wide if is_wide else _table(shown, is_wide=False, retention_ms=retention_ms)


def _table(shown: Sequence[ShardStatus], *, is_wide: bool, retention_ms: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in ("shard", "health", "state", "read to"):
        table.add_column(name, no_wrap=True)
    if is_wide:
        table.add_column("checkpoint", no_wrap=True)
    for name in ("lag", "expires in", "speed", "unack.", "oldest", "tries"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in shown:
        table.add_row(*_cells(one, is_wide=is_wide, retention_ms=retention_ms))
    return table


def _cells(one: ShardStatus, *, is_wide: bool, retention_ms: int) -> list[Text]:
    lag = "-" if one.lag_ms is None else duration(one.lag_ms) if one.lag_ms else "tip"
    speed = "-" if one.speed is None or not one.lag_ms else _speed(one.speed)
    lost = cut_expiry(one.expires_in_ms, retention_ms)
    colour = COLOURS[one.health]
    position = one.position or "-"
    cells = [
        Text(one.shard_id if is_wide else short_shard(one.shard_id)),
        Text(one.health.value, colour),
        Text(one.phase.value),
        Text(shortened(position) if is_wide else brief(position)),
    ]
    if is_wide:
        cells.append(Text(shortened(one.checkpoint or "none")))
    return [
        *cells,
        Text(lag if one.lag_measured or not one.lag_ms else f"<{lag}"),
        Text(lost, "" if one.expires_in_ms is None else colour),
        Text(speed),
        Text(_count(one.unresolved) if one.unresolved else "-"),
        Text("-" if one.oldest_ms is None else duration(one.oldest_ms)),
        Text("-" if not one.attempts else str(one.attempts) if one.attempts < MANY else _MORE),
    ]


def _speed(speed: float) -> str:
    """In five columns."""
    if speed >= MANY:
        return f"{_MORE}x"
    return f"{speed:.1f}x" if speed < 99.95 else f"{speed:.0f}x"


def _count(count: int) -> str:
    """In five columns up to a hundred million; rounded down from ten thousand on."""
    if count < 10_000:
        return f"{count:,}"
    if count < 1_000_000:
        return f"{count // 1_000}k"
    return f"{count // 100_000 / 10}M"


def _rest(status: ApplicationStatus, shown: Sequence[ShardStatus]) -> str | None:
    """What is not shown: so many more shards, and those that are over."""
    if len(shown) == len(status.shards):
        return None
    over = sum(one.phase in OVER for one in status.shards)
    more = Counter(one.health.value for one in status.live[len(shown) :])
    told = [
        f"{count:,} more {'is' if count == 1 else 'are'} {name}" for name, count in more.items()
    ]
    if over:
        told.append(f"{over:,} {'is' if over == 1 else 'are'} over")
    return f"{'; '.join(told)} (--all shows them)"
