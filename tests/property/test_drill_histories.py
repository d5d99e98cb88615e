"""Random histories of a correct consumer are accepted, and each way to spoil one is rejected.

The consumer is a small model: it delivers record by record, as a spout, or batch by batch, as a
Spark job. It is killed at any line that it tells, and goes on from what it had stored.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kinesis_spout.drills.history.checks import broken_promises
from kinesis_spout.drills.history.events import (
    Fate,
    Fault,
    History,
    Put,
    Sample,
    ShardLife,
    Step,
    Told,
    fate,
)
from kinesis_spout.drills.history.verdict import Drilled, judge
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_LIMIT = 2
FIRST_NUMBERS = (0, 50, 95, 147)  # keys whose numbers meet all fates within a few records
PARENT, OTHER, CHILD = "shard-0", "shard-1", "shard-2"
MAX_KILLS = 3


class KilledError(Exception):
    """In the middle of a step."""


class Consumer:
    """`read`: how many records of each shard were delivered. `attempts`: of what is unresolved."""

    def __init__(self, random: Random, *, batches: bool) -> None:
        self.random = random
        self.batches = batches
        self.now = 0
        self.runs = 1
        self.history = History(puts=[], told=[], faults=[], samples=[], retry_limit=RETRY_LIMIT)
        self.records: dict[str, list[Put]] = {PARENT: [], OTHER: [], CHILD: []}
        self._put()
        self.stored: tuple[dict[str, int], dict[Put, int]] = (dict.fromkeys(self.records, 0), {})
        self.read, self.attempts = self._load()

    def _put(self) -> None:
        numbers = {f"key-{first}": first for first in FIRST_NUMBERS}
        for at in range(self.random.randint(12, 50)):
            key = self.random.choice(sorted(numbers))
            is_moved = at > 20
            shard = OTHER if key == "key-0" else CHILD if is_moved else PARENT
            put = Put(key, numbers[key], shard, 100 + at, self.tick())
            numbers[key] += 1
            self.records[shard].append(put)
            self.history.puts = [*self.history.puts, put]
        closed_ns = self.tick()
        self.history.shards = {
            PARENT: ShardLife(PARENT, (), 0, closed_ns, 0, 9),
            OTHER: ShardLife(OTHER, (), 0, None, 10, 19),
            CHILD: ShardLife(CHILD, (PARENT,), closed_ns, None, 0, 9),
        }

    def run(self) -> History:
        while True:
            self.history.tasks[self.name] = 0
            try:
                while self.is_busy():
                    self.step()
                self.store()
            except KilledError:
                self.begin_again()
            else:
                self.sample()
                return self.history

    def begin_again(self) -> None:
        began_ns = self.tick()
        self.history.faults = [
            *self.history.faults,
            Fault(f"kill {self.runs}", began_ns, self.tick(), run=self.name),
        ]
        self.runs += 1
        self.read, self.attempts = self._load()

    @property
    def name(self) -> str:
        return f"run-{self.runs}"

    def tick(self) -> int:
        self.now += 10
        return self.now

    def is_busy(self) -> bool:
        return bool(self.attempts) or any(
            self.read[shard] < len(records) for shard, records in self.records.items()
        )

    def step(self) -> None:
        """Deliver some records, answer them in any order, store what is so now."""
        due = [*self.attempts] if self.random.random() < 0.5 else []
        due += self.next_records(self.random.randint(1, 6))
        if self.batches:
            for put in due:
                self.deliver(put)
            for put in self.random.sample(due, len(due)):
                self.answer(put)
            self.store()
        else:
            for put in due:
                self.deliver(put)
                if self.random.random() < 0.3:
                    self.store()
            for put in self.random.sample(due, len(due)):
                self.answer(put)
                if self.random.random() < 0.2:
                    self.store()
        if self.random.random() < 0.5:
            self.sample()

    def next_records(self, most: int) -> list[Put]:
        """The child's come when the parent is read."""
        shards = [PARENT, OTHER]
        if self.read[PARENT] == len(self.records[PARENT]):
            shards.append(CHILD)
        shard = self.random.choice(shards)
        return self.records[shard][self.read[shard] : self.read[shard] + most]

    def deliver(self, put: Put) -> None:
        if put not in self.attempts:
            self.attempts[put] = 0
            self.read[put.shard_id] += 1
        self.tell(Step.GOT, put)

    def answer(self, put: Put) -> None:
        its = fate(put.number)
        attempt = self.attempts[put] + 1
        if its is Fate.REJECTED:
            self.tell(Step.REJECT, put)
            self.tell(Step.LETTER, put, "rejected")
            del self.attempts[put]
        elif attempt > its.failures:
            self.tell(Step.ACK, put)
            del self.attempts[put]
        else:
            self.tell(Step.FAIL, put)
            if attempt > RETRY_LIMIT:
                self.tell(Step.LETTER, put, "not yet")
                del self.attempts[put]
            else:
                self.attempts[put] = attempt

    def tell(self, step: Step, put: Put, reason: str = "") -> None:
        """A kill may come before the line, or after it. A delivery without a line is none, as the
        model stores nothing in between.
        """
        if len(self.history.faults) < MAX_KILLS and self.random.random() < 0.01:
            raise KilledError
        attempt = self.attempts[put] + 1
        told = Told(
            self.tick(), step, put.shard_id, self.name, put.sequence, put.key, put.number, attempt,
            reason,
        )  # fmt: skip
        self.history.told = [*self.history.told, told]

    def store(self) -> None:
        self.stored = (dict(self.read), dict(self.attempts))

    def _load(self) -> tuple[dict[str, int], dict[Put, int]]:
        return dict(self.stored[0]), dict(self.stored[1])

    def sample(self) -> None:
        read, attempts = self.stored
        states = {shard: self.state(shard, read[shard], attempts) for shard in self.records}
        self.history.samples = [*self.history.samples, Sample(self.tick(), self.tick(), states)]

    def state(self, shard: str, read: int, attempts: dict[Put, int]) -> ShardState:
        records = self.records[shard]
        waiting = sorted(put.sequence for put in attempts if put.shard_id == shard)
        is_at_end = shard == PARENT and read == len(records)
        acked = [put.sequence for put in records[:read] if put.sequence < min([*waiting, 10**9])]
        position = Position.after(SequenceNumber(records[read - 1].sequence)) if read else None
        return ShardState(
            shard_id=shard,
            checkpoint=SequenceNumber(acked[-1]) if acked else None,
            read_position=SHARD_END if is_at_end else position or TRIM_HORIZON,
            unresolved=tuple(
                UnresolvedRecord(
                    first=SequenceNumber(one), last=SequenceNumber(one), attempts=1, due_ms=0
                )
                for one in waiting
            ),
        )


