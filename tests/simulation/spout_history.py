"""A random history of standalone spouts from its seed: drawn, played, and checked as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from kinesis_spout.drills.history.checks import StateView
from kinesis_spout.errors import DataLossError
from kinesis_spout.spout.config import DEFAULT_MAX_PENDING
from kinesis_spout.testing import ManualClock, error, internal_failure
from kinesis_spout.testing.faults.plan import drop
from state.retry_policy import RetryPolicy
from state.tracker.inflight_record_tracker import UNANSWERED
from tests.simulation.checks import Checks
from tests.simulation.history import count_world, telling
from tests.simulation.spout_process import Books, SpoutProcess, config_of, letter_id, record_id
from tests.simulation.state_steps import Pauses
from tests.simulation.stream_steps import StreamSteps
from tests.simulation.streams_history import SETTLES_S
from tests.simulation.world import STREAM, World
from tests.support.spout.spout_world import LOOPS

if TYPE_CHECKING:
    from collections import Counter

    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission
    from state.shard_state import ShardState

MOST_OPENINGS = 5
MOST_DEADLY = 2
OLD = 30  # emissions that are remembered for a late outcome


@dataclass
class SpoutJob:
    """The running processes, by task. `stop` ends them all; some of them are closed in order.

    `charged`: records that may have an attempt of a process that ended without their doing: it had
    announced them, and their outcomes were not stored yet.
    """

    options: dict[str, Any]
    processes: dict[int, SpoutProcess] = field(default_factory=dict)
    tracked: None = None
    orderly: bool = True
    charged: set[str] = field(default_factory=set)

    def stop(self) -> None:
        for process in list(self.processes.values()):
            self.end(process, orderly=self.orderly)

    def end(self, process: SpoutProcess, *, orderly: bool, innocent: bool = True) -> None:
        """End it, also while the store is out. `innocent`: by none of its records."""
        if innocent:
            self.charged |= process.touched
        if orderly:
            process.close()
        else:
            process.crash()
        del self.processes[process.config.task_index]


@dataclass
class SpoutSteps(Checks):
    """`delivered`: every record that was ever emitted. `stored_done`: records that no later opening
    may emit. `deadly`: records that end each process that gets them.
    """

    answered: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    stored_done: set[str] = field(default_factory=set)
    dead: list[Letter] = field(default_factory=list)
    rejected: set[str] = field(default_factory=set)
    deadly: set[str] = field(default_factory=set)
    refusals: float = 0.0
    zombies: list[SpoutProcess] = field(default_factory=list)

    @property
    def spouts(self) -> SpoutJob:
        job: Any = self.job
        assert isinstance(job, SpoutJob)
        return job

    def letters(self) -> set[str]:
        return {letter_id(letter) for letter in self.dead}

    # processes ------------------------------------------------------------------------------------
    def open_all(self) -> None:
        for task in range(self.spouts.options["total_tasks"]):
            if task not in self.spouts.processes:
                self._open_task(task)

    def _open_task(self, task: int) -> None:
        self.world.outage.left = 0
        for shard, state in self.world.states().items():
            self._check_unanswered(state)
            view = StateView(state)
            self.stored_done |= {
                f"{shard}:{n}"
                for n in self.world.records.get(shard, [])
                if view.is_resolved((n.sequence, n.sub))
            }
        for _ in range(MOST_OPENINGS):
            books = Books(self.done, self.answered)
            config = config_of(
                self.world, books, self._take_letter, task_index=task, **self.spouts.options
            )
            try:
                self.spouts.processes[task] = SpoutProcess(self.world, books, config)
            except DataLossError as error:
                self.go_on_after(error)
            else:
                self.count("openings")
                return
        raise AssertionError("the spout cannot be opened")

    def _check_unanswered(self, state: ShardState) -> None:
        """An attempt without an answer is that of the record which ended its process, or which was
        alone in flight when its process was ended.
        """
        live: set[str] = set()
        for process in self.spouts.processes.values():
            live |= process.touched
        for one in state.unresolved:
            name = f"{state.shard_id}:{one.first}"
            if one.reason == UNANSWERED:
                assert name in self.deadly | self.spouts.charged | live, (
                    f"{name} has lost an attempt to a crash that it did not cause"
                )
            if one.attempts and name not in live:
                self.answered.add(name)

    def _take_letter(self, letter: Letter) -> None:
        if self.random.random() < self.refusals:
            raise OSError("the dead letters are full")
        self.dead.append(letter)
        self.count("dead letters")

    def _any(self) -> SpoutProcess:
        self.open_all()
        return self.random.choice(list(self.spouts.processes.values()))

    def look_after(self, process: SpoutProcess) -> None:
        """Go on after a data loss; any other error that stopped the process is a failure."""
        self._hear_losses()
        error = process.error
        if isinstance(error, DataLossError):
            self.go_on_after(error)
        elif error is not None:
            raise AssertionError(
                f"the spout was stopped by {type(error).__name__}: {error}"
            ) from error

    def _hear_losses(self) -> None:
        said, self.world.warnings.said = self.world.warnings.said, []
        for sentence in said:
            if "records may be lost" in sentence and "DataLossError" not in sentence:
                assert self.days_passed, (
                    f"a loss was reported though nothing can have expired: {sentence}"
                )
                self.note_loss(sentence)
                self.count("losses that were reported")

    def step(self, process: SpoutProcess, name: str) -> None:
        reads, obeys = self.world.service.reads, process.spout.is_paused and self.world.is_paused
        can_look = self.world.outage.left == 0
        process.loops.take(name)
        if obeys:
            self.count("steps of paused spouts")
            assert self.world.service.reads == reads, f"the spout has read in a pause: {name}"
        self.look_after(process)
        if name == "coordinate" and can_look and self.world.is_paused and process.error is None:
            assert process.spout.is_paused or not process.spout.is_open, "a pause is overlooked"

    # steps of threads -----------------------------------------------------------------------------
    def do_step(self) -> None:
        process = self._any()
        name = self.random.choice(LOOPS)
        self.note(name)
        for _ in range(self.random.choice((1, 1, 3))):
            self.step(process, name)

    def do_turn(self) -> None:
        """One turn of all threads of a process, in any order, and of its consumer."""
        process = self._any()
        for name in self.random.sample(LOOPS, len(LOOPS)):
            self.step(process, name)
        self.emit(process, self.random.choice((1, 3, 10, 100)))

    def do_emit(self) -> None:
        self.emit(self._any(), self.random.choice((1, 3, 10, 100)))

    def emit(self, process: SpoutProcess, most: int) -> list[SpoutEmission]:
        came: list[SpoutEmission] = []
        while (
            len(came) < most
            and process.spout.is_open
            and process.error is None
            and (emission := self._obeying_emission(process)) is not None
        ):
            self._check_emission(emission)
            self.delivered.add(record_id(emission))
            self.count("emissions")
            if record_id(emission) in self.deadly:
                self.spouts.end(process, orderly=False, innocent=False)
                self.count("crashes by a record that ends its process")
                return []
            came.append(emission)
        return came

    @staticmethod
    def _obeying_emission(process: SpoutProcess) -> SpoutEmission | None:
        """The next record. In a pause it is the one that was announced, or none."""
        is_paused, announced = process.spout.is_paused, process.announced
        emission = process.emit()
        assert not is_paused or emission is None or record_id(emission) == announced, (
            f"{emission} came during a pause"
        )
        return emission

    def _check_emission(self, emission: SpoutEmission) -> None:
        name = record_id(emission)
        shard = emission.shard_id
        assert self.world.has(name), f"{name} was never put"
        assert name not in self.stored_done, f"{name} came again, though it is stored as resolved"
        if name in self.delivered or self.days_passed:
            return
        self.world.note_shards()
        for parent in self.world.parents[shard]:
            early = [
                n
                for n in self.world.records.get(parent, [])
                if f"{parent}:{n}" not in self.answered
            ]
            assert not early, (
                f"{name} came before {len(early)} records of its parent {parent} had an outcome: "
                f"{early[:3]}"
            )

    # the consumer ---------------------------------------------------------------------------------
    def do_answer(self) -> None:
        """Outcomes for pending emissions, and late ones for earlier emissions."""
        process = self._any()
        pending = list(process.books.pending.values())
        known = [*(pending * (OLD // max(1, len(pending)))), *pending, *process.books.handed[-OLD:]]
        if not known:
            return
        for _ in range(self.random.choice((1, 3, 10, 50))):
            self.answer(process, self.random.choice(known))

    def do_answer_all(self) -> None:
        process = self._any()
        for emission in list(process.books.pending.values()):
            self.answer(process, emission)

    def answer(self, process: SpoutProcess, emission: SpoutEmission) -> None:
        name = record_id(emission)
        if emission.shard_id in self.lost_in and not self.world.lists(emission.shard_id):
            if not emission.ack():  # the shard was given up with it
                process.books.pending.pop(name, None)
            return
        is_pending = process.books.pending.get(name) is emission
        may_be_acked = name not in process.books.resolved
        kind = self.random.choices(
            ("ack", "ack by id", "fail", "reject", "extend"), weights=(50, 10, 25, 3, 5)
        )[0]
        self.count(f"outcomes from consumers: {kind}{'' if is_pending else ', late'}")
        if kind == "extend":
            assert emission.extend(self.random.choice((None, 0.1, 100.0))) == is_pending
        elif kind in {"fail", "reject"}:
            self.rejected |= {name} if is_pending and kind == "reject" else set()
            assert emission.fail("no", retry=kind == "fail") == is_pending, (
                f"a failure of {emission}"
            )
        elif kind == "ack":
            assert emission.ack() == may_be_acked, f"an ack of {emission}"
        elif process.spout.ack(emission.message_id) and name not in process.books.resolved:
            process.books.acked(emission)  # it was not in memory, so no hook was called

    def do_pause(self) -> None:
        process = self._any()
        process.spout.deactivate()
        assert process.spout.next_tuple() is None
        self.do_answer()
        if process.spout.is_open:
            process.spout.activate()

    # ends -----------------------------------------------------------------------------------------
    def do_crash(self) -> None:
        process = self._any()
        self.zombies = [process]
        self.spouts.end(process, orderly=False)
        self.count("crashes")

    def do_deadly(self) -> None:
        """From now on, a record that has not been delivered ends each process that gets it."""
        waiting = sorted(self.world.ids() - self.resolved() - self.delivered)
        if waiting and len(self.deadly) < MOST_DEADLY:
            self.deadly.add(self.random.choice(waiting))
            self.count("records that end their process")

    def do_close(self) -> None:
        process = self._any()
        emissions = list(process.books.pending.values())
        self.spouts.end(process, orderly=True)
        self._hear_losses()
        assert not any(emission.ack() for emission in emissions[:3]), (
            "an ack counted after the spout was closed"
        )
        self.count("closings")

    def do_zombie(self) -> None:
        """A process whose session has lapsed commits before it notices, while another one has its
        place.
        """
        self.open_all()
        self._hear_losses()
        before = self.written()
        for zombie in self.zombies:
            zombie.books.done, zombie.books.answered = set(), set()
            for emission in list(zombie.books.pending.values()):
                emission.ack()
            for name in self.random.sample(("commit", "coordinate"), 2):
                loop = zombie.loops.by_name[name]
                loop.ended = False
                loop.take()
            self.world.warnings.said.clear()
            self.count("zombies")
        self.zombies = []
        assert self.written() == before, "a process that was overtaken has written"

    def do_break(self) -> None:
        """A subscription's connection breaks or falls silent, or the next ones are refused."""
        connections = self.world.service.connections
        refusals = ("ResourceInUseException", "ResourceNotFoundException", "LimitExceededException")
        if self.random.random() < 0.5:
            fault = self.random.choice((*map(error, refusals), internal_failure(), drop()))
            times = self.random.choice((1, 3))
            self.world.fake.faults.add(fault, operation="SubscribeToShard", times=times)
        elif connections:
            connection = self.random.choice(connections)
            self.random.choice((connection.cut, connection.silence))()
            self.count("subscriptions broken")

    def do_lose_session(self) -> None:
        self.world.backend.expire(self._any().tree.session_id())
        self.count("sessions that were lost")

    def do_store_outage(self) -> None:
        self.open_all()
        outage = self.world.outage
        outage.skipped, outage.left = self.random.choice((0, 1, 3)), self.random.choice((1, 2, 5))
        outage.lands = self.random.random() < 0.5
        self.count("outages of the store")


