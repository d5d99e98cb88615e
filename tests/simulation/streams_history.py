"""A random history of a query of one stream or several: each stream has faults, books and checks of
its own.
"""

from __future__ import annotations

import copy
import logging
import re
from typing import TYPE_CHECKING

from kinesis_spout.errors import ConfigError, DataLossError, KinesisError, ThrottledError
from kinesis_spout.testing import internal_failure, throttle
from spark_job.driver.backlog import PROBE_MAX_SHARDS
from spark_job.driver.query_driver import GIVEN_UP_S
from tests.simulation.checks import Checks
from tests.simulation.past import DAY_S
from tests.simulation.query_steps import Turns
from tests.simulation.state_steps import RECREATED, Pauses, Rewinds, StateSteps
from tests.simulation.stream_steps import Stories

if TYPE_CHECKING:
    from random import Random

    from state.znodes.tree import Znode
    from tests.simulation.job import StreamJob
    from tests.simulation.query import StreamsQuery

STEPS = 30
HOUR_S = 3_600.0
INTERVALS_S = (0.95 * HOUR_S, HOUR_S, 6 * HOUR_S, DAY_S - 120, DAY_S + 60, 3 * DAY_S, 7 * DAY_S)
WIDE = {
    "max_records_per_trigger": None,
    "max_records_per_shard": 1000,
    "max_bytes_per_task": 64 << 20,
    "max_unresolved_per_shard": 100_000,
    "idle_wait_ms": 0,
}
SETTLES_S = 15.0  # by then a reshard under way is done and listed


OF_UNREAD = frozenset(
    {"put", "split", "merge", "update_shard_count", "generations", "empty_pages", "fault"}
    | {"time", "skew", "iterators_expire", "retention", "join"}
)
"""Steps of a stream that the query does not read now."""
COME_AND_GO: dict[str, float] = {"leave": 3, "join": 6, "trouble": 3, "left_out_run": 1}
MOST_FINISHING = 30
PIN_S = 5.0  # the service tells its time in whole seconds
MOST_POLLS = 40
MOST_DRAINING = 5_000
REST_S = 120.0
LAST_WAIT_S = 10.0  # between two attempts of a call, at most
LEFT_OUT = re.compile(r"next batches read only the other|next batches omit stream")


