"""Steps on the stream's side: puts, resharding, faults of the service, time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.testing import (
    ServiceError,
    drop,
    duplicate_listing,
    early_end,
    end_without_children,
    error,
    expired_iterator,
    internal_failure,
    slow,
    throttle,
)
from kinesis_spout.testing.service import requests
from state.report import OnFailure
from state.shard_state import Lifecycle
from tests.simulation.past import DAY_S, FALSE_ANSWERS, Past
from tests.simulation.query_steps import OUTAGE_RECORDS, OUTAGE_S, QuerySteps

if TYPE_CHECKING:
    from collections.abc import Callable

ITERATOR_LIFE_S = 301.0
MOST_SHARDS = 6
ANSWERED = ("GetRecords", "GetRecords", "GetShardIterator", "DescribeStreamSummary", "ListShards")


class StreamSteps(Past):
    def do_put(self) -> None:
        self.world.clock.advance(self.random.choice((0, 0.01, 1)))
        count = self.random.choice((1, 3, 7) if self.world.is_narrow else (1, 3, 7, 40))
        self.note(count)
        self.world.put(count)

    def do_split(self) -> None:
        opened = self._open()
        if len(opened) < MOST_SHARDS:
            self._reshard(
                "splits",
                lambda: self.world.fake.split(self.world.stream, self.random.choice(opened)),
            )

    def do_merge(self) -> None:
        opened = self._open()
        if len(opened) > 1:
            low = self.random.randrange(len(opened) - 1)
            self._reshard(
                "merges",
                lambda: self.world.fake.merge(self.world.stream, opened[low], opened[low + 1]),
            )

    def do_update_shard_count(self) -> None:
        count = len(self._open())
        fewest = -(-count // 2)
        target = self.random.randint(fewest, max(fewest, min(2 * count, MOST_SHARDS)))
        if target != count:
            request = requests.UpdateShardCount(
                stream_name=self.world.stream,
                target_shard_count=target,
                scaling_type="UNIFORM_SCALING",
            )
            self._reshard(
                "updates of the shard count", lambda: self.world.fake.update_shard_count(request)
            )

    def do_generations(self) -> None:
        """Several reshards with records in between, all while the job is down."""
        self.job.stop()
        for _ in range(self.random.choice((2, 3))):
            self.do_put()
            self.random.choice((self.do_split, self.do_merge, self.do_update_shard_count))()
            self.world.clock.advance(self.random.choice((0, 4)))
        self.count("several generations while the job was down")

    def do_empty_pages(self) -> None:
        shard = self.random.choice(self.world.fake.shards(self.world.stream)).shard_id
        self.note(shard)
        self.count("runs of empty pages")
        self.world.fake.insert_empty_pages(self.world.stream, shard, self.random.choice((1, 3, 12)))

    def do_iterators_expire(self) -> None:
        self.count("times that all iterators expired")
        self.world.clock.advance(ITERATOR_LIFE_S)

    def do_time(self) -> None:
        self.world.clock.advance(self.random.choice((0.5, 5, 60)))

    def do_skew(self) -> None:
        self.world.skewed.ahead_ms = self.random.choice((0, 0, -1_500, 1_500, -20_000, 20_000))
        self.note(self.world.skewed.ahead_ms)
        self.count("new settings of the clock")

    def do_fault(self) -> None:
        """Transient faults for some of the next requests. They are few enough for the product's
        retries.
        """
        self.world.fake.faults.clear()
        operation = self.random.choice(ANSWERED)
        kinds = [internal_failure(), drop(), drop(processed=True), throttle(), slow(2.0)]
        if operation == "GetRecords":
            kinds += [
                expired_iterator(),
                expired_iterator(),
                end_without_children(),
                early_end(),
            ]
        if operation in ("GetRecords", "GetShardIterator"):
            kinds += [error("ResourceNotFoundException", "Shard does not exist")] * 3
        if operation == "ListShards":
            kinds += [duplicate_listing(), duplicate_listing()]
        fault = self.random.choice(kinds)
        self.note((operation, fault.kind.value, fault.code))
        is_denial = fault.code == "ResourceNotFoundException"  # only a single one is false
        times = 1 if is_denial else self.random.choice((1, 2))
        self.world.fake.faults.add(fault, operation=operation, times=times)

    def do_break_subscriptions(self) -> None:
        """The next subscriptions break after some events or fall silent, or are refused."""
        refusals = ("ResourceInUseException", "ResourceNotFoundException", "LimitExceededException")
        times = self.random.choice((1, 3))
        if self.random.random() < 0.5:
            fault = self.random.choice((*map(error, refusals), internal_failure(), drop()))
            self.world.fake.faults.add(fault, operation="SubscribeToShard", times=times)
            self.count("subscriptions to be refused")
        else:
            one = self.random.choice((0, 1, 1, 2, 5)), self.random.random() < 0.5
            self.world.service.breaks = [one] * times
            self.count("subscriptions to be broken")

    def do_false_answer(self) -> None:
        """One answer says that a shard is gone, or that its tip is reached, and is wrong. If any
        records wait for their retry, it is about their shard.
        """
        if self.world.fake.settings.listing_delay_ms:
            return  # two late listings and a false answer are the proof that a shard is gone
        self.world.fake.faults.clear()
        gone, empty = FALSE_ANSWERS
        operation, fault = self.random.choice(
            (("GetShardIterator", gone), ("GetRecords", gone), ("GetRecords", empty))
        )
        waiting = [name for name, state in self.world.states().items() if state.unresolved]
        shard = self.random.choice(waiting) if waiting else None
        skipped = self.random.choice((0, 0, 1, 2))
        self.note((operation, fault.code or "an empty page at the tip", shard, skipped))
        self.world.fake.faults.add(fault, operation=operation, shard_id=shard, skip=skipped)

    def do_retention(self, days: float | None = None) -> None:
        """The job is down for the retention period, or most of it. Before that, it may have seen
        the tip.
        """
        self.world.clock.advance(10)
        self.world.note_shards()  # also those that live for a moment only
        self.days_passed = True
        self.job.stop()
        self.world.change(fail_on_data_loss=self.random.random() < 0.5)
        self.world.clock.advance(DAY_S * (days or self.random.choice((0.6, 1.1, 2.5))))
        self.count("days that passed")

    def do_change_of_retention(self) -> None:
        """Not twice before the application has seen it: nothing tells of a shorter one between."""
        known = self.world.look().identity.read()
        if known is None or known.retention_ms != self.world.retention_ms:
            return
        hours = self.random.choice(RETENTIONS_H)
        self.note(hours)
        request = requests.ChangeRetention(
            stream_name=self.world.stream, retention_period_hours=hours
        )
        try:
            if hours * HOUR_MS > self.world.retention_ms:
                self.world.fake.increase_stream_retention_period(request)
            else:
                self.world.fake.decrease_stream_retention_period(request)
        except ServiceError as error:
            self.note(error.code)  # the stream is changed in another way
            return
        self.least_retention_ms = min(self.least_retention_ms, self.world.retention_ms)
        self.count("changes of the retention")

    def begin_on_backlog(self) -> None:
        """Before the application starts: there are records of most of a day, perhaps of shards that
        are closed by then.
        """
        if self.world.settings.starting_position.text != "TRIM_HORIZON":
            return
        oldest_ms = self.world.clock.now_ms()
        for _ in range(self.random.choice((2, 4, 6))):
            self.do_put()
            self.world.clock.advance(DAY_S * self.random.choice((0.0001, 0.01, 0.1)))
            if self.random.random() < 0.2:
                self.do_split()
                self.world.clock.advance(self.world.fake.settings.reshard_ms / 1000 + 10)
                self.world.note_shards()
        aged_s = (self.world.clock.now_ms() - oldest_ms) / 1000
        self.world.clock.advance(DAY_S * self.random.choice((0.7, 0.95, 0.99)) - aged_s)
        self.begun_ms = self.world.clock.now_ms()
        self.days_passed = True
        self.count("starts on a backlog that expires")

    def read_some_of_backlog(self, read_little: Callable[[], None]) -> None:
        """The application reads the oldest records, and is away while the next ones expire."""
        if self.begun_ms is not None:
            read_little()
            self.note_touched()
            self.do_retention(self.random.choice((0.02, 0.1, 0.4)))

    def _open(self) -> list[str]:
        """Open shards in the order of their hash keys."""
        opened = (shard for shard in self.world.fake.shards(self.world.stream) if shard.is_open)
        return [shard.shard_id for shard in sorted(opened, key=lambda shard: shard.hash_keys.start)]

    def _reshard(self, what: str, change: object) -> None:
        assert callable(change)
        try:
            change()
        except ServiceError as error:
            self.note(error.code)  # another one is under way
            return
        self.note(what)
        self.count(what)
        self.world.note_shards()


MOST_OF_A_DAY = 0.6
LATE_S = DAY_S * MOST_OF_A_DAY
HALF_A_DAY = 0.5
LONG_READS_S = (90.0, 600.0)
MOST_PASSED = 12
MOST_POLLS = 30
IDLE_POLLS = 3
HOUR_MS = 3_600_000
RETENTIONS_H = (24, 48, 168)
LISTED_BY_MS = 20_000  # a shard that is this old is in every listing


class Stories(StreamSteps, QuerySteps):
    def do_children_named_late(self) -> None:
        """Shards end without naming their children, and the listing may show the children late.
        Then a run ends, or generations pass.
        """
        self.do_put()
        self.world.fake.faults.add(end_without_children(), operation="GetRecords", times=None)
        self.random.choice((self.do_split, self.do_merge, self.do_update_shard_count))()
        self.world.clock.advance(self.world.fake.settings.reshard_ms / 1000)
        self.world.note_shards()
        self.do_put()
        for _ in range(self.random.choice((0, 1, 2, 3))):
            self.note(self.run_batch())
        if self.days_pass:
            self._pass_generations()
        else:
            self.do_available_now()
        self.world.fake.faults.clear()

    def _pass_generations(self) -> None:
        """When the job is back, the shards that it has seen and their children are not listed."""
        self.job.stop()
        for _ in range(3):
            self._reshard_all()
            self.do_put()
        self.do_retention()

    def _reshard_all(self) -> None:
        for shard in self._open():
            if len(self._open()) < MOST_PASSED:
                self._reshard(
                    "splits", lambda shard=shard: self.world.fake.split(self.world.stream, shard)
                )
                self.world.clock.advance(self.world.fake.settings.reshard_ms / 1000)
        self.world.note_shards()

    def do_late_replay(self) -> None:
        """A batch that was read runs again after its first records have expired and others have
        come.
        """
        self.job.stop()
        self.do_put()
        self.do_retention(MOST_OF_A_DAY)
        self.do_put()
        self.note(self.run_batch(self.random.choice(("read", "sunk"))))
        self.do_put()
        self.do_retention(MOST_OF_A_DAY)
        self.note(self.run_batch())
        self.count("batches replayed after most of a day")

    def do_keep_up(self) -> None:
        """New records are read soon, though records of their shard wait for retries. With small
        limits it would take too long.
        """
        if self.world.is_narrow and (
            self.outcomes is None or self.outcomes.policy.on_failure is not OnFailure.CONTINUE
        ):
            return
        self.world.fake.faults.clear()
        listed_ms = self.world.clock.now_ms() - LISTED_BY_MS
        known = {
            shard.shard_id
            for shard in self.world.fake.shards(self.world.stream)
            if shard.opened_ms <= listed_ms and shard.is_open
        }
        self.do_put()
        self.run_batch()
        before = self.world.ids()
        self.do_put()
        idle = 0
        for _ in range(MOST_POLLS):
            idle = 0 if self.run_batch() else idle + 1
            if idle == IDLE_POLLS:
                break
        else:
            return
        read = {name for row in self.job.delivered for name in self.world.names(row)}
        shards = {shard for shard in known if self._may_be_read_on(shard)}
        held = {one for one in self.world.ids() - before - read if one.partition(":")[0] in shards}
        self.count("times that what was put had to be read soon")
        assert not held, f"nothing is read, though there are new records: {sorted(held)[:3]}"

    def _may_be_read_on(self, shard_id: str) -> bool:
        """Whether nothing that the job may wait for holds the shard: its parents, its order, its
        limits, an outage.
        """
        states = self.world.states()
        state = states.get(shard_id)
        if state is None or state.lifecycle is not Lifecycle.ACTIVE:
            return False
        if any(parent in states and not states[parent].end_was_read for parent in state.parents):
            return False
        if self.outcomes is None:
            return True
        in_order = self.outcomes.policy.on_failure is not OnFailure.CONTINUE
        waiting = sum(one.count for one in state.unresolved)
        is_outage = bool(self.outcomes.done) and self.outcomes.done[-1].outage
        return (
            not in_order
            and not is_outage
            and waiting < self.world.settings.max_unresolved_per_shard
        )

    # at the edge of the retention, of a reshard, and of a run -------------------------------------
    def do_late_read(self) -> None:
        """Records expire between the plan of a batch and its reads: most of a day passes before one
        of its tasks reads, or in the middle of a read. Some such batches run again.
        """
        self.world.fake.faults.clear()
        self.do_put()
        self.do_retention(MOST_OF_A_DAY)
        self.do_put()
        if self.random.random() < 0.5:
            late = self.random.choice((0, 0, 1))
            self.job.before_task = lambda number: self._pass(LATE_S) if number == late else None
        else:
            self.job.before_task = lambda number: None if number else self._make_slow()
        try:
            self.note(self.run_batch(self.random.choice((None, None, "read", "sunk"))))
        finally:
            self.job.before_task = None
            self.world.fake.faults.clear()
        if self.random.random() < 0.5:
            self.do_put()
            self.note(self.run_batch())
        self.count("batches that were read late")

    def _make_slow(self) -> None:
        skipped = self.random.choice((0, 1, 2))
        self.world.fake.faults.add(slow(LATE_S), operation="GetRecords", skip=skipped)

    def do_partly_expired(self) -> None:
        """An outage queues ranges of old records and young ones. When they are retried, the old
        ones have expired.
        """
        if self.failing is None or self.world.is_narrow:
            return
        self.world.fake.faults.clear()
        self.world.put(OUTAGE_RECORDS // 2)
        self.do_retention(HALF_A_DAY)
        self.world.put(OUTAGE_RECORDS // 2)
        self.failing.outage_until_s = self.world.clock.monotonic_s() + OUTAGE_S
        self.note([self.run_batch() for _ in range(3)])
        self.do_retention(MOST_OF_A_DAY)
        self.note([self.run_batch() for _ in range(2)])
        self.count("outages whose records have expired in part")

    def do_reshard_while_records_wait(self) -> None:
        """Shards are split and merged under load, while failed records block those behind them."""
        if self.outcomes is None or self.outcomes.policy.on_failure is OnFailure.CONTINUE:
            return
        for _ in range(self.random.choice((1, 2, 4))):
            self.do_put()
            self.note(self.run_batch())
            self.random.choice((self.do_split, self.do_merge, self.do_update_shard_count))()
            self.do_put()
            self.world.clock.advance(self.world.fake.settings.reshard_ms / 1000)
            self.world.note_shards()
            self.do_put()
            self.note(self.run_batch())
        self.count("reshards while records waited")

    def do_available_now_dies(self) -> None:
        """An AvailableNow run dies when it has settled a plan of its own and has not listed the
        shards since. A shard was split while the plan was read, and the job may be down for long.
        """
        self.world.fake.faults.clear()
        self.job.stop()
        self.do_put()
        if self.random.random() < 0.7:
            self.world.fake.faults.add(end_without_children(), operation="GetRecords", times=None)
        self.job.before_task = lambda number: None if number else self._reshard_for_long()
        self.query.available_now = self.job.dies_settled = True
        try:
            for _ in range(MOST_POLLS):
                ran = self.run_batch()
                self.note(ran)
                if ran is not True:
                    break
        finally:
            self.query.available_now = self.job.dies_settled = False
            self.job.before_task = None
            self.job.stop()
            self.world.fake.faults.clear()
        if self.days_pass:
            self.do_retention(self.random.choice((MOST_OF_A_DAY, None)))
        self.count("AvailableNow runs that died when they had settled")

    def _reshard_for_long(self) -> None:
        self.random.choice((self.do_split, self.do_merge, self.do_update_shard_count))()
        self._pass(self.world.fake.settings.reshard_ms / 1000)
        self.do_put()
        # What was put into the children may expire before the job is back, though the time up to
        # which their parents were read has not.
        self.days_passed = self.days_passed or self.days_pass
        self._pass(self.random.choice((*LONG_READS_S, LATE_S) if self.days_pass else LONG_READS_S))
        self.do_put()

    def _pass(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.world.note_shards()
