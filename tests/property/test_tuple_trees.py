"""Handles of random trees, answered in random orders and by many threads: each emission ends once,
with the outcome of its parts.
"""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from random import Random
from threading import Lock
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesis_spout.tuple_tree import (
    Acker,
    TrackedTuple,
    TupleTree,
    anchored_to,
    fail_timed_out,
)
from tests.support.spout.tuple_trees import TIMED_OUT, RecordingSpout

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = st.integers(0, 2**16)


class TreeMachine(RuleBasedStateMachine):
    """Handles of several trees. A tree is acked with its last handle, and failed by the first
    handle that fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self.acker: Acker[TupleTree] = Acker()
        self.told = RecordingSpout(self.acker)
        self.handles: list[tuple[TrackedTuple, frozenset[str]]] = []
        self.open: dict[str, int] = {}
        self.expected: Counter[tuple[str, str | None]] = Counter()
        self.trees = 0

    def add(self, handle: TrackedTuple, trees: frozenset[str]) -> None:
        self.handles.append((handle, trees))
        for name in trees & self.open.keys():
            self.open[name] += 1

    def end(self, name: str, outcome: str) -> None:
        del self.open[name]
        self.expected[name, outcome] += 1

    @rule(patience_ms=st.none() | st.integers(0, 60))
    def begin(self, patience_ms: int | None) -> None:
        self.trees += 1
        name = f"m{self.trees}"
        self.open[name] = 0
        self.add(TupleTree(self.acker, name, self.told, deadline_ms=patience_ms), frozenset({name}))

    @precondition(lambda self: self.handles)
    @rule(parents=st.lists(MANY, min_size=1, max_size=3))
    def derive(self, parents: list[int]) -> None:
        chosen = [self.handles[index % len(self.handles)] for index in parents]
        if len(chosen) == 1:
            self.add(chosen[0][0].child(), chosen[0][1])
        else:
            self.add(
                anchored_to(*(handle for handle, _ in chosen)),
                frozenset().union(*(trees for _, trees in chosen)),
            )

    @precondition(lambda self: self.handles)
    @rule(which=MANY, failing=st.sampled_from([False, False, False, True]))
    def answer(self, which: int, failing: bool) -> None:  # noqa: FBT001  # Hypothesis passes by name
        handle, trees = self.handles.pop(which % len(self.handles))
        assert handle.ended is not bool(trees & self.open.keys())
        if failing:
            handle.fail("bad")
        else:
            handle.ack()
        for name in trees & self.open.keys():
            self.open[name] -= 1
            if failing or not self.open[name]:
                self.end(name, "bad" if failing else "acked")

    @rule(now_ms=st.integers(0, 60))
    def expire(self, now_ms: int) -> None:
        before = len(self.told.outcomes)
        count = fail_timed_out(self.acker, now_ms)
        for name, outcome in self.told.outcomes[before:]:
            assert outcome == TIMED_OUT
            self.end(name, TIMED_OUT)
            count -= 1
        assert count == 0

    @invariant()
    def agrees(self) -> None:
        assert Counter(self.told.outcomes) == self.expected
        assert len(self.acker) == len(self.open)

    def teardown(self) -> None:
        while self.handles:
            self.answer(len(self.handles) // 2, failing=False)
        self.agrees()
        assert len(self.acker) == 0


TestTrees = TreeMachine.TestCase


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Threads switch as often as they can, not every 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Workers:
    """Threads that pass handles around. Each takes one, derives others from it and answers it,
    while time-outs run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.acker: Acker[TupleTree] = Acker()
        self.told = RecordingSpout(self.acker)
        self.work: SimpleQueue[tuple[TrackedTuple, frozenset[str], int]] = SimpleQueue()
        self.lock = Lock()
        self.left = 0
        self.begun: set[str] = set()
        self.failed: set[str] = set()

    def begin(self, name: str, deadline_ms: int) -> TupleTree:
        with self.lock:
            self.begun.add(name)
        return TupleTree(self.acker, name, self.told, deadline_ms=deadline_ms)

    def put(self, handle: TrackedTuple, names: frozenset[str], depth: int) -> None:
        with self.lock:
            self.left += 1
        self.work.put((handle, names, depth))

    def one(self, handle: TrackedTuple, names: frozenset[str], depth: int, random: Random) -> None:
        children = [handle.child() for _ in range(random.randrange(4) if depth < 4 else 0)]
        for child in children:
            self.put(child, names, depth + 1)
        if random.random() < 0.2:
            other = self.begin(f"{random.getrandbits(64)}", random.randrange(5, 15))
            self.put(anchored_to(handle, other), names | {other.message_id}, depth + 1)
            other.ack()
        if random.random() < 0.02:
            with self.lock:
                self.failed |= names
            handle.fail("bad")
        else:
            handle.ack()

    def run(self, number: int) -> None:
        random = Random(f"{self.seed}/{number}")  # noqa: S311  # a test's choices
        while self.left:
            try:
                handle, names, depth = self.work.get(timeout=0.01)
            except Empty:
                continue
            try:
                self.one(handle, names, depth, random)
                fail_timed_out(self.acker, random.randrange(8))
            finally:
                with self.lock:
                    self.left -= 1


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_pass_handles_around_end_each_tree_once(
    busy_switching: None, seed: int
) -> None:
    """Its parts or its deadline decide the outcome; no tree is left."""
    workers = Workers(seed)
    for number in range(200):
        workers.put(workers.begin(f"m{number}", 5 + number % 10), frozenset({f"m{number}"}), 0)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(workers.run, range(6), timeout=120))
    ends = workers.told.outcomes
    by_outcome: dict[str | None, set[str]] = {"acked": set(), "bad": set(), TIMED_OUT: set()}
    for name, outcome in ends:
        by_outcome[outcome].add(name)
    assert sorted(name for name, _ in ends) == sorted(workers.begun)
    assert all(by_outcome.values())
    assert by_outcome["bad"] <= workers.failed <= by_outcome["bad"] | by_outcome[TIMED_OUT]
    assert (len(workers.acker), workers.acker.next_deadline_ms()) == (0, None)


def test_children_made_in_many_threads_are_all_waited_for(busy_switching: None) -> None:
    """Several threads at a time derive children from one handle; its ack reports each of them."""
    acker: Acker[TupleTree] = Acker()
    told = RecordingSpout(acker)
    tree = TupleTree(acker, "m", told)
    with ThreadPoolExecutor(8) as pool:
        children = list(
            pool.map(lambda _: [tree.child() for _ in range(500)], range(8), timeout=60)
        )
        tree.ack()
        assert told.outcomes == []
        list(pool.map(lambda mine: [child.ack() for child in mine], children, timeout=60))
    assert told.outcomes == [("m", "acked")]
    assert len(acker) == 0