class StreamHistory(Stories, StateSteps, Turns, Pauses, Rewinds, Checks):
    """The history of one of the streams. `weights`: of its steps, by name."""

    weights: dict[str, float]
    others: list[StreamHistory]
    left: dict[str, Znode] | None = None
    located: tuple[str, ...] = ()
    left_out_s = float("-inf")
    is_new = False
    is_in_trouble = False
    trouble_since_s = 0.0

    @property
    def stream(self) -> str:
        return self.world.stream

    @property
    def is_read(self) -> bool:
        return self.stream in self.query.active

    def may(self, name: str) -> bool:
        """Whether a step is possible while the stream is not read."""
        if self.is_new and self.days_pass:
            return name == "join"
        if self.is_new and self.starts_at_latest:
            return name in ("put", "join")
        return name in OF_UNREAD

    def hear(self) -> None:
        if any(LEFT_OUT.search(said) for said in self.world.warnings.said):
            self.left_out_s = self.world.clock.monotonic_s()
            self.count("streams that were left out of a batch")
        super().hear()

    def do_runs(self) -> None:
        """AvailableNow runs, at intervals, with a busy shard and idle ones, or none of either. Some
        are killed.
        """
        self.world.fake.faults.clear()
        self.days_passed = True
        for _ in range(3):
            self.world.put(self.random.choice((0, 1, 3)))
            self.job.stop()
            self.world.change(fail_on_data_loss=self.random.random() < 0.5)
            self._check_look()
            self.random.choice((self.do_available_now, self.do_available_now, self._run_killed))()
            self._check_look()
            self.world.put(self.random.choice((0, 1, 3)))
            if self.random.random() < 0.2:
                self.do_change_of_retention()
            interval_s = self.random.choice(INTERVALS_S)
            self.note(f"{interval_s / HOUR_S:.2f} h")
            self._pass(interval_s)
            if self.random.random() < 0.2:
                self.do_change_of_retention()
            self.count("AvailableNow runs at intervals")

    def _run_killed(self) -> None:
        """An AvailableNow run is killed at a write, in a batch, or after one."""
        self.query.available_now = True
        kind = self.random.choice(("at a write", "in a batch", "after a batch"))
        self.note(kind)
        try:
            if kind == "at a write":
                self.do_crash_at_write()
            elif kind == "in a batch":
                self.do_crash()
            else:
                self.do_batch()
        finally:
            self.query.available_now = False
            self.job.stop()

    def do_new_location(self) -> None:
        self.query.stop()
        self.query.forget_checkpoint_location()
        self.count("new checkpoint locations")

    def do_back_up_location(self) -> None:
        query = self.query
        for one in (self, *self.others):
            one.location = copy.copy(query.offsets), query.committed, copy.copy(one.job.sink)
            one.located = tuple(query.active)

    def do_restore_location(self) -> None:
        if any(one.location is None for one in (self, *self.others)):
            return  # none was kept, or one of its streams was made again since
        # The query that continues there reads what that one has read.
        for one in (self, *self.others):
            if one.stream in self.located and not one.is_read:
                one.join()
        self.query.stop()
        for one in (self, *self.others):
            assert one.location is not None
            offsets, committed, sink = one.location
            self.query.offsets, self.query.committed = copy.copy(offsets), committed
            one.job.sink = copy.copy(sink)
            one.thrown_away = True
        self.count("old checkpoint locations restored")

    def do_keep_up(self) -> None:
        """See `Stories.do_keep_up`. A stream that is left out is not read soon."""
        try:
            super().do_keep_up()
        except AssertionError:
            if self.world.clock.monotonic_s() - self.left_out_s > REST_S:
                raise
            self.count("streams that were left out when they had to be read soon")

    def written(self) -> dict[str, Znode]:
        found: dict[str, Znode] = {}
        for one in (self, *self.others):
            found |= super(StreamHistory, one).written()
        return found

    # streams that come and go ---------------------------------------------------------------------
    def do_leave(self) -> None:
        """The query continues without the stream, whose state stays as it is."""
        if len(self.query.active) < 2:
            return
        self.query.stop()
        if self.query.is_unfinished and self._is_in_unfinished():
            if self._is_named_by_nothing_else() and len(self.query.active) == 2:
                return  # a query of the other stream alone takes the plan for one of its own
            self._leave_too_early()
        if self.query.is_unfinished or self._is_named_by_nothing_else():
            return
        self.leave()
        self.count("streams that were removed")
        self.note(self.query.active)

    def leave(self) -> None:
        self.query.stop()
        self.query.active.remove(self.stream)
        self.left = self.world.znodes()

    def do_join(self) -> None:
        if not self.is_read:
            if self.is_new:
                self.count("streams that were added for the first time")
            self.count("streams that were added")
            self.join()
            self.note(self.query.active)

    def join(self) -> None:
        self.query.stop()
        self.check_left()
        self.left = None
        self.query.active.insert(self.random.randrange(len(self.query.active) + 1), self.stream)
        if self.is_new and (self.days_pass or self.starts_at_latest):
            self.pin()
        self.is_new = False

    def pin(self) -> None:
        """The stream starts here; what it has is not wanted if it starts at LATEST."""
        self.world.clock.advance(PIN_S)
        self.job.coordinator.open()
        self.query.stop()
        if self.starts_at_latest:
            self.world.forget_records()
        self.world.clock.advance(10)

    def check_left(self) -> None:
        """Nobody has touched the state of a stream that is not read."""
        if self.left is not None:
            now = self.world.znodes()
            assert now == self.left, f"the state of {self.stream} has changed while it was not read"

    def _is_in_unfinished(self) -> bool:
        """Whether the batch that Spark repeats has records of the stream."""
        before = self.query.offsets[-2] if len(self.query.offsets) > 1 else {}
        after = self.query.offsets[-1]
        if "plan" in after:  # of a query of one stream, which the offset does not name
            plan: str = after["plan"]
            return plan in (self.newest_plan() or "")
        name = self.world.settings.state_name
        return bool(after["plans"].get(name, "") != before.get("plans", {}).get(name, ""))

    def _is_named_by_nothing_else(self) -> bool:
        """Whether the checkpoint location has no batch but those of a query of this stream alone,
        and names no stream.
        """
        return any("plan" in one for one in self.query.offsets[-1:])

    def _leave_too_early(self) -> None:
        """The batch that Spark repeats has records of the stream, so the query is refused."""
        before = self.left
        self.leave()
        try:
            self.query.run_batch()
        except ConfigError as error:
            told = str(error)
            self.count("removed streams whose batch was not finished")
        except KinesisError as error:
            self.note(f"ended by {type(error).__name__}")
            told = self.stream
        else:
            raise AssertionError("a batch was repeated without the records of a removed stream")
        finally:
            self.query.stop()
            self.left = before
            self.query.active.insert(0, self.stream)
        assert self.stream in told, f"the refusal does not name the stream: {told}"
        for _ in range(MOST_FINISHING):
            self.run_batch()
            if not self.query.is_unfinished:
                break
        self.query.stop()

    # trouble --------------------------------------------------------------------------------------
    def do_trouble(self) -> None:
        """The service does not serve the stream for a while. The others go on."""
        others = [one for one in self.others if one.is_read]
        if not others:
            return
        for one in (self, *others):
            one.world.fake.faults.clear()
            one.do_resume_application()
        if self.run_batch() not in (True, False) or self.query.reader is None:
            return
        operation = self.random.choice(("ListShards", "GetRecords", "GetShardIterator", None))
        fault = self.random.choice((throttle(), internal_failure()))
        self.note((operation, fault.code))
        self.world.put(3)
        self.trouble_since_s = self.world.clock.monotonic_s()
        self.world.fake.faults.add(fault, operation=operation, times=None)
        self.is_in_trouble = True
        try:
            for one in others:
                if self.query.reader is None:
                    break  # a loss has ended the query, which needs all streams at its next start
                one.check_goes_on()
        finally:
            self.is_in_trouble = False
            self.world.fake.faults.clear()
        self.count("streams that were in trouble")

    def do_left_out_run(self) -> None:
        """An AvailableNow run in which the service does not serve the stream for a while. The run
        waits for it, however long the answers of the other streams take. A query of one stream has
        the patience of its client alone.
        """
        if len(self.query.active) < 2:
            return
        for one in (self, *self.others):
            one.world.fake.faults.clear()
            one.do_resume_application()
        times = self.random.choice((6, 12, 20))
        self.note(times)
        self.world.put(3)
        self.trouble_since_s = self.world.clock.monotonic_s()
        self.world.fake.faults.add(internal_failure(), operation="GetRecords", times=times)
        self.is_in_trouble = True
        try:
            self.do_available_now()
        finally:
            self.is_in_trouble = False
            self.world.fake.faults.clear()
        self.count("AvailableNow runs without a stream for a while")

    def end_by_trouble(self) -> str:
        """The driver is patient while no other stream has anything to read; a task that has begun
        can only wait, or fail. A stream that is read alone has the patience of its calls: the last
        one gives up when the next attempt would begin too late.
        """
        if self.query.running.in_task:
            self.count("queries that a task of a stream in trouble has ended")
        else:
            waited_s = self.world.clock.monotonic_s() - self.trouble_since_s
            patience_s = GIVEN_UP_S - (LAST_WAIT_S if len(self.query.active) == 1 else 0)
            assert waited_s >= patience_s, f"trouble of {waited_s} s has ended the query"
            self.count("queries that the trouble of a stream has ended")
        self.query.stop()
        return "ended by trouble"

    def check_goes_on(self) -> None:
        """New records of this stream are read though another one is in trouble. A batch may have
        one record only, and the streams have shares in it: it counts whether this one gets on.
        """
        open_ = {shard.shard_id for shard in self.world.fake.shards(self.stream) if shard.is_open}
        known = {shard for shard in open_ if self._may_be_read_on(shard)}
        before = self.world.ids()
        self.world.put(3)
        # Producers may put more during each batch: to wait for theirs, too, might never end.
        new = self.world.ids() - before
        held: set[str] = set()
        polls = 0  # since it got on
        begun_s = ran_s = now_s = self.world.clock.monotonic_s()
        # A stream whose tasks came back empty is left out for as long as they were waited for.
        left_out_s = self.world.settings.max_search_time_ms / 1000
        while polls < MOST_POLLS or (polls < 10 * MOST_POLLS and now_s - ran_s <= left_out_s):
            delivered = len(self.job.delivered)
            ran = self.run_batch()
            now_s = self.world.clock.monotonic_s()
            if now_s - begun_s >= DAY_S:
                self.days_passed = True  # the tasks of the other stream wait for minutes each
            if isinstance(ran, str):
                self.note(ran)
                return
            polls = 0 if len(self.job.delivered) > delivered else polls + 1
            ran_s = now_s if ran else ran_s
            read = {name for row in self.job.delivered for name in self.world.names(row)}
            shards = {shard for shard in known if self._may_be_read_on(shard)}
            held = {one for one in new - read if one.partition(":")[0] in shards}
            if not held:
                self.count("streams that went on while another one was in trouble")
                return
        raise AssertionError(f"another stream's trouble holds {sorted(held)[:3]}")