STEPS = 60
MOST_ROUNDS = 600
WEIGHTS: dict[str, int] = {
    "put": 20,
    "turn": 40,
    "step": 15,
    "emit": 10,
    "answer": 20,
    "answer_all": 10,
    "pause": 2,
    "crash": 5,
    "deadly": 2,
    "close": 4,
    "zombie": 3,
    "lose_session": 2,
    "lose_answers": 2,
    "store_outage": 2,
    "split": 5,
    "merge": 4,
    "update_shard_count": 2,
    "generations": 2,
    "empty_pages": 2,
    "iterators_expire": 1,
    "time": 6,
    "skew": 2,
    "fault": 6,
    "pause_application": 3,
    "resume_application": 5,
}
DAYS = {"retention": 3, "long_pause": 3}


class SpoutHistory(StreamSteps, SpoutSteps, Pauses):
    def turn(self) -> None:
        self.do_turn()

    def read_little(self) -> None:
        for _ in range(self.random.choice((2, 4))):
            self.do_turn()
            self.do_answer_all()

    def play(self, weights: dict[str, int]) -> None:
        for _ in range(STEPS):
            name = self.random.choices(list(weights), weights=list(weights.values()))[0]
            self.log.append(name)
            self.obeying(name, getattr(self, f"do_{name}"))
            self.check()
        self.log.append("finish")
        self.finish()
        self.check()
        self.check_end()

    def check(self) -> None:
        super().check()
        for process in self.spouts.processes.values():
            process.check()

    def finish(self) -> None:
        """Stop the faults and end a pause, then run until nothing is left to read and nothing
        waits.
        """
        self.world.fake.faults.clear()
        self.do_resume_application()
        self.world.outage.left = 0
        self.refusals = 0.0
        self.spouts.stop()
        self.spouts.options |= {
            "max_pending": DEFAULT_MAX_PENDING,
            "max_unresolved_per_shard": 1000,
            "prefetch_records": 1000,
        }
        self.world.clock.advance(SETTLES_S)
        self.world.note_shards()
        for _ in range(MOST_ROUNDS):
            self.open_all()
            came = 0
            for process in list(self.spouts.processes.values()):
                for name in LOOPS:
                    self.step(process, name)
                came += self.drain(process)
            if not came and not self.missing() and not self.stuck():
                break
            self.world.clock.advance(0.0 if came else 1.0)
        self.spouts.orderly = True
        self.spouts.stop()

    def drain(self, process: SpoutProcess) -> int:
        """Ack all that comes now, one record at a time if need be. Returns how many."""
        came = 0
        while True:
            emissions = self.emit(process, 10_000)
            for emission in emissions:
                assert emission.ack() == process.config.tracking
            came += len(emissions)
            if process not in self.spouts.processes.values():
                return came
            if process.waits_for_commit:
                self.step(process, "commit")
            elif not emissions:
                return came

    def check_end(self) -> None:
        self.check_all_was_read()
        alive = self.deadly - self.letters() - self.done
        assert not alive & self.world.kept(), f"records that end their process live on: {alive}"
        limit = self.spouts.options["retry"].retry_limit
        for letter in self.dead:
            name = letter_id(letter)
            if letter.reason == UNANSWERED:
                assert name in self.deadly | self.spouts.charged, f"{name} is innocent"
            if letter.data is None:
                assert self.days_passed, f"{name} is said to be gone"
            elif name not in self.rejected:
                assert letter.attempts == limit + 1, (
                    f"{name} was dead-lettered after {letter.attempts} attempts"
                )
            else:
                assert letter.attempts <= limit + 1


