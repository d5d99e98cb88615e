"""The demo's output while it works: a line for each step, live bars on a terminal, plain lines
elsewhere.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

LABEL_WIDTH = 11
_PLAIN_STEP = 0.25


class DemoScreen:
    """Writes to one console. Not thread-safe."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def title(self, text: str) -> None:
        self.console.print(f"\n[bold cyan]{text}[/]\n", highlight=False)

    def text(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def step(self, label: str, text: str) -> None:
        """Print the line of a finished step."""
        self.console.print(
            f"[bold]{label:<{LABEL_WIDTH}}[/]{text}", highlight=False, soft_wrap=True
        )

    def detail(self, text: str) -> None:
        """Print a line that belongs to the step above."""
        self.console.print(f"{'':<{LABEL_WIDTH}}{text}", highlight=False, soft_wrap=True)

    @contextmanager
    def bar(
        self, label: str, total: int, *, start: int = 0, waiting: str = ""
    ) -> Iterator[Callable[[int], None]]:
        """A step with a count from `start` to `total`; yields a function that sets the count.

        Shows `waiting` until the count changes.
        """
        if not self.console.is_terminal:
            yield self._plain_bar(label, total, start=start, waiting=waiting)
            return
        columns = (
            TextColumn(f"[bold]{label:<{LABEL_WIDTH - 1}}[/]"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[count]:>17}"),
            TextColumn("{task.fields[note]}", style="dim"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(
                label, total=total, completed=start, count=_count(start, total), note=waiting
            )

            def show(count: int) -> None:
                progress.update(
                    task,
                    completed=count,
                    count=_count(count, total),
                    note="" if count > start else waiting,
                )

            yield show

    def _plain_bar(
        self, label: str, total: int, *, start: int, waiting: str
    ) -> Callable[[int], None]:
        self.step(label, f"{_count(start, total)}{f' ({waiting})' if waiting else ''}")
        last = start

        def show(count: int) -> None:
            nonlocal last
            if count - last >= total * _PLAIN_STEP or (count == total and last != total):
                last = count
                self.step(label, _count(count, total))

        return show


def _count(count: int, total: int) -> str:
    return f"{count:,} / {total:,}"