def good(seed: int, kind: str) -> History:
    return Consumer(Random(seed), batches=kind == "batches").run()  # noqa: S311  # to be repeated


# the ways to spoil one ------------------------------------------------------------------------
def outcomes(history: History) -> list[Told]:
    return [told for told in history.told if told.is_outcome]


def without(history: History, spoiled: Callable[[Told], bool]) -> None:
    history.told = [told for told in history.told if not spoiled(told)]


def at_the_end(history: History, *lines: Told) -> None:
    last_ns = history.samples[-1].ended_ns
    last_run = history.told[-1].run
    history.told = [
        *history.told,
        *(told._replace(at_ns=last_ns + n, run=last_run) for n, told in enumerate(lines, 1)),
    ]


def dying(history: History, random: Random) -> Told:
    letters = [told for told in history.told if told.step is Step.LETTER]
    assume(letters)
    return random.choice(letters)


def acked(history: History, random: Random) -> Told:
    return random.choice([told for told in history.told if told.step is Step.ACK])


def drop_the_acks_of_a_record(history: History, random: Random) -> None:
    one = acked(history, random)
    without(history, lambda told: told.record == one.record and told.step is Step.ACK)


def lose_the_letters_of_a_record(history: History, random: Random) -> None:
    one = dying(history, random)
    without(history, lambda told: told.record == one.record and told.step is Step.LETTER)