class StreamsWarnings(logging.Handler):
    """Gives each warning to the history of its stream: of the stream whose code runs, or that it
    names, or whose step it is.
    """

    def __init__(self, history: History) -> None:
        super().__init__(logging.WARNING)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        said, history = record.getMessage(), self._history
        by_name = {part.stream: part for part in history.parts}
        part = by_name.get(history.query.running.stream)
        if part is None:
            part = next((one for one in history.parts if f"stream {one.stream}" in said), None)
        (part or history.acting).world.warnings.said.append(said)


class History:
    """The histories of all streams of one query. Each step is one of theirs."""

    def __init__(self, parts: list[StreamHistory], query: StreamsQuery, random: Random) -> None:
        self.parts = parts
        self.query = query
        self.random = random
        self.log: list[str] = []
        self.acting = parts[0]
        self.handler = StreamsWarnings(self)
        query.run_of = self._run_of
        query.on_forget = self._on_forget
        for part in parts:
            part.log, part.days = self.log, parts[0].days
            part.others = [other for other in parts if other is not part]

    def play(self) -> None:
        for _ in range(STEPS):
            self._step()
        self.log.append("drain")
        self._drain()
        for part in self.parts:
            part.check()
            part.check_end()
            part.check_left()

    def _step(self) -> None:
        part = self.acting = self.random.choice(self.parts)
        names = [name for name in part.weights if part.is_read or part.may(name)]
        name = self.random.choices(names, weights=[part.weights[name] for name in names])[0]
        self.log.append(f"{part.stream}: {name}")
        paused = {one.stream: one.newest_plan() for one in part.others if one.world.is_paused}
        part.obeying(name, getattr(part, f"do_{name}"))
        for one in self.parts:
            one.world.note_shards()
            if one.stream in paused and one.world.is_paused:
                assert one.newest_plan() == paused[one.stream], "a plan was made during a pause"
            one.check_left()
            one.check()
            one.remember()

    def _drain(self) -> None:
        """Stop the faults and end the pauses, then run until nothing is left to read and nothing
        waits. Streams that were removed are added again.
        """
        for part in self.parts:
            self.acting = part
            part.world.fake.faults.clear()
            part.do_resume_application()
            if not part.is_read:
                part.join()
            part.world.change(**WIDE)
            part.world.inner.probe_max_shards = PROBE_MAX_SHARDS
            if part.failing is not None:
                part.failing.outage_until_s = 0.0
        self.query.stop()
        self.query.max_records = None
        self.parts[0].world.clock.advance(SETTLES_S)
        for part in self.parts:
            part.world.note_shards()
        for _ in range(MOST_DRAINING):
            ran = self.acting.run_batch()
            # A query that has ended leaves its batch in the sink, unfinished: it is replayed first.
            if not isinstance(ran, str) and not any(
                part.missing() or part.stuck() for part in self.parts
            ):
                return
            if not ran:
                self.parts[0].world.clock.advance(10.0)

    def _run_of(self, job: StreamJob, crash_at: str | None) -> bool | str:
        """Run a batch in a step of one stream. An error of another one is that one's to handle."""
        query = self.query
        before = query.committed
        try:
            return query.run_batch(crash_at)
        except KinesisError as error:
            return self._go_on_after(error, job)
        finally:
            for part in self.parts:
                if query.committed > before and part.is_read:
                    part.on_committed(part.job.sink[query.committed])
                part.hear()

    def _go_on_after(self, error: KinesisError, job: StreamJob) -> str:
        part = next(
            (one for one in self.parts if one.stream == self.query.running.failed), self.acting
        )
        if "of a query of one stream" in str(error):
            # Of a stream that was reset, ZooKeeper tells nothing of before.
            assert any(one.thrown_away or one.world.counts[RECREATED] for one in self.parts), str(
                error
            )
            self.query.stop()
            self.query.forget_checkpoint_location()
            part.count("queries that end since nobody knows the last plan")
            return "ended by a plan that nobody knows"
        if part.is_in_trouble and (error.retryable or isinstance(error, ThrottledError)):
            return part.end_by_trouble()
        if isinstance(error, DataLossError) and part.job is not job:
            return f"{part.go_on_after(error)} of {part.stream}"
        raise error

    def _on_forget(self) -> None:
        for part in self.parts:
            part.thrown_away = True
