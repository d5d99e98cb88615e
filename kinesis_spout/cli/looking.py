"""What `status`, `explain` and `ui` share: looks at an application over a window."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType

from kinesis_spout.cli.places import Place
from kinesis_spout.clock import SystemClock
from kinesis_spout.inspection.health import Look, TipAnswer, worth_asking
from kinesis_spout.inspection.reader import TipReader, read_snapshot
from kinesis_spout.inspection.snapshot import Snapshot
from kinesis_spout.inspection.status import ApplicationStatus, status_of
from state.store.identity import mismatch
from state.znodes.topics import StoreTopics

REFRESH_S = 2.0  # a shard is asked once in it, of the five reads a second that it allows


@dataclass(frozen=True, slots=True)
class Looking:
    """Looks at one application. `max_asked`: how many shards are asked for their tips in a look."""

    tips: TipReader
    store: StoreTopics
    application: str
    max_asked: int

    def snapshot(self) -> Snapshot:
        tips = self.tips
        return read_snapshot(
            tips.client, self.store, application=self.application, clock=tips.clock
        )

    def watch(self, wait: Callable[[], object] | None, first: str | None = None) -> Look:
        """A look with a window between its snapshots, for as long as `wait` blocks; both are the
        same one without it, or where there is nothing to watch. `first`: a shard to ask before all
        others. Raises the errors of both services.
        """
        before = self.snapshot()
        if wait is None or not before.is_known:
            return self.look(before, before, first)
        # Those that are not known to be at their tips, so that the look tells how fast they are
        # read.
        every = worth_asking(Look(before=before, now=before), len(before.shard_ids))
        wanted = [one for one in every if one != first and not before.states[one].at_tip]
        shards = ([] if first is None else [first]) + wanted
        tips_before = self._tips_of(before, shards[: self.max_asked])
        wait()
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

    def look(self) -> Look:
        """One snapshot, the oldest in the window before it, and the tips that decide; the window of
        the first look is zero. Blocks, and raises the errors of both services, and
        `StreamMismatchError` for the state of another stream. An error changes nothing.
        """
        now, seen = self._looks.snapshot(), self._seen
        refuse_another_stream(now)
        seen.append(now)
        while len(seen) > 2 and now.now_ms - seen[1].now_ms >= self._window_ms:
            seen.popleft()
        return self._looks.look(seen[0], now)


def refuse_another_stream(seen: Snapshot) -> None:
    """Raise `StreamMismatchError` when the state belongs to another stream."""
    known = seen.stored.identity
    if known is not None and seen.is_of_another_stream:
        raise mismatch(known, seen.stream.identity, seen.application, "kinesis-spout reset")


def looking(place: Place, stack: ExitStack, *, max_asked: int) -> Looking:
    """Open the connections, which the stack closes. Raises `CliError` for an embedded ZooKeeper
    that never ran.
    """
    tips = TipReader(place.client(stack), SystemClock())
    return Looking(tips, place.store(stack), place.application, max_asked)


def look_once(looks: Looking, wait: Callable[[], object] | None) -> ApplicationStatus:
    """The status over a window. Blocks and raises as `watch`, and raises `StreamMismatchError`
    for the state of another stream.
    """
    look = looks.watch(wait)
    refuse_another_stream(look.now)
    return status_of(look)
