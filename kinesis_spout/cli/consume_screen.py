"""The stderr of `kinesis-spout consume`: a live table, notes above it, and a summary at the end."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.places import shown_log
from kinesis_spout.config import duration
from kinesis_spout.errors import KinesisError
from kinesis_spout.inspection.wording import short_shard
from kinesis_spout.spout.metrics import quantile_ms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from rich.console import RenderableType

    from kinesis_spout.spout.kinesis_spout import KinesisSpout
    from kinesis_spout.spout.metrics import ShardMetrics, SpoutMetrics

_REFRESH_S = 1.0
_WIDE = 200  # in a file, a row must not be folded
MAX_WARNINGS = 10
# Headers of the counts -> fields of the metrics.
_COUNTS = {
    name: name.replace(" ", "_").replace("-", "_")
    for name in ("emitted", "acked", "failed", "retried", "timed out", "dead-lettered")
}
_COLUMNS = (*_COUNTS, "pending", "queued", "lag", "p50", "p99")
# In a terminal that has no room for all columns, headers take two lines, and these are left out.
_BROKEN = {"timed out": "timed\nout", "dead-lettered": "dead-\nlettered"}
_LEAST = ("p50", "retried", "p99", "queued", "timed out", "failed", "dead-lettered", "pending")
MAX_SHARDS = 40


class ConsumeScreen:
    """Writes to stderr. Any thread may call `note` and `print_line`.

    `table`: whether to show the table. `quiet`: no summary at the end.
    """

    def __init__(self, spout_name: str, *, table: bool, quiet: bool) -> None:
        console = Console(stderr=True)
        self._console = console if console.is_terminal else Console(stderr=True, width=_WIDE)
        self._stream = spout_name
        self._table = table
        self._quiet = quiet
        self._warnings = 0
        # Rich places the table by what it drew last. A line that another thread prints while it
        # draws would come in the middle of it.
        self._writing = threading.Lock()

    def note(self, text: str) -> None:
        """Print a sentence above the table."""
        self._print(f"[yellow]note:[/] {escape(text)}")

    def _print(self, line: RenderableType) -> None:
        with self._writing:
            self._console.print(line, highlight=False, soft_wrap=True)

    @property
    def is_live(self) -> bool:
        """Whether the table is redrawn continually, on a terminal.

        Then other writers must print by way of this screen.
        """
        return self._table and self._console.is_terminal

    def print_line(self, line: str) -> None:
        """Print another program's line above the table, with its colours."""
        self._print(Text.from_ansi(line))

    def warn(self, sentence: str) -> None:
        """Print a note of a kind that may be frequent. After the tenth, none is printed."""
        self._warnings += 1
        if self._warnings <= MAX_WARNINGS:
            self.note(sentence)
        if self._warnings == MAX_WARNINGS:
            self.note(
                "further notes of this kind are only counted. Their number is printed at the end"
            )

    @contextmanager
    def live(self, spout: KinesisSpout) -> Iterator[None]:
        """Redraw the table once a second while the block runs, on a terminal.

        In a file, the table is printed once, by `finish`.
        """
        if not self.is_live:
            yield
            return
        live = Live(self._rendered(spout), console=self._console, auto_refresh=False)
        ended = threading.Event()
        redrawing = threading.Thread(
            target=self._redraw, args=(live, spout, ended), name="kinesis-spout-screen", daemon=True
        )
        with self._writing:
            live.start(refresh=True)
        redrawing.start()
        try:
            yield
        finally:
            ended.set()
            redrawing.join()
            table = self._rendered(spout)
            with self._writing:
                live.update(table, refresh=True)
                live.stop()

    def _redraw(self, live: Live, spout: KinesisSpout, ended: threading.Event) -> None:
        while not ended.wait(_REFRESH_S):
            table = self._rendered(spout)
            with self._writing:
                live.update(table, refresh=True)

    def finish(self, spout: KinesisSpout) -> None:
        """Print the summary, and in a file the table. Call it after the spout is closed."""
        try:
            metrics = spout.metrics()
        except KinesisError:
            return  # the spout was never open
        if self._table and not self._console.is_terminal:
            self._console.print(stats_table(self._stream, metrics))
        if not self._quiet:
            self._console.print(summary(self._stream, metrics), highlight=False, soft_wrap=True)

    def _rendered(self, spout: KinesisSpout) -> RenderableType:
        try:
            return stats_table(self._stream, spout.metrics(), self._console.width)
        except KinesisError:
            return ""

    def logs(self) -> AbstractContextManager[None]:
        """Print warnings and errors of the log as sentences here, while the block runs."""

        def show(record: logging.LogRecord) -> None:
            kind = "[red]error:[/]" if record.levelno >= logging.ERROR else "[yellow]warning:[/]"
            self._print(f"{kind} {escape(record.getMessage())}")

        return shown_log(show)


