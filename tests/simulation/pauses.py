"""Steps of an operator who pauses the application and ends the pause, and what holds meanwhile."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from state.store.pause import Pause
from tests.simulation.past import DAY_S, Past

if TYPE_CHECKING:
    from collections.abc import Callable

GO_ON = frozenset(
    {"put", "batch", "crash", "crash_at_write", "split", "merge", "update_shard_count"}
    | {"generations", "restart", "zombie", "stale_driver", "lose_session", "lose_answers"}
    | {"store_outage", "damage", "empty_pages", "iterators_expire", "time", "skew", "fault"}
    | {"available_now", "spout_turn", "retention", "new_location", "back_up_location"}
    | {"restore_location", "back_up_zookeeper", "pause_application", "resume_application"}
    | {"turn", "step", "emit", "answer", "answer_all", "pause", "deadly", "close"}
)
"""Steps that may come during a pause. The others wait for records, so they end it first."""


class Pauses(Past):
    def do_pause_application(self) -> None:
        with closing(self.world.look()) as store:
            store.pause.begin(Pause(by="an operator", since_ms=self.world.skewed.now_ms()))
        self.count("pauses")

    def do_resume_application(self) -> None:
        if self.world.is_paused:
            with closing(self.world.look()) as store:
                store.pause.end()
            self.count("pauses that ended")

    def newest_plan(self) -> str | None:
        """The newest plan's id and status, as stored."""
        (node,) = self.world.backend.read([self.world.paths.plan])
        return None if node is None else node.data.decode().partition('"status"')[0]

    def obeying(self, name: str, step: Callable[[], None]) -> None:
        """Take a step. No plan is made in it if the application is paused all the time."""
        if name not in GO_ON and self.world.is_paused:
            self.do_resume_application()
            self.note("after the pause")
        was_paused, before = self.world.is_paused, self.newest_plan()
        step()
        if was_paused and self.world.is_paused:
            self.count("steps during a pause")
            assert self.newest_plan() == before, "a plan was made during a pause"

    def do_long_pause(self) -> None:
        """A pause of days, in which the job, or the spout, goes on running."""
        self.world.clock.advance(10)
        self.world.note_shards()
        self.days_passed = True
        self.do_pause_application()
        for _ in range(self.random.choice((1, 3))):
            self.turn()
            self.world.clock.advance(DAY_S * self.random.choice((0.3, 0.6, 1.1)))
            self.turn()
        self.do_resume_application()
        self.count("pauses of days")

    def turn(self) -> None:
        """A turn of the consumer."""
        self.run_batch()
