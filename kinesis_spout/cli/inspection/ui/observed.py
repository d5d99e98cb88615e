"""What the page shows, as `Observed`: one application, or all applications of a ZooKeeper."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kinesis_spout.cli.inspection.applications import look_at_all
from kinesis_spout.cli.inspection.explain import explained_json
from kinesis_spout.cli.inspection.looking import MovingWindow, looking
from kinesis_spout.cli.inspection.ui.watcher import Watcher
from kinesis_spout.inspection.explanation import Group, explain, grouped
from kinesis_spout.inspection.status import status_of
from kinesis_spout.page.page_json import needy, observation_json, sample_json, shard_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from kinesis_spout.cli.exit_codes import StopSignals
    from kinesis_spout.cli.inspection.ui.letter_folder import LetterFolder
    from kinesis_spout.cli.inspection.ui.watcher import Observed
    from kinesis_spout.cli.places import Place
    from kinesis_spout.clock import Clock
    from kinesis_spout.inspection.health import Look
    from kinesis_spout.inspection.status import ApplicationStatus

MAX_SAMPLES = 900  # half an hour at the faster pace
MAX_EXPLAINED, MAX_GROUPS = 300, 8  # shards that are explained, and groups of them that are shown


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for all that is observed. `commands`: those that advice may name."""

    window_s: float
    max_asked: int
    commands: Collection[str]
    clock: Clock

    def watcher(self, observed: Observed) -> Watcher:
        return Watcher(observed, slow_s=self.window_s, clock=self.clock)


@dataclass(slots=True)
class ObservedApplication:
    """One application, over a window that moves along."""

    place: Place
    settings: Settings
    letters: LetterFolder | None = None
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _window: MovingWindow | None = field(default=None, init=False)
    _look: Look | None = field(default=None, init=False)
    _samples: deque[dict[str, Any]] = field(
        default_factory=lambda: deque(maxlen=MAX_SAMPLES), init=False
    )

    def open(self) -> None:
        self._stack.close()
        looks = self._stack.enter_context(looking(self.place, max_asked=self.settings.max_asked))
        self._window = MovingWindow(looks, self.settings.window_s)
        self._window.begin()

    def observe(self) -> dict[str, Any]:
        if self._window is None:
            raise RuntimeError("nothing is open; call open first")
        look = self._window.look()
        self._samples.append(sample_json(look, None if self._look is None else self._look.now))
        self._look = look
        return self.json_of(status_of(look))

    def json_of(self, status: ApplicationStatus) -> dict[str, Any]:
        """The page's JSON of an observation."""
        look, shards = status.look, needy(status)
        groups = grouped(look, shards[:MAX_EXPLAINED])[:MAX_GROUPS] if shards else []
        return {
            **observation_json(status, [self._explained(look, one) for one in groups]),
            "letters": None if self.letters is None else self.letters.read(),
            "samples": list(self._samples),
        }

    def shard(self, shard_id: str) -> dict[str, Any] | None:
        look = self._look
        if look is None or shard_id not in look.now.known_shards:
            return None
        group = Group(explain(look, shard_id), (shard_id,))
        return shard_json(look, shard_id, self._explained(look, group))

    def close(self) -> None:
        self._stack.close()

    def _explained(self, look: Look, group: Group) -> dict[str, Any]:
        return explained_json(look, group, self.settings.commands, self.place)


@dataclass(slots=True)
class ObservedApplications:
    """All applications under the root, as `status` lists them without `--application`.
    `is_at_once`: the next observation is of one look each, so that it does not take a window.
    """

    place: Place
    settings: Settings
    signals: StopSignals
    is_at_once: bool = True
    streams: dict[tuple[str, str], str] = field(default_factory=dict, init=False)
    """By application and stream, the stream's ARN, which tells its region too."""

    def open(self) -> None:
        """Opens nothing: each application has connections of its own while it is observed."""

    def observe(self) -> dict[str, Any]:
        lines = look_at_all(
            self.place,
            self.signals,
            0.0 if self.is_at_once else self.settings.window_s,
            max_asked=self.settings.max_asked,
            is_silent=True,
        )
        self.is_at_once = False
        self.streams = {
            (one.application, one.stream): one.stream
            if one.status is None
            else one.status.look.now.stream.arn
            for one in lines
        }
        return {
            "kind": "applications",
            "timeMs": self.settings.clock.now_ms(),
            "applications": [one.as_json() for one in lines],
        }

    def shard(self, shard_id: str) -> None:
        """The list has no shards."""

    def close(self) -> None:
        """Nothing is open."""
