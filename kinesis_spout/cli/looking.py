"""What `status`, `explain` and `ui` share: looks at an application over a window."""

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType

from kinesis_spout.cli.exit_codes import CliError, StopSignals
from kinesis_spout.cli.places import Place
from kinesis_spout.cli.shared_options import errors
from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import duration
from kinesis_spout.inspection.health import Look, TipAnswer, worth_asking
from kinesis_spout.inspection.reader import TipReader, read_snapshot
from kinesis_spout.inspection.snapshot import Snapshot
from kinesis_spout.inspection.status import ApplicationStatus, status_of
from kinesis_spout.service.client import KinesisClient
from state.position import Position
from state.znodes.topics import StoreTopics

REFRESH_S = 2.0  # a shard is asked once in it, of the five reads a second that it allows


@dataclass(slots=True)
class Looking:
    """Looks at one application. `max_asked`: how many shards are asked for their tips in a look."""

    client: KinesisClient
    store: StoreTopics
    tips: TipReader
    clock: Clock
    application: str
    max_asked: int

    def snapshot(self) -> Snapshot:
        return read_snapshot(
            self.client, self.store, application=self.application, clock=self.clock
        )

    def watch(
        self,
        signals: StopSignals,
        window_s: float,
        first: str | None = None,
        *,
        is_silent: bool = False,
    ) -> Look:
        """A look with the window between its snapshots; both are the same one where there is no
        window, or nothing to watch. Blocks for the window, and says so on a terminal unless it
        `is_silent`. `first`: a shard to ask before all others. Raises the errors of both services.
        """
        before = self.snapshot()
        if not window_s or not before.is_known:
            return self.look(before, before, first)
        # Those that are not known to be at their tips, so that the look tells how fast they are
        # read.
        every = worth_asking(Look(before=before, now=before), len(before.shard_ids))
        wanted = [one for one in every if one != first and not before.states[one].at_tip]
        shards = ([] if first is None else [first]) + wanted
        tips_before = self._tips_of(before, shards[: self.max_asked])
        if not is_silent:
            say_watching(window_s)
        signals.wait(window_s)
        return self.look(before, self.snapshot(), first, tips_before)

    def look(
        self,
        before: Snapshot,
        now: Snapshot,
        first: str | None = None,
        tips_before: Mapping[str, TipAnswer] = MappingProxyType({}),
    ) -> Look:
        """Ask the shards whose tips decide, `first` before all others."""
        wanted = worth_asking(Look(before=before, now=now), self.max_asked)
        if first is not None and self.max_asked:
            wanted = [first, *wanted]
        return Look(
            before=before,
            now=now,
            tips=self._tips_of(now, wanted),
            tips_before=tips_before,
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

    def begin(self) -> Snapshot:
        """Take a snapshot, and ask no shard. Blocks and raises as `look` does."""
        now, seen = self._looks.snapshot(), self._seen
        refuse_another_stream(now)
        seen.append(now)
        while len(seen) > 2 and now.now_ms - seen[1].now_ms >= self._window_ms:
            seen.popleft()
        return now

    def look(self) -> Look:
        """One snapshot, the oldest in the window before it, and the tips that decide. Blocks, and
        raises the errors of both services, and `CliError` for the state of another stream. An error
        changes nothing.
        """
        now = self.begin()
        return self._looks.look(self._seen[0], now)


def refuse_another_stream(seen: Snapshot) -> None:
    """Raise `CliError` when the state belongs to another stream."""
    known, stream = seen.stored.identity, seen.stream.identity
    if known is None or not seen.is_of_another_stream:
        return
    then, now = map(Position.at_timestamp, (known.created_ms, stream.created_ms))
    which = f"another stream, {known.arn}, not to {stream.arn}"
    if known.arn == stream.arn:
        created = f"was created at {then}, and the current stream at {now}"
        which = f"an earlier stream of this name: {known.arn} {created}"
    raise CliError(
        f"the application's state belongs to {which}",
        "use another application name; or remove that state with kinesis-spout reset, and start "
        "the job from TRIM_HORIZON: from LATEST, the job skips the records that the current "
        "stream already contains",
    )


def looking(place: Place, stack: ExitStack, *, max_asked: int) -> Looking:
    """Open the connections, which the stack closes. Raises `CliError` for an embedded ZooKeeper
    that never ran.
    """
    client, store, clock = place.client(stack), place.store(stack), SystemClock()
    return Looking(client, store, TipReader(client, clock), clock, place.application, max_asked)


def say_watching(window_s: float) -> None:
    """On a terminal only."""
    if errors().is_terminal:
        errors().print(f"watching for {duration(window_s * 1000)} ...", style="dim")


def look_once(
    looks: Looking, signals: StopSignals, window_s: float, *, is_silent: bool = False
) -> ApplicationStatus:
    """The status over a window. Blocks and raises as `watch`, and raises `CliError` for the state
    of another stream.
    """
    look = looks.watch(signals, window_s, is_silent=is_silent)
    refuse_another_stream(look.now)
    return status_of(look)
