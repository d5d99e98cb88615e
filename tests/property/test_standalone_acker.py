"""Random trees of tuples, reported in random orders, against a model that keeps sets: the acker
ends each root when the model does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kinesis_spout.errors import IllegalAckerEventError
from kinesis_spout.tuple_tree import Acker, Ending, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_MS = st.none() | st.integers(0, 60)
MANY = st.integers(0, 2**16)


@dataclass
class ModelRoot:
    """A naive root: it keeps the set of names of its edges."""

    number: int
    deadline_ms: int | None
    outstanding: set[str] = field(default_factory=set)
    begun: bool = False
    failed: bool = False
    reason: str | None = None
    extended: list[int | None] = field(default_factory=list)
    ended: bool = False

    def tell(self, names: set[str]) -> Ending | None:
        self.outstanding ^= names
        return self.ending()

    def ending(self) -> Ending | None:
        if self.ended or not self.begun or not (self.failed or not self.outstanding):
            return None
        self.ended = True
        return Ending.FAILED if self.failed else Ending.ACKED

    def put_off(self, *deadlines: int | None) -> None:
        self.deadline_ms = (
            None if None in deadlines else max(ms for ms in deadlines if ms is not None)
        )


@dataclass
class ModelTuple:
    """A tuple from its creation to its outcome: by root, the names of its edges and their XOR, and
    later the tuples derived from it.
    """

    edges: dict[int, tuple[set[str], int]]
    made: dict[int, tuple[set[str], int]]


class AckerMachine(RuleBasedStateMachine):
    """Tuples are created and answered. The reports wait in a bag; they are delivered in any order,
    or never.
    """

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(1)  # noqa: S311  # ids that are to be different, not secret
        self.acker: Acker[str] = Acker(self.random)
        self.now_ms = 0
        self.roots: dict[int, ModelRoot] = {}
        self.tuples: list[ModelTuple] = []
        self.bag: list[Callable[[], None]] = []
        self.names = 0
        self.outcomes: Counter[int] = Counter()
        self.late = 0

    def edge(self) -> tuple[set[str], int]:
        self.names += 1
        return {f"edge {self.names}"}, self.acker.new_edge()

    def check(self, got: Outcome[str] | None, root: ModelRoot, ending: Ending | None) -> None:
        expected = (
            None if ending is None else Outcome(root.number, f"m{root.number}", ending, root.reason)
        )
        assert got == expected
        self.outcomes[root.number] += ending is not None

    def note_late(self, root: ModelRoot) -> bool:
        self.late += root.ended
        return root.ended

    def at(self, patience_ms: int | None) -> int | None:
        return None if patience_ms is None else self.now_ms + patience_ms

    @rule(tuples=st.integers(0, 3), init_by=PATIENCE_MS, patience_ms=PATIENCE_MS)
    def begin(self, tuples: int, init_by: int | None, patience_ms: int | None) -> None:
        """A message becomes tuples. They may be answered before the acker learns of the message,
        and its report may come too late.
        """
        number = self.acker.issue(deadline_ms=self.at(init_by))
        assert number not in self.roots
        root = self.roots[number] = ModelRoot(number, self.at(init_by))
        edges = [self.edge() for _ in range(tuples)]
        self.tuples += [ModelTuple({number: edge}, {}) for edge in edges]

        def init() -> None:
            names: set[str] = set()
            xor = 0
            for name, edge in edges:
                names ^= name
                xor ^= edge
            deadline_ms = self.at(patience_ms)
            if root.ended:
                with pytest.raises(IllegalAckerEventError):
                    self.acker.init(number, "late", xor, deadline_ms=deadline_ms)
                return
            got = self.acker.init(number, f"m{number}", xor, deadline_ms=deadline_ms)
            root.begun = True
            root.put_off(deadline_ms, *root.extended)
            self.check(got, root, root.tell(names))

        self.bag.append(init)

    @precondition(lambda self: self.tuples)
    @rule(parents=st.lists(MANY, min_size=1, max_size=3), children=st.integers(1, 3))
    def derive(self, parents: list[int], children: int) -> None:
        """Tuples are derived from one or several others: of one root, of different roots, or of one
        twice.
        """
        for _ in range(children):
            child = ModelTuple({}, {})
            for parent in [self.tuples[index % len(self.tuples)] for index in parents]:
                name, edge = self.edge()
                for root in parent.edges:
                    for side in (child.edges, parent.made):
                        names, value = side.get(root, (set(), 0))
                        side[root] = (names ^ name, value ^ edge)
            self.tuples.append(child)

    @precondition(lambda self: self.tuples)
    @rule(which=MANY, failing=st.sampled_from([False, False, False, True]))
    def answer(self, which: int, failing: bool) -> None:  # noqa: FBT001  # Hypothesis passes by name
        """A tuple is acked or failed; each of its roots gets a report of its own."""
        done = self.tuples.pop(which % len(self.tuples))
        for number, (names, value) in done.edges.items():
            made_names, made = done.made.get(number, (set(), 0))
            self.bag.append(
                self.failure(number)
                if failing
                else self.ack(number, names ^ made_names, value ^ made)
            )

    def ack(self, number: int, names: set[str], value: int) -> Callable[[], None]:
        root = self.roots[number]

        def tell() -> None:
            late = self.note_late(root)
            self.check(self.acker.ack(number, value), root, None if late else root.tell(names))

        return tell

    def failure(self, number: int) -> Callable[[], None]:
        root = self.roots[number]

        def tell() -> None:
            reason = f"reason {self.names}"
            if not self.note_late(root) and not root.failed:
                root.failed, root.reason = True, reason
            self.check(self.acker.fail(number, reason), root, root.ending())

        return tell

    @precondition(lambda self: self.bag)
    @rule(order=st.lists(MANY, min_size=1, max_size=10))
    def deliver(self, order: list[int]) -> None:
        """Some of the reports in the bag arrive."""
        for index in order:
            if self.bag:
                self.bag.pop(index % len(self.bag))()

    @precondition(lambda self: self.roots)
    @rule(which=MANY, patience_ms=PATIENCE_MS)
    def extend(self, which: int, patience_ms: int | None) -> None:
        """A tuple extends its deadline."""
        root = list(self.roots.values())[which % len(self.roots)]
        deadline_ms = self.at(patience_ms)
        assert self.acker.extend(root.number, deadline_ms) is not root.ended
        if not self.note_late(root):
            root.extended.append(deadline_ms)
            root.put_off(root.deadline_ms, deadline_ms)

    @rule(passed_ms=st.integers(0, 40))
    def expire(self, passed_ms: int) -> None:
        """Time passes; due roots end in the order of their deadlines."""
        self.now_ms += passed_ms
        due = sorted(
            (ms, root.number)
            for root in self.live()
            if (ms := root.deadline_ms) is not None and ms <= self.now_ms
        )
        begun = [number for _, number in due if self.roots[number].begun]
        assert self.acker.expire(self.now_ms) == [
            Outcome(number, f"m{number}", Ending.TIMED_OUT) for number in begun
        ]
        for _, number in due:
            self.roots[number].ended = True
        self.outcomes.update(begun)

    @precondition(lambda self: self.roots)
    @rule(which=MANY)
    def withdraw(self, which: int) -> None:
        """The message gets its outcome in another way."""
        root = list(self.roots.values())[which % len(self.roots)]
        assert self.acker.withdraw(root.number) is not root.ended
        root.ended = True

    def live(self) -> list[ModelRoot]:
        return [root for root in self.roots.values() if not root.ended]

    @invariant()
    def agrees(self) -> None:
        live = self.live()
        assert len(self.acker) == len(live)
        assert all(root.number in self.acker for root in live)
        assert self.acker.next_deadline_ms() == min(
            (ms for root in live if (ms := root.deadline_ms) is not None), default=None
        )
        assert self.acker.late == self.late

    def teardown(self) -> None:
        """After all answers and reports nothing is left, and no root has ended twice."""
        while self.tuples:
            self.answer(0, failing=False)
        while self.bag:
            self.bag.pop(self.random.randrange(len(self.bag)))()
        self.agrees()
        assert (len(self.acker), self.live()) == (0, [])
        assert set(self.outcomes.values()) <= {0, 1}


TestAcker = AckerMachine.TestCase