def drawn_options(random: Random) -> dict[str, Any]:
    """Options of a spout, drawn so that pages, limits and times are small or large."""
    return {
        "total_tasks": random.choice((1, 1, 2, 3)),
        "max_pending": random.choice((1, 5, 50, DEFAULT_MAX_PENDING)),
        "max_unresolved_per_shard": random.choice((1, 4, 1000)),
        "message_timeout_s": random.choice((None, 0.5, 5.0, 30.0)),
        "tracking": random.random() < 0.95,
        "retry": RetryPolicy(
            retry_limit=random.choice((0, 1, 3)),
            first_delay_ms=random.choice((0, 500, 5_000)),
            jitter=random.choice((0, 0.5)),
        ),
        "prefetch_records": random.choice((1, 10, 1000)),
        "prefetch_bytes": random.choice((30, 64 << 20, 64 << 20)),
        "idle_poll_s": random.choice((0.01, 0.25)),
        "shard_refresh_interval_s": random.choice((0.1, 0.1, 5.0)),
        "fetch_concurrency": random.choice((1, 8)),
    }


def drawn(seed: int) -> tuple[SpoutHistory, dict[str, int]]:
    """A history that has not begun, and the weight of each of its steps."""
    random = Random(seed)  # noqa: S311  # a history to repeat, not a secret
    world = World.drawn(random, STREAM, ManualClock())
    world.await_listing()
    world.aggregates = random.random() < 0.4
    pushed = {"read_mode": "efo", "consumer_name": "reader"} if seed % 2 else {}
    job: Any = SpoutJob(drawn_options(random) | pushed, orderly=random.random() < 0.5)
    history = SpoutHistory(world, random, job, refusals=random.choice((0.0, 0.2)))
    history.days_pass = random.random() < 0.25
    history.log.append(f"{'days pass, ' if history.days_pass else ''}{history.spouts.options}")
    if history.days_pass and random.random() < 0.5:
        history.log.append("backlog")
        history.begin_on_backlog()
    history.open_all()  # records put from here on arrive after the pin, even a late one
    world.clock.advance(10)
    history.read_some_of_backlog(history.read_little)
    weights = WEIGHTS | (DAYS if history.days_pass else {})
    return history, weights | ({"break": 2} if pushed else {})


def play_spout(seed: int) -> Counter[str]:
    """Play a history; returns the counts of its events. Raises `BrokenPromiseError`."""
    history, weights = drawn(seed)
    world = history.world
    with telling(seed, [history], history.log, world.warnings):
        history.play(weights)
    count_world(world, world.counts)
    return world.counts
