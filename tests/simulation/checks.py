"""Checks that hold after every step, at the end, and of every look from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.drills.history.checks import BEGIN, StateView
from kinesis_spout.inspection.cause import Kind
from kinesis_spout.inspection.explanation import explain, grouped
from kinesis_spout.inspection.health import READ_PHASES, Health, Look, TipAnswer
from kinesis_spout.inspection.snapshot import Snapshot
from kinesis_spout.inspection.status import status_of
from kinesis_spout.service.shard_info import HashRange, ShardInfo, StreamSummary
from state.position import PositionKind
from state.report import OnFailure
from state.sequence_number import SequenceNumber
from state.shard_state import FIRST_READ_GRACE_MS, Lifecycle
from tests.simulation.past import DAY_S, Past
from tests.simulation.world import APPLICATION
from tests.support.simulated.played_outcomes import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.inspection.cause import Action, Explanation
    from kinesis_spout.testing.stream.shard import Shard
    from state.position import Position
    from state.shard_state import ShardState
    from tests.simulation.world import World
    from tests.support.simulated.played_outcomes import PlayedOutcomes

COMMANDS = ("resume", "shards")  # without which some causes have no action
FAILED = frozenset({Health.STALLED, Health.LOSING})
FINE = frozenset({Kind.CAUGHT_UP, Kind.NOT_ASKED})


def snapshot_of(world: World) -> Snapshot:
    """What ZooKeeper and a listing show now. It takes nothing of the service's limits, and meets
    none of its faults.
    """
    now_ms = world.clock.now_ms()
    stream = world.fake.stream(world.stream)
    summary = StreamSummary(
        arn=stream.arn,
        name=stream.name,
        created_ms=stream.created_ms,
        status=stream.status(now_ms),
        retention_ms=stream.retention_hours * 3_600_000,
        service_time_ms=now_ms,
    )
    store = world.look()
    try:
        stored = store.view.read()
    finally:
        store.close()
    return Snapshot(
        application=APPLICATION,
        stored=stored,
        stream=summary,
        listing=[_info(shard) for shard in world.fake.shards(world.stream)],
        now_ms=now_ms,
    )


def look_of(world: World, before: Snapshot | None = None) -> Look:
    """A look with the tips of all shards that are read."""
    now = snapshot_of(world)
    unasked = Look(before=before or now, now=now)
    tips = {}
    for shard_id in now.shard_ids:
        position = now.position(shard_id)
        if position is not None and unasked.of(shard_id).phase in READ_PHASES:
            tips[shard_id] = TipAnswer(now.now_ms, next_ms(world, shard_id, position))
    return Look(before=before or now, now=now, tips=tips)


def next_ms(world: World, shard_id: str, position: Position) -> int | None:
    """When the next record from a position on arrived; None where there is none."""
    shard = world.fake.stream(world.stream).shard(shard_id)
    number = 0
    if position.sequence is not None:
        number = position.sequence.sequence + (position.kind is PositionKind.AFTER)
    elif position.timestamp_ms is not None:
        number = shard.position_of_time(position.timestamp_ms)
    record = shard.first_from(number)
    return None if record is None else record.arrival_ms


def possible(explained: Explanation) -> list[Action]:
    """The actions that need none but `COMMANDS`."""
    return [one for one in explained.actions() if not one.command or one.command[0] in COMMANDS]


def check_look(look: Look) -> None:
    """Every shard has a status and an explanation that ends with something to do. What fails is not
    explained as fine, and groups leave no shard out.
    """
    status = status_of(look)
    assert {one.shard_id for one in status.shards} == set(look.now.shard_ids)
    for shard_id in (*look.now.shard_ids, "shardId-999999999999"):
        explained = explain(look, shard_id)
        told = [cause.text for cause in explained.causes]
        assert all(told), f"{shard_id} is explained by nothing: {told}"
        assert possible(explained), f"nobody says what to do about {shard_id}: {told}"
        assert look.of(shard_id).health not in FAILED or not is_fine(explained), (
            f"{shard_id} is {look.of(shard_id).health}, and said to be fine: {told}"
        )
    named = [shard for group in grouped(look) for shard in group.shards]
    assert len(named) == len(set(named))


def troubled(look: Look) -> list[Explanation]:
    """The explanations of the shards that are not fine."""
    found = [explain(look, shard_id) for shard_id in look.now.shard_ids]
    return [one for one in found if not is_fine(one)]


def is_fine(explained: Explanation) -> bool:
    """Whether nothing is to be done: also not because records may have expired."""
    kinds = {cause.kind for cause in explained.causes}
    return explained.root.kind in FINE and Kind.RECORDS_EXPIRED not in kinds


def _info(shard: Shard) -> ShardInfo:
    ending = shard.ending_sequence
    return ShardInfo(
        shard_id=shard.shard_id,
        parents=shard.parents,
        hash_key_range=HashRange(shard.hash_keys.start, shard.hash_keys.end),
        starting_sequence=SequenceNumber(shard.starting_sequence),
        ending_sequence=None if ending is None else SequenceNumber(ending),
    )


LOOKS_EVERY = 20  # steps; a look takes as long as some of them


class Checks(Past):
    def check(self) -> None:
        """No checkpoint moves back. No checkpoint and no read position passes a record that is
        neither resolved nor queued. No retry is given up before its record can have expired.
        """
        assert self.days_passed or self.outcomes is None or not self.outcomes.gone, (
            f"retries were given up, though nothing can have expired: {self.outcomes.gone[:3]}"
        )
        self.note_touched()
        resolved = self.resolved()
        for shard, state in self.world.states().items():
            if self.seen.get(shard) is not state:
                self.seen[shard] = state
                self._check_shard(state, resolved)
        self.steps += 1
        if self.steps % LOOKS_EVERY == 0:
            self._check_look()

    def _check_look(self) -> None:
        """The window goes back to the last look."""
        look = look_of(self.world, self.looked)
        self.looked = look.now
        self.count("looks from outside")
        check_look(look)

    def _check_shard(self, state: ShardState, resolved: set[str]) -> None:
        shard, view = state.shard_id, StateView(state)
        assert view.acked_to >= self.checkpoints.get(shard, BEGIN), (
            f"the checkpoint of {shard} has moved back"
        )
        self.checkpoints[shard] = view.acked_to
        assert view.passed_place is None, f"the checkpoint of {shard} has passed a queued one"
        unread = [
            number
            for number in self.world.records.get(shard, [])
            if view.is_resolved((number.sequence, number.sub))
            and f"{shard}:{number}" not in resolved
        ]
        if unread and self.days_passed:
            # An expired record may be reported later, when a shard was missed twice: see `missing`.
            kept = self.world.kept()
            unread = [number for number in unread if f"{shard}:{number}" in kept]
        assert not unread, (
            f"{shard} at {state.read_position} has passed {len(unread)} records that nobody has "
            f"read: {unread[:3]}"
        )

    def _loss_was_reported(self, shard: str, since_ms: int) -> bool:
        """Whether the product reported a possible loss since then in the shard, or in one that it
        continues. In the latter case it never knew the shard.
        """
        return self.lost_in.get(shard, -1) >= since_ms or any(
            self._loss_was_reported(parent, since_ms)
            for parent in self.world.parents.get(shard, ())
        )

    # the end --------------------------------------------------------------------------------------
    def check_end(self) -> None:
        lost = self.check_all_was_read()
        self._check_order()
        if not self.thrown_away:
            self._check_sink(lost)
        if self.outcomes is not None:
            self._check_letters()

    def check_all_was_read(self) -> set[str]:
        """Nothing is missing or stuck. Returns the records that were reported as lost."""
        missing = self.missing()
        assert not missing, f"{len(missing)} records were lost: {sorted(missing)[:5]}"
        lost = self.world.ids() - self.resolved()
        self.count("records lost to retention, and reported", len(lost))
        stuck = self.stuck()
        assert not stuck, f"these shards are stuck: {stuck}"
        return lost

    def missing(self) -> list[str]:
        """Records that are neither resolved nor reported as lost."""
        missing = sorted(self.world.ids() - self.resolved())
        if not self.days_passed:
            return missing
        kept = self.world.kept() if missing else set()
        return [
            one
            for one in missing
            if one in kept
            or not (
                self._loss_was_reported(one.partition(":")[0], self.world.arrivals[one])
                or self._expired_at_start(one)
            )
        ]

    def _expired_at_start(self, name: str) -> bool:
        """Whether it is a record of the backlog that expired while the application began: before
        the state said that a record of its shard was read, or soon after the first ones. That is
        not told.
        """
        if self.begun_ms is None or self.world.arrivals[name] >= self.begun_ms:
            return False
        shard, _, number = name.partition(":")
        arrival_ms = self.world.arrivals[name]
        touched_ms = self.touched_ms.get(shard)
        if touched_ms is None or arrival_ms + DAY_S * 1000 <= touched_ms:
            return True
        resolved = self.resolved()
        before = [
            self.world.arrivals[found]
            for one in self.world.records[shard]
            if one < SequenceNumber.parse(number) and (found := f"{shard}:{one}") in resolved
        ]
        return bool(before) and arrival_ms <= before[-1] + FIRST_READ_GRACE_MS

    def stuck(self) -> list[str]:
        """Shards that are not where they should be once everything is read: closed ones finished,
        the others at their tips.

        The number that a finished shard shows beside SHARD_END is a lower bound: acks behind a
        failure are not kept in it.
        """
        found = []
        states = self.world.states()
        for shard in self.world.fake.shards(self.world.stream):
            state = states.get(shard.shard_id)
            if state is None:
                found.append(f"{shard.shard_id} has no state")
                continue
            put = self.world.records.get(shard.shard_id, [])
            checkpoint = None if state.checkpoint is None else state.checkpoint.sequence
            if (state.lifecycle is Lifecycle.FINISHED) != (not shard.is_open):
                found.append(
                    f"{shard.shard_id} is {state.lifecycle} at {state.read_position}, closed: "
                    f"{not shard.is_open}"
                )
            elif (
                shard.is_open
                and put
                and checkpoint != put[-1].sequence
                and (last := f"{shard.shard_id}:{put[-1]}") in self.resolved()
                # An ack that a crash has undone leaves no trace if the record expires before it
                # comes again.
                and (not self.days_passed or last in self.world.kept())
            ):
                found.append(
                    f"{shard.shard_id} has its checkpoint at {checkpoint}, not at {put[-1]}"
                )
        return found

    def _check_order(self) -> None:
        """The first delivery of a child's records comes after the last first delivery of its
        parents' records.
        """
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        names = (
            name
            for row in self.job.delivered
            for name in self.world.names(row)
            if name not in self.world.foreign
        )
        for place, name in enumerate(dict.fromkeys(names)):
            shard = name.partition(":")[0]
            first.setdefault(shard, place)
            last[shard] = place
        for child, place in first.items():
            for parent in self.world.parents[child]:
                assert last.get(parent, -1) < place, (
                    f"{child} was delivered before the end of {parent}"
                )

    def _check_sink(self, lost: set[str]) -> None:
        found = [
            name
            for rows in self.job.sink.values()
            for row in rows
            for name in self.world.names(row)
            if name not in self.world.foreign
        ]
        assert len(found) == len(set(found)), "an idempotent sink has records twice"
        assert set(found) | self.letters() - self.world.foreign == self.world.ids() - lost
        again = set() if self.failing is None else self.failing.failed_in_outage
        assert not set(found) & self.letters() - again, (
            "records were processed that had been dead-lettered, or the other way round"
        )
        if self.outcomes is not None:
            self._check_blocking(self.outcomes)

    def _check_blocking(self, outcomes: PlayedOutcomes) -> None:
        """With block_shard, the records of a shard are processed in their order, and after all
        records of the shards that it continues are processed or dead. With block_key, the same
        holds for the records of a key, in whatever shards they are.
        """
        on_failure = outcomes.policy.on_failure
        if on_failure is OnFailure.CONTINUE:
            return
        keys = {
            f"{row['shardId']}:{row['sequenceNumber']}": row["partitionKey"]
            for row in self.job.delivered
        }
        numbers: dict[tuple[str, str], list[SequenceNumber]] = {}
        first: dict[tuple[str, str], int] = {}
        last: dict[tuple[str, str], int] = {}
        for place, (processed, over) in enumerate(self._resolved(outcomes)):
            for record in (*processed, *over):
                if record not in keys:
                    continue  # of a stream that was deleted
                shard, _, number = record.partition(":")
                line = (shard, keys[record] if on_failure is OnFailure.BLOCK_KEY else "")
                last[line] = place
                if record in processed:
                    first.setdefault(line, place)
                    numbers.setdefault(line, []).append(SequenceNumber.parse(number))
        for line, of_line in numbers.items():
            assert of_line == sorted(of_line), f"{line} was not processed in its order"
        for (shard, key), place in first.items():
            for ancestor in self._ancestors(shard):
                assert last.get((ancestor, key), -1) < place, (
                    f"{shard} {key} was processed before the end of {ancestor}"
                )

    def _resolved(
        self, outcomes: PlayedOutcomes
    ) -> Iterator[tuple[dict[str, None], dict[str, None]]]:
        """The records that were processed with each plan, and those that were given up with it."""
        for each in outcomes.resolved.values():
            lost = [
                f"{shard}:{number}"
                for shard, low, high in each.gone
                for number in self.world.records.get(shard, ())
                if low <= number <= high
            ]
            yield (
                dict.fromkeys(one.rpartition(":")[0] for one in each.processed),
                dict.fromkeys([*(one.rpartition(":")[0] for one in each.dead), *lost]),
            )

    def _ancestors(self, shard: str) -> set[str]:
        """Up to those that the product reported as lost: what they continue it cannot know."""
        found = set(self.world.parents.get(shard, ()))
        return found.union(*(self._ancestors(one) for one in found - self.lost_in.keys()))

    def _check_letters(self) -> None:
        """Dead letters are exactly the records that always failed or were rejected, and those whose
        deliveries by themselves ended with the process, time and again. Nothing is tried more often
        than the policy allows, nor after its rejection.
        """
        assert self.outcomes is not None
        assert self.failing is not None
        limit = self.outcomes.policy.retry.retry_limit
        letters = [
            (message.rpartition(":")[0], attempts)
            for message, attempts, reason in self.outcomes.letters
            if "past" not in reason and reason != ENDED
        ]
        dead = {record for record, _ in letters}
        rejected_in = self.failing.rejected_in
        self.count("dead letters", len(dead))
        self.count("records rejected", len(rejected_in))
        early = [
            one
            for one in letters
            if one[1] != limit + 1 and one[1] not in rejected_in.get(one[0], ())
        ]
        assert not early, (
            f"records were dead-lettered before, or after, their last attempt: {early[:3]}"
        )
        self._check_tries(limit)
        assert dead <= self.failing.may_be_dead(limit), (
            "a record was dead-lettered that had not failed in its last attempt"
        )
        alive = (
            self.failing.must_be_dead(limit)
            - self.letters()
            - {one for one in self.world.ids() if self.days_passed}
            - self.world.foreign
        )
        assert not alive, (
            "records that always fail, or were rejected, are not dead-lettered: "
            f"{sorted(alive)[:3]}"
        )

    def _check_tries(self, limit: int) -> None:
        assert self.outcomes is not None
        assert self.failing is not None
        tried: dict[str, int] = {}
        for message in self.outcomes.calls:
            record, _, attempt = message.rpartition(":")
            tried[record] = max(tried.get(record, 0), int(attempt))
        most = max(tried.values(), default=0)
        assert most <= limit + 1, f"a record was tried {most} times, the limit is {limit} retries"
        if self.thrown_away:
            return
        again = [
            one for one, attempts in self.failing.rejected_in.items() if tried[one] > max(attempts)
        ]
        assert set(again) <= self.failing.failed_in_outage, (
            f"records were tried again that had been rejected: {again[:3]}"
        )
