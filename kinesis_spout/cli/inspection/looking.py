"""What `status` and `explain` share: their options, and looks at an application over a window."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from kinesis_spout.cli.places import check_has_run, open_client, open_store
from kinesis_spout.cli.shared_options import errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.inspection.health import Look, worth_asking
from kinesis_spout.inspection.reader import TipReader, read_snapshot
from kinesis_spout.inspection.wording import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, RenderableType

    from kinesis_spout.cli.exit_codes import StopSignals
    from kinesis_spout.clock import Clock
    from kinesis_spout.inspection.snapshot import Snapshot
    from kinesis_spout.service.client import KinesisClient
    from state.znodes.store import ZnodeStateStore

DEFAULT_WINDOW = "10s"
DEFAULT_ASKED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the application is, as the options say it."""

    application: str
    stream: str
    zookeeper: str
    zookeeper_root: str
    region: str | None
    endpoint_url: str | None
    option: Sequence[str]


@dataclass(slots=True)
class Looking:
    """Looks at one application. `max_asked`: how many shards are asked for their tips in a look."""

    client: KinesisClient
    store: ZnodeStateStore
    tips: TipReader
    clock: Clock
    application: str
    max_asked: int

    def snapshot(self) -> Snapshot:
        return read_snapshot(
            self.client, self.store, application=self.application, clock=self.clock
        )

    def look(self, before: Snapshot, now: Snapshot, *, first: str | None = None) -> Look:
        """Ask the shards whose tips decide, `first` before all others."""
        unasked = Look(before=before, now=now)
        wanted = worth_asking(unasked, self.max_asked)
        if first is not None and self.max_asked:
            wanted = [first, *wanted]
        positions = {
            shard: progress.position
            for shard in wanted
            if (progress := now.progress(shard)) is not None and not progress.position.is_end
        }
        return Look(before=before, now=now, tips=self.tips.ask(positions.items()))


@contextmanager
def looking(place: Place, *, max_asked: int, clock: Clock | None = None) -> Iterator[Looking]:
    """Open the connections, and close them at the end. Raises `CliError` for an embedded ZooKeeper
    that never ran.
    """
    clock = clock or SystemClock()
    with ExitStack() as stack:
        client = open_client(
            stack,
            place.stream,
            region=place.region,
            endpoint_url=place.endpoint_url,
            option=place.option,
        )
        check_has_run(place.zookeeper)
        store = open_store(
            stack,
            place.zookeeper,
            root=place.zookeeper_root,
            application=place.application,
            stream=place.stream,
        )
        yield Looking(client, store, TipReader(client, clock), clock, place.application, max_asked)


def two_snapshots(
    looks: Looking, signals: StopSignals, window_s: float
) -> tuple[Snapshot, Snapshot]:
    """Snapshots at the beginning and at the end of the window; the same one twice where there is no
    window, or nothing to watch. Says on a terminal that it waits.
    """
    before = looks.snapshot()
    if not window_s or not before.is_known:
        return before, before
    if errors().is_terminal:
        errors().print(f"watching for {duration(window_s * 1000)} ...", style="dim")
    signals.wait(window_s)
    return before, looks.snapshot()


def show(console: Console, shown: RenderableType) -> None:
    """Print it on a terminal as it is, and into a file without spaces at the ends of lines."""
    if console.is_terminal:
        console.print(shown, highlight=False, emoji=False)
        return
    with console.capture() as captured:
        console.print(shown, highlight=False, emoji=False)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())