def swap_two_first_deliveries_of_a_key(history: History, random: Random) -> None:
    """Before any kill, which could be the reason."""
    first: dict[tuple[str, int], Told] = {}
    until_ns = min((fault.began_ns for fault in history.faults), default=1 << 62)
    for told in history.told:
        if told.step is Step.GOT and told.at_ns < until_ns:
            first.setdefault(told.record, told)
    pairs = [
        (one, other)
        for key in {told.key for told in first.values()}
        for one, other in pairwise([told for told in first.values() if told.key == key])
    ]
    assume(pairs)
    one, other = random.choice(sorted(pairs))
    times = {one: other.at_ns, other: one.at_ns}
    swapped = (told._replace(at_ns=times.get(told, told.at_ns)) for told in history.told)
    history.told = sorted(swapped, key=lambda told: told.at_ns)


def move_a_state_back(history: History, random: Random) -> None:
    moved = [
        (at, shard)
        for at, (before, after) in enumerate(pairwise(history.samples), 1)
        for shard, state in after.states.items()
        if state.checkpoint_text != before.states[shard].checkpoint_text
        or state.read_position != before.states[shard].read_position
    ]
    assume(moved)
    at, shard = random.choice(moved)
    sample = history.samples[at]
    back = sample.states | {shard: history.samples[at - 1].states[shard]}
    again = Sample(sample.ended_ns + 1, sample.ended_ns + 2, back)
    history.samples = [*history.samples[: at + 1], again, *history.samples[at + 1 :]]


def pass_a_record(history: History, random: Random) -> None:
    """A state has read a record that no line has resolved yet."""
    first: dict[tuple[str, int], Told] = {}
    for told in outcomes(history):
        first.setdefault(told.record, told)
    one = random.choice(sorted(first.values()))
    position = Position.after(SequenceNumber(one.sequence))
    state = ShardState(shard_id=one.shard_id, read_position=position)
    sample = Sample(one.at_ns - 2, one.at_ns - 1, {one.shard_id: state})
    history.samples = sorted([*history.samples, sample], key=lambda sample: sample.began_ns)


def pass_an_unresolved_record(history: History, random: Random) -> None:
    waiting = [
        (at, state)
        for at, sample in enumerate(history.samples)
        for state in sample.states.values()
        if state.unresolved
    ]
    assume(waiting)
    at, state = random.choice(waiting)
    passed = replace(state, checkpoint=state.unresolved[0].first)
    states = history.samples[at].states | {state.shard_id: passed}
    samples = list(history.samples)
    samples[at] = samples[at]._replace(states=states)
    history.samples = samples


def deliver_again_at_the_end(history: History, random: Random) -> None:
    one = acked(history, random)
    at_the_end(history, one._replace(step=Step.GOT), one)


def deliver_twice(history: History, random: Random) -> None:
    """The same delivery again, while the first one is pending."""
    one = random.choice([told for told in history.told if told.step is Step.GOT])
    again = one._replace(at_ns=one.at_ns + 1)
    history.told = sorted([*history.told, again], key=lambda told: told.at_ns)


def deliver_again_right_after_the_ack(history: History, random: Random) -> None:
    one = acked(history, random)
    again = one._replace(at_ns=one.at_ns + 1, step=Step.GOT)
    history.told = sorted([*history.told, again], key=lambda told: told.at_ns)


def write_a_letter_again(history: History, random: Random) -> None:
    at_the_end(history, dying(history, random))


def write_a_letter_of_a_good_record(history: History, random: Random) -> None:
    at_the_end(history, acked(history, random)._replace(step=Step.LETTER, reason="bad"))


