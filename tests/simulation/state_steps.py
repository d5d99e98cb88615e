"""Steps on the state: outages of its store, damage, a recreated stream, restored backups, and nodes
that are gone while Spark's checkpoint location survives: all of the application's, or some. And
steps of an operator: pauses, what holds meanwhile, and going back to an earlier time.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

from kinesis_spout.application.history_recorder import INTERVAL_S
from kinesis_spout.checkpoints import located
from kinesis_spout.checkpoints.application_moves import find_rewind, write_moves
from kinesis_spout.checkpoints.moves import MoveRefusedError, RequestedPosition
from kinesis_spout.checkpoints.recorded_move import service_time
from kinesis_spout.errors import KinesisError
from spark_job.driver.query_driver import read_offset
from state.errors import StoredDataError, StoreUnavailableError, StreamMismatchError
from state.position import TRIM_HORIZON, Position
from state.process import this_process
from state.store.identity import Pause
from tests.simulation.in_process import InlinePool, InProcessClient
from tests.simulation.past import DAY_S, Past
from tests.simulation.world import base_settings
from tests.support.simulated.micro_batch_engine import Crash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from state.znodes.topics import StoreTopics
    from state.znodes.tree import Znode

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
        """A pause of days, in which the job, or the spout, continues to run."""
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


MOST_WRITES = 6
MOST_COUNTED = 20


class Rewinds(Past):
    def remember(self) -> None:
        """What is resolved now. An operator may want to go back to this time."""
        now_ms = self.world.clock.now_ms()
        if self.moments and self.moments[-1][0] == now_ms:
            self.moments.pop()  # what came later in the same millisecond was so by then, too
        self.moments.append((now_ms, self.resolved()))

    def do_rewind(self) -> None:
        """All that was not resolved at the time must be resolved once more. A command that dies is
        given again.
        """
        if self.random.random() < 0.5:
            self._go_on_for_a_while()
        if not self.moments:
            return
        self.job.stop()
        wanted_ms, resolved = self.random.choice(self.moments)
        self.note(f"to {wanted_ms}")
        died = False
        if self.random.random() < 0.3:
            writes, after = self.random.randrange(MOST_WRITES), self.random.random() < 0.5
            died = self._rewind(wanted_ms, self.world.dying_store(writes, after=after)) is None
            self.note(f"dies at {writes}" if died else "does not die")
        if self._rewind(wanted_ms, self.world.store()) or died:
            self.thrown_away = True
            self.checkpoints, self.seen = {}, {}
        if self._is_there:
            self.complete_ms = None
            self.done = set(resolved)
            self._begin_again()
            self.count("rewinds")

    def _begin_again(self) -> None:
        """A shard that goes back to its oldest record starts with what is there when it is read
        first, as at the application's start (`checkpoints.moves`).
        """
        self.begun_ms = self.world.clock.now_ms()
        for shard, state in self.world.states().items():
            if state.read_position == TRIM_HORIZON:
                self.touched_ms.pop(shard, None)
            else:
                self.touched_ms.setdefault(shard, 0)

    def _go_on_for_a_while(self) -> None:
        """So long that the history has a time to go back to, and that something comes after it."""
        for _ in range(3):
            self.world.put(self.random.choice((1, 3)))
            self.run_batch()
            self.world.clock.advance(INTERVAL_S)
            self.remember()
        self.run_batch()
        self.note_touched()

    def _rewind(self, wanted_ms: int, store: StoreTopics) -> bool | None:
        """Whether the application was moved. None: the command died, which may be in the midst."""
        self._is_there = False
        world = self.world
        begun_at_fault = len(world.fake.faults.struck)
        client = InProcessClient(world.service, world.settings, world.skewed, self.random)
        wanted = RequestedPosition.parse(str(Position.at_timestamp(wanted_ms)))
        with (
            closing(store),
            # The calls of a history come one after the other, so that its seed repeats it.
            patch.object(located, "DaemonPool", InlinePool),
        ):
            try:
                store.ownership.acquire(this_process(0), timeout_s=0)
                found = find_rewind(
                    client, store, wanted, clock=world.skewed, max_counted=MOST_COUNTED
                )
                if self.was_misled(begun_at_fault):  # the operator reads of a shard that is gone
                    self.note("misled")
                    return False
                write_moves(store, found, service_time(client, world.skewed))
            except Crash:
                return None
            except (KinesisError, MoveRefusedError, StoredDataError) as error:
                self.note(f"refused: {type(error).__name__} {str(error)[:90]}")
                self.count("rewinds that were refused")
                return False
        # The command says so, and a job has no reason to say it again.
        expired = {move.after.shard_id for move in found.moves if move.lost_until_ms is not None}
        self.lost_in |= dict.fromkeys(expired | found.lost.keys(), self.world.clock.now_ms())
        self._is_there = True
        return True


MOST_CALLS = 40
MOST_TRIES = 8
MOST_RESTARTS = 6
RECREATED = "recreated streams whose old state was refused"


class StateSteps(Past):
    def do_store_outage(self) -> None:
        """The store stops answering in the middle of a step; its last write is done or not. The
        query ends.
        """
        outage = self.world.outage
        outage.skipped, outage.left = (
            self.random.randrange(MOST_CALLS),
            self.random.choice((1, 1, 3, 20)),
        )
        outage.lands = self.random.random() < 0.5
        self.note((outage.skipped, outage.left, outage.lands))
        try:
            for _ in range(4):
                self.note(self.run_batch())
        finally:
            outage.left = 0

    def do_damage(self) -> None:
        """A shard's state cannot be read for a while: the query stops, and nobody overwrites the
        state.
        """
        states = self.world.states()
        if not states:
            return
        self.job.stop()
        path = self.world.paths.shard_state(self.random.choice(sorted(states)))
        (before,) = self.world.backend.read([path])
        assert before is not None
        damaged = replace(
            before, data=self.random.choice((b"", b"{", before.data[:-2], b'{"format": 99}'))
        )
        self.world.backend.restore({path: damaged})
        try:
            while isinstance(self.query.run_of(self.job, None), str):
                pass  # another stream's error came first
        except StoredDataError:
            self.count("damaged states that were refused")
        else:
            raise AssertionError("a query has gone on without a state that cannot be read")
        finally:
            assert self.world.backend.read([path]) == [damaged], (
                "a state that cannot be read was written over"
            )
            self.world.backend.restore({path: before})
            self.job.stop()

    def do_recreate(self) -> None:
        """The stream is deleted and created again. The old state is refused until it is reset,
        whether the job runs or not.
        """
        if self.world.look().identity.read() is None:
            return  # nothing was read yet
        if self.random.random() < 0.5:
            self.job.stop()
        self.note("while the job runs" if self.query.reader else "while the job is down")
        self.world.recreate()
        self.world.put(3)
        refused = 0
        for _ in range(MOST_TRIES):
            try:
                self.query.run_of(self.job, None)
            except StreamMismatchError:
                refused += 1
            except (KinesisError, StoreUnavailableError) as error:
                self.note(f"ended by {type(error).__name__}")
            else:
                continue
            self.job.stop()
        assert refused >= 2, (
            "the state of a stream that was deleted is taken for that of its successor"
        )
        self.count(RECREATED)
        self._start_over()

    def _start_over(self) -> None:
        """The user resets the application and starts at the oldest record, with the old checkpoint
        location or a new one.
        """
        store = self.world.store()
        store.identity.reset(this_process(0), timeout_s=0)
        store.close()
        if self.random.random() < 0.5:
            self.query.forget_checkpoint_location()
        self.world.change(starting_position=base_settings().starting_position)
        self.job.start_over()
        self.start_over()
        if self.failing is not None:
            self.failing.start_over()
        self.job.coordinator.open()

    # backups --------------------------------------------------------------------------------------
    def do_back_up_zookeeper(self) -> None:
        self.backup: dict[str, Znode] | None = self.world.znodes()
        self.done_by_backup = set(self.done)

    def do_restore_zookeeper(self) -> None:
        if (
            self.backup and self.world.paths.start in self.backup
        ):  # else there is only a pause in it
            self.job.stop()
            self.world.restore(self.backup)
            self.done |= self.done_by_backup  # a rewind after the backup is undone
            # A server refuses a session that has seen a later transaction than its own last one. So
            # a task of before can publish nothing into the plans of the backup.
            self.job.kept.clear()
            self.thrown_away = True
            self.complete_ms = None
            self.checkpoints = {}
            self.seen = {}
            self.count("old ZooKeepers restored")

    # losses ---------------------------------------------------------------------------------------
    def is_known_to_spark(self) -> bool:
        """Whether the newest offset in Spark's log names a plan of the stream."""
        plans = read_offset(self.query.offsets[-1]) if self.query.offsets else {}
        if "" in plans:
            # Only ZooKeeper says of which stream it is. Without that, a query of several streams
            # needs a new location.
            return len(self.query.active) == 1
        return self.world.settings.state_name in plans

    def do_lose_zookeeper(self) -> None:
        """The store is empty when the job is back. Spark's log names a plan, so records may be
        lost: the user decides whether to go on, and then everything is read again.
        """
        if not self.query.offsets or (self.starts_at_latest and not self.is_known_to_spark()):
            return  # as for a new application: nothing says that there was a start
        self.job.stop()
        self._remove(self.world.backend.nodes(self.world.paths.base))
        self.count("stores that were lost")
        self._go_on_without_start()

    def do_lose_start(self) -> None:
        """Somebody removes the pinned start. Where it was LATEST and a shard has no state yet, the
        new start is a later one, and nobody wants what was put before it.
        """
        if not self.query.offsets or self.world.paths.start not in self.world.znodes():
            return
        known = self.world.states()
        shards = self.world.fake.shards(self.world.stream)
        if self.starts_at_latest and any(shard.shard_id not in known for shard in shards):
            return
        self._remove([self.world.paths.start])
        self.count("starts that were removed")
        self._go_on_without_start()

    def do_lose_plans(self) -> None:
        """The states are moved to another ZooKeeper without the plans; Spark's log may be lost as
        well.
        """
        self._remove(
            path
            for path in self.world.znodes()
            if path == self.world.paths.plan or path.startswith(self.world.paths.batches)
        )
        if self.random.random() < 0.5:
            self.query.forget_checkpoint_location()
            self.note("with Spark's log")
        self.count("states that were moved without their plans")

    def do_lose_nodes(self) -> None:
        """Somebody removes `/plan`, a shard's state, or a batch, a task, an end or a report of
        it.
        """
        there = self.world.znodes()
        folders = sorted(
            path
            for path in there
            if path == self.world.paths.plan
            or path.endswith(("/state", "/end", "/report"))
            or self._kind(path) in {"batch", "task"}
        )
        if not folders:
            return
        kind = self.random.choice(sorted({self._kind(path) for path in folders}))
        lost = self.random.choice([path for path in folders if self._kind(path) == kind])
        self.note(lost.removeprefix(self.world.paths.base))
        self._remove(path for path in there if path == lost or path.startswith(f"{lost}/"))
        self.count(f"nodes that were removed: {kind}")

    def _remove(self, paths: Iterable[str]) -> None:
        self.job.stop()
        self.world.backend.remove(list(paths))
        self.thrown_away = True
        self.complete_ms = None
        self.checkpoints, self.seen = {}, {}

    def _go_on_without_start(self) -> None:
        self.world.fake.faults.clear()
        self.world.foreign |= self.world.forgotten  # the new start may be the oldest record
        self.loss_is_possible = True
        ended = 0
        try:
            for _ in range(MOST_RESTARTS):
                ran = self.run_batch()
                self.note(ran)
                ended += ran == "ended by a loss"
        finally:
            self.loss_is_possible = False
        assert ended <= 1, "the query ends with a data loss, though failOnDataLoss is false"

    def _kind(self, path: str) -> str:
        folder, _, name = path.rpartition("/")
        batches = self.world.paths.batches
        if name.isdigit() and folder.startswith(f"{batches}/"):
            return "task"
        return "batch" if folder == batches else name
