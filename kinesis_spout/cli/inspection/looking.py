"""What `status`, `explain` and `ui` share: looks at an application over a window."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.shared_options import errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import duration
from kinesis_spout.inspection.health import Look, worth_asking
from kinesis_spout.inspection.reader import TipReader, read_snapshot
from kinesis_spout.inspection.status import status_of
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import Console, RenderableType

    from kinesis_spout.cli.exit_codes import StopSignals
    from kinesis_spout.cli.places import Place
    from kinesis_spout.clock import Clock
    from kinesis_spout.inspection.health import TipAnswer
    from kinesis_spout.inspection.snapshot import Snapshot
    from kinesis_spout.inspection.status import ApplicationStatus
    from kinesis_spout.service.client import KinesisClient
    from state.znodes.topics import StoreTopics

DEFAULT_WINDOW = "10s"
REFRESH_S = 2.0  # a shard is asked once in it, of the five reads a second that it allows
DEFAULT_ASKED = 100
Window = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help=(
            "How long to watch before the verdict, e.g. 30s or 5m. 0s gives a verdict at once, "
            "without knowing whether positions move."
        ),
    ),
]
Ask = Annotated[
    int,
    typer.Option(
        metavar="SHARDS",
        min=0,
        help=(
            "How many shards to ask for their tips; those whose position does not move come "
            "first. Each question takes one of a shard's 5 reads per second."
        ),
    ),
]


@dataclass(slots=True)
class Looking:
    """Looks at one application. `max_asked`: how many shards are asked for their tips in a look."""

    client: KinesisClient
    store: StoreTopics
    tips: TipReader
    clock: Clock
    application: str
    max_asked: int
    _began: tuple[Snapshot, Mapping[str, TipAnswer]] | None = field(default=None, init=False)

    def begin(self, before: Snapshot, *, first: str | None = None) -> None:
        """Ask the shards that are not known to be at their tips, so that `look` can tell how fast
        they are read.
        """
        alone = Look(before=before, now=before)
        wanted = [
            one
            for one in worth_asking(alone, len(before.shard_ids))
            if one != first and not before.states[one].at_tip
        ]
        shards = [*([] if first is None else [first]), *wanted][: self.max_asked]
        self._began = before, self._tips_of(before, shards)

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
        tips = self._tips_of(now, wanted)
        began = self._began
        return Look(
            before=before,
            now=now,
            tips=tips,
            tips_before=began[1] if began is not None and began[0] is before else {},
            throttled=self.tips.throttled,
            unanswered=self.tips.unanswered,
            refusal=self.tips.refused,
        )

    def _tips_of(self, seen: Snapshot, shards: Iterable[str]) -> dict[str, TipAnswer]:
        return self.tips.ask(
            (shard, position)
            for shard in shards
            if (position := seen.position(shard)) is not None and not position.is_end
        )


class MovingWindow:
    """Looks at an application again and again, over a window that moves along. For one thread."""

    def __init__(self, looks: Looking, window_s: float) -> None:
        self._looks = looks
        self._window_ms = window_s * 1000
        self._seen: deque[Snapshot] = deque()

    def begin(self) -> None:
        """Take the first snapshot, and ask no shard. Blocks and raises as `look` does."""
        self._add()

    def look(self) -> Look:
        """One snapshot, the oldest in the window before it, and the tips that decide. Blocks, and
        raises the errors of both services, and `CliError` for the state of an earlier stream of
        that name. An error changes nothing.
        """
        now = self._add()
        return self._looks.look(self._seen[0], now)

    def _add(self) -> Snapshot:
        now, seen = self._looks.snapshot(), self._seen
        refuse_another_stream(now)
        seen.append(now)
        while len(seen) > 2 and now.now_ms - seen[1].now_ms >= self._window_ms:
            seen.popleft()
        return now


def refuse_another_stream(seen: Snapshot) -> None:
    """Raise `CliError` when the state belongs to an earlier stream of that name."""
    known = seen.stored.identity
    if known is not None and seen.is_of_another_stream:
        raise CliError(
            f"the application's state belongs to another stream: {known.arn}, created at "
            f"{Position.at_timestamp(known.created_ms)}",
            "use another application name, or remove that state with kinesis-spout reset",
        )


@contextmanager
def looking(place: Place, *, max_asked: int, clock: Clock | None = None) -> Iterator[Looking]:
    """Open the connections, and close them at the end. Raises `CliError` for an embedded ZooKeeper
    that never ran.
    """
    clock = clock or SystemClock()
    with ExitStack() as stack:
        client, store = place.client(stack), place.store(stack)
        yield Looking(client, store, TipReader(client, clock), clock, place.application, max_asked)


def two_snapshots(
    looks: Looking,
    signals: StopSignals,
    window_s: float,
    *,
    first: str | None = None,
    is_silent: bool = False,
) -> tuple[Snapshot, Snapshot]:
    """Snapshots at the beginning and at the end of the window; the same one twice where there is no
    window, or nothing to watch. Says on a terminal that it waits, unless it `is_silent`. `first`: a
    shard to ask before all others.
    """
    before = looks.snapshot()
    if not window_s or not before.is_known:
        return before, before
    looks.begin(before, first=first)
    if not is_silent:
        say_watching(window_s)
    signals.wait(window_s)
    return before, looks.snapshot()


def say_watching(window_s: float) -> None:
    """On a terminal only."""
    if errors().is_terminal:
        errors().print(f"watching for {duration(window_s * 1000)} ...", style="dim")


def look_once(
    looks: Looking, signals: StopSignals, window_s: float, *, is_silent: bool = False
) -> ApplicationStatus:
    """Two snapshots with the window between them, and the shards' tips. Blocks for the window.
    Raises the errors of both services, and `CliError` for the state of an earlier stream.
    """
    before, now = two_snapshots(looks, signals, window_s, is_silent=is_silent)
    refuse_another_stream(now)
    return status_of(looks.look(before, now))


def show(console: Console, shown: RenderableType) -> None:
    """Print it on a terminal as it is, and into a file without spaces at the ends of lines."""
    if console.is_terminal:
        console.print(shown, highlight=False, emoji=False)
        return
    with console.capture() as captured:
        console.print(shown, highlight=False, emoji=False)
    for line in captured.get().splitlines():
        typer.echo(line.rstrip())