def stats_table(stream: str, metrics: SpoutMetrics, width: int = _WIDE) -> Table:
    """A row of totals, then the first `MAX_SHARDS` shards, in so many columns of a terminal. p50
    and p99 are upper bounds of the time from a record's arrival to its ack.
    """
    shown = list(metrics.shards)[:MAX_SHARDS]
    cells = [_cells(metrics.total), *(_cells(metrics.shards[shard_id]) for shard_id in shown)]
    widths = {name: max(len(row[at]) for row in cells) for at, name in enumerate(_COLUMNS)}
    names, gap = ["all shards", *shown], 2
    headers = {name: name for name in _COLUMNS}

    def needed() -> int:
        parts = [max(widths[name], *map(len, text.split("\n"))) for name, text in headers.items()]
        return max(map(len, names)) + sum(parts) + gap * len(parts)

    if needed() > width:
        names, gap = ["all", *(f"shard {short_shard(shard_id)}" for shard_id in shown)], 1
        headers |= _BROKEN
    left_out: list[str] = []
    while needed() > width and len(left_out) < len(_LEAST):
        left_out.append(_LEAST[len(left_out)])
        del headers[left_out[-1]]
    more = len(metrics.shards) - len(shown)
    notes = [f"and {more} more shards"] if more else []
    notes += [f"no room for {', '.join(left_out)}"] if left_out else []
    has_room = len(stream) <= max(map(len, names))  # for its name, in the first column
    table = Table(
        title=None if has_room else stream,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1) if gap > 1 else (0, 1, 0, 0),
        caption="; ".join(notes) or None,
    )
    table.add_column(stream if has_room else "", no_wrap=True)
    for header in headers.values():
        table.add_column(header, justify="right", no_wrap=True)
    for at, (name, row) in enumerate(zip(names, cells, strict=True)):
        kept = (text for column, text in zip(_COLUMNS, row, strict=True) if column in headers)
        table.add_row(name, *kept, style="" if at else "bold")
    return table


def summary(stream: str, metrics: SpoutMetrics) -> str:
    """The counts in one line. Counts of zero are left out, except emitted and acked."""
    counts = metrics.total.counts
    rest = {name: getattr(counts, field) for name, field in _COUNTS.items() if name != "emitted"}
    rest |= {"pending": metrics.total.pending, "queued": metrics.total.queued}
    rest["left out (of another shard)"] = counts.left_out
    parts = [f"{value:,} {name}" for name, value in rest.items() if value or name == "acked"]
    return f"stream {stream}: {counts.emitted:,} emitted, {', '.join(parts)}"


def _cells(one: ShardMetrics) -> list[str]:
    numbers = (*(getattr(one.counts, field) for field in _COUNTS.values()), one.pending, one.queued)
    latency = one.counts.latency
    times = (one.lag_ms, quantile_ms(latency, 0.5), quantile_ms(latency, 0.99))
    return [
        *(f"{number:,}" for number in numbers),
        *("-" if ms is None else duration(ms) for ms in times),
    ]
