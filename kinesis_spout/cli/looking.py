"""What `status`, `explain` and `ui` share: looks at an application over a window."""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace

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
        """A look over a window, for as long as `wait` blocks; over none without it, or where there
        is nothing to watch. `first`: a shard to ask before all others. Raises the errors of both
        services.
        """
        look = self.look(self.snapshot(), first=first)
        if wait is None or not look.now.is_known:
            return look
        wait()
        return self.look(self.snapshot(), look, first)

    def look(self, now: Snapshot, earlier: Look | None = None, first: str | None = None) -> Look:
        """The window since an earlier look; asks the shards whose tips decide, `first` before all
        others.
        """
        window = Look(before=now if earlier is None else earlier.now, now=now)
        wanted = worth_asking(window, self.max_asked)
        if first is not None and self.max_asked:
            wanted = [first, *(one for one in wanted if one != first)]
        return replace(
            window,
            tips=self._tips_of(now, wanted),
            tips_before={} if earlier is None else earlier.tips,
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
        self._seen: deque[Look] = deque()

    def look(self) -> Look:
        """The window of the first look is zero. Blocks, and raises the errors of both services, and
        `StreamMismatchError` for the state of another stream. An error changes nothing.
        """
        now, seen = self._looks.snapshot(), self._seen
        refuse_another_stream(now)
        while len(seen) > 1 and now.now_ms - seen[1].now.now_ms >= self._window_ms:
            seen.popleft()
        look = self._looks.look(now, seen[0] if seen else None)
        seen.append(look)
        return look


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