def write_a_letter_instead_of_an_ack(history: History, random: Random) -> None:
    one = acked(history, random)
    history.told = [
        told._replace(step=Step.LETTER, reason="bad")
        if told.record == one.record and told.step is Step.ACK
        else told
        for told in history.told
    ]


def leave_the_reason_out(history: History, random: Random) -> None:
    one = dying(history, random)
    history.told = [told._replace(reason="") if told == one else told for told in history.told]


def write_other_attempts(history: History, random: Random) -> None:
    one = dying(history, random)
    other = one._replace(attempt=one.attempt + 1)
    history.told = [other if told == one else told for told in history.told]


def ack_a_record_that_must_die(history: History, random: Random) -> None:
    one = dying(history, random)
    history.told = [
        told._replace(step=Step.ACK, reason="") if told == one else told for told in history.told
    ]


def deliver_what_nobody_put(history: History, random: Random) -> None:
    one = acked(history, random)._replace(sequence=99, number=1_000)
    at_the_end(history, one._replace(step=Step.GOT), one)


def change_the_last_state(history: History, shard: str, **fields: object) -> None:
    last = history.samples[-1]
    states = last.states | {shard: replace(last.states[shard], **fields)}
    history.samples = [*history.samples[:-1], last._replace(states=states)]


def leave_a_record_unresolved(history: History, random: Random) -> None:
    number = SequenceNumber(random.choice(history.puts).sequence)
    waiting = UnresolvedRecord(first=number, last=number, attempts=1, due_ms=0)
    change_the_last_state(history, OTHER, unresolved=(waiting,))


def leave_a_closed_shard_unfinished(history: History, _random: Random) -> None:
    last = max(put.sequence for put in history.puts if put.shard_id == PARENT)
    position = Position.after(SequenceNumber(int(last)))
    change_the_last_state(history, PARENT, read_position=position)


def leave_a_shard_unread(history: History, random: Random) -> None:
    put = random.choice(history.puts)
    change_the_last_state(history, put.shard_id, read_position=TRIM_HORIZON)


def lose_a_state(history: History, _random: Random) -> None:
    last = history.samples[-1]
    states = {shard: state for shard, state in last.states.items() if shard != OTHER}
    history.samples = [*history.samples[:-1], last._replace(states=states)]


SPOILS = [
    drop_the_acks_of_a_record,
    lose_the_letters_of_a_record,
    swap_two_first_deliveries_of_a_key,
    move_a_state_back,
    pass_a_record,
    pass_an_unresolved_record,
    deliver_again_at_the_end,
    deliver_twice,
    deliver_again_right_after_the_ack,
    write_a_letter_again,
    write_a_letter_of_a_good_record,
    write_a_letter_instead_of_an_ack,
    leave_the_reason_out,
    write_other_attempts,
    ack_a_record_that_must_die,
    deliver_what_nobody_put,
    leave_a_record_unresolved,
    leave_a_closed_shard_unfinished,
    leave_a_shard_unread,
    lose_a_state,
]
KINDS = st.sampled_from(["records", "batches"])
SEEDS = st.integers(0, 2**32)


@given(SEEDS, KINDS)
def test_a_correct_consumer_is_accepted(seed: int, kind: str) -> None:
    """Wherever it is killed. Each of its duplicates is a fault's."""
    verdict = judge(Drilled(drill="random", history=good(seed, kind)))
    assert verdict.ok, verdict.broken
    assert verdict.acked + verdict.letters == verdict.records
    assert verdict.unexplained == 0


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
@given(SEEDS, KINDS)
def test_each_way_to_spoil_a_history_is_rejected(
    spoil: Callable[[History, Random], None], seed: int, kind: str
) -> None:
    history = good(seed, kind)
    spoil(history, Random(seed))  # noqa: S311  # to be repeated
    assert broken_promises(history)
