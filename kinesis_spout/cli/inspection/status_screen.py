"""The screen of `kinesis-spout status`: lines on the application, and a table of its shards.

It fits 80 columns; where there is room for them it also shows checkpoints, whole ids and positions.
A figure that is too long is rounded, never cut. Worst shards come first, and only so many unless
all are asked for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from kinesis_spout.config import duration
from kinesis_spout.inspection.health import Health
from kinesis_spout.inspection.status import (
    move_sentence,
    owners_sentence,
    plan_sentence,
    unresolved_sentence,
    verdict_sentence,
    waits_sentence,
)
from kinesis_spout.inspection.wording import are, brief, cut_expiry, short_shard, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from kinesis_spout.inspection.status import ApplicationStatus, ShardStatus

SHOWN = 20
WIDE = 110
MANY = 1_000
_MORE = f">{MANY - 1}"
_LEFT = frozenset({"shard", "health", "state", "read to", "checkpoint"})
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
    if len(shown) < len(status.shards):
        parts.append(Text(_rest(status, shown), "dim"))
    return Group(*parts)


def _head(status: ApplicationStatus) -> Table:
    look, now, verdict = status.look, status.look.now, status.verdict
    stream = f"{now.stream.name} ({now.stream.status}, keeps {duration(now.stream.retention_ms)})"
    counts = Counter(one.phase.value for one in status.shards)
    paused = Text.assemble(("yes", "magenta"), "; end it with kinesis-spout resume")
    rows: dict[str, Text | str | None] = {
        "application": f"{now.application} on stream {stream}",
        "verdict": Text.assemble(
            (verdict.value, COLOURS[verdict]), f": {verdict_sentence(status)}"
        ),
        "owner": owners_sentence(look),
        "paused": paused if now.stored.paused else None,
        "plan": plan_sentence(look),
        "moved": move_sentence(look),
        "records": unresolved_sentence(status),
        "shards": ", ".join(f"{count:,} {name}" for name, count in counts.items()),
        "waiting": waits_sentence(look),
        "not asked": None if look.refused is None else Text(look.refused, "yellow"),
    }
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(no_wrap=True, style="dim")
    lines.add_column(overflow="fold")
    for name, said in rows.items():
        if said is not None:
            lines.add_row(name, Text(said) if isinstance(said, str) else said)
    return lines


def shard_table(shown: Sequence[ShardStatus], *, width: int, retention_ms: int) -> Table:
    """A line for each shard, in the widest layout that fits `width` columns."""
    wide = _table(shown, is_wide=True, retention_ms=retention_ms)
    is_wide = width >= WIDE and wide.__rich_measure__(_ENDLESS, _ENDLESS.options).maximum <= width
    return wide if is_wide else _table(shown, is_wide=False, retention_ms=retention_ms)


def _table(shown: Sequence[ShardStatus], *, is_wide: bool, retention_ms: int) -> Table:
    rows = [_cells(one, is_wide=is_wide, retention_ms=retention_ms) for one in shown]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for name in rows[0]:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    return table


def _cells(one: ShardStatus, *, is_wide: bool, retention_ms: int) -> dict[str, Text]:
    colour, position = COLOURS[one.health], one.position or "-"
    bound = "" if one.lag_measured or not one.lag_ms else "<"
    speed, attempts = one.speed if one.lag_ms else None, one.attempts
    cells = {
        "shard": Text(one.shard_id if is_wide else short_shard(one.shard_id)),
        "health": Text(one.health.value, colour),
        "state": Text(one.phase.value),
        "read to": Text(shortened(position) if is_wide else brief(position)),
        "checkpoint": Text(shortened(one.checkpoint or "none")),
        "lag": Text(f"{bound}{lag_cell(one.lag_ms)}"),
        "expires in": Text(
            cut_expiry(one.expires_in_ms, retention_ms),
            "" if one.expires_in_ms is None else colour,
        ),
        "speed": Text("-" if speed is None else _speed(speed)),
        "unack.": Text(_count(one.unresolved)),
        "oldest": Text("-" if one.oldest_ms is None else duration(one.oldest_ms)),
        "tries": Text(str(attempts or "-") if attempts < MANY else _MORE),
    }
    if not is_wide:
        del cells["checkpoint"]
    return cells


def lag_cell(lag_ms: int | None) -> str:
    return "-" if lag_ms is None else duration(lag_ms) if lag_ms else "tip"


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
    return f"{'; '.join(said)} (--all shows them)"
