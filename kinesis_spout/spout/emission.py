"""What a spout hands out: a record with the methods that tell its outcome, and the letter of a
record that is exhausted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.errors import described, text_of
from kinesis_spout.spout.scheduler import EmissionBlock, SpoutDelivery
from scheme.record import Record

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Protocol, Self

    from kinesis_spout.tuple_tree.tracked_tuple import TupleTree
    from scheme.record_scheme import RecordScheme

    class Outcomes(Protocol):
        """Takes outcomes: the spout, from its opening to its closing."""

        @property
        def stream_name(self) -> str: ...

        def ack(self, emission: SpoutEmission) -> bool: ...

        def fail(self, emission: SpoutEmission, reason: str | None, *, retry: bool) -> bool: ...

        def tree(self, emission: SpoutEmission) -> TupleTree: ...

        def extend(self, emission: SpoutEmission, timeout_s: float | None) -> bool: ...


# In a `with emission:` block these are no outcome.
NO_OUTCOME = (KeyboardInterrupt, SystemExit, GeneratorExit)


class FailRecordError(Exception):
    """Raised in a `with emission:` block, it fails the record, and the loop goes on. Without
    `retry` the record is dead-lettered.
    """

    def __init__(self, reason: str = "", *, retry: bool = True) -> None:
        super().__init__(reason)
        self.retry = retry


class SpoutEmission(SpoutDelivery, frozen=True, eq=False):
    """One delivery of one record. As a context manager it acks at the end of the block, and fails
    when the block raises. An outcome that is given inside the block stands; a second one there that
    contradicts it raises `kinesis_spout.errors.IllegalAckerEventError`.

    `attempt` counts deliveries from 1. `run`, `index` and `assigned` are internal: how the spout
    finds the record. An outcome may be told from any thread, once. A late ack of an earlier attempt
    still counts.

    The repr omits the payload.
    """

    _decoded: tuple[Any, ...] | None = None

    def decoded(self, scheme: RecordScheme) -> SpoutEmission:
        """A copy with the values that the scheme makes of the payload. Raises what the scheme
        raises.
        """
        return msgspec.structs.replace(self, _decoded=scheme.decode(self.record))

    @property
    def values(self) -> tuple[Any, ...]:
        """The values that the scheme made of the payload; the payload alone without a scheme."""
        return (self.data,) if self._decoded is None else self._decoded

    @property
    def message_id(self) -> str:
        """`shardId:sequence[.sub]:attempt`, as `KinesisSpout.ack` and `fail` take it."""
        return f"{self.shard_id}:{self.number}:{self.attempt}"

    @property
    def shard_id(self) -> str:
        return self.assigned.shard.shard_id

    @property
    def partition_key(self) -> str | None:
        """None where the producer gave none, in a stream with record distribution AUTO."""
        return self.run.keys[self.index]

    @property
    def approximate_arrival_ms(self) -> int:
        """Milliseconds since 1970 UTC, by the service's clock."""
        return self.run.arrivals[self.index]

    @property
    def record(self) -> Record:
        """The record with all its fields."""
        return Record(
            stream_name=self._outcomes.stream_name,
            shard_id=self.shard_id,
            sequence_number=self.sequence_number,
            partition_key=self.partition_key,
            data=self.data,
            approximate_arrival_ms=self.approximate_arrival_ms,
            attempt=self.attempt,
            sub_sequence_number=self.sub_sequence_number,
        )

    def ack(self) -> bool:
        """The record was processed. False when the ack did not count: the record was acked or
        dead-lettered before, or the spout is closed.
        """
        assigned = self.assigned
        if assigned.blocks:
            self._answer(acked=True)
        outcomes: Outcomes = assigned.outcomes
        return outcomes.ack(self)

    def fail(self, reason: str | None = None, *, retry: bool = True) -> bool:
        """The record was not processed. It is delivered again after a delay; without `retry` it is
        dead-lettered at once. `reason` is cut to 1,000 characters.

        False when the failure did not count: this emission had an outcome before, or has timed out.
        """
        self._answer(acked=False)
        return self._outcomes.fail(self, reason, retry=retry)

    def extend(self, timeout_s: float | None) -> bool:
        """Move the emission's deadline to `timeout_s` seconds from now (None: never). False when it
        is not pending any more.
        """
        return self._outcomes.extend(self, timeout_s)

    def tree(self) -> TupleTree:
        """A tuple tree, for work that fans out to threads or tasks. The emission is acked when all
        parts are acked, and fails when one fails.

        The emission fails, and is delivered again, as a whole. Made in a `with emission:` block, it
        answers for the block, whose end acks the tree itself. Raises `SpoutClosedError` when the
        spout is not open any more.
        """
        tree = self._outcomes.tree(self)
        if (block := self.assigned.block(self.number, self.attempt)) is not None:
            block.tree = tree
        return tree

    @property
    def _outcomes(self) -> Outcomes:
        outcomes: Outcomes = self.assigned.outcomes
        return outcomes

    def _answer(self, *, acked: bool) -> None:
        """Note the outcome in the `with` block that this delivery is in, if any."""
        if (block := self.assigned.block(self.number, self.attempt)) is not None:
            block.answer(self.message_id, acked=acked)

    def __enter__(self) -> Self:
        blocks, key = self.assigned.blocks, (self.run.texts[self.index], self.attempt)
        if key in blocks:
            block = blocks[key] = blocks[key] or EmissionBlock()
            block.depth += 1
        else:
            blocks[key] = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Give the emission its outcome, unless it has got one inside the block. Exceptions
        propagate, except for `FailRecordError`, which is about the record alone.

        What ends the program or the block from outside (`NO_OUTCOME`) is not a failure of the
        record: it stays without an outcome and is delivered again.
        """
        assigned, key = self.assigned, (self.run.texts[self.index], self.attempt)
        block = assigned.blocks.pop(key, None)  # an ExitStack may leave without entering
        if block is None:
            if error is None:
                assigned.outcomes.ack(self)
                return False
            block = EmissionBlock()
        if block.depth:
            block.depth -= 1
            assigned.blocks[key] = block
        if error is None:
            self._returned(block)
        elif not isinstance(error, NO_OUTCOME):
            self._raised(block, error)
        return isinstance(error, FailRecordError)

    def _returned(self, block: EmissionBlock) -> None:
        if block.tree is not None:
            if block.acked is not False:
                block.tree.__exit__(None, None, None)
        elif block.acked is None:
            block.acked = True
            self._outcomes.ack(self)

    def _raised(self, block: EmissionBlock, error: BaseException) -> None:
        if isinstance(error, FailRecordError):
            block.answer(self.message_id, acked=False)
            self._outcomes.fail(self, text_of(error) or None, retry=_is_retried(error))
        elif block.acked is None:
            block.acked = False
            self._outcomes.fail(self, described(error), retry=True)
        if block.tree is not None:
            block.tree.__exit__(type(error), error, None)

    def __repr__(self) -> str:
        return f"SpoutEmission({self.message_id})"


def _is_retried(error: FailRecordError) -> bool:
    """A subclass, of the user, may not have called its `__init__`, or have a property instead."""
    try:
        return bool(error.retry)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # a user's property may raise anything
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that is not retried any more. At least once: a crash between the call and the next
    commit repeats it.

    - `attempts`: deliveries that had an outcome. `reason`: of the last failure.
    - `first_failure_ms`, `last_failure_ms`, `approximate_arrival_ms`: ms since 1970 UTC.
    - `data`, `partition_key`, `approximate_arrival_ms`: None where the stream does not have the
      record any more. `count` may then be above 1: the letter is for the `count` records from
      `sequence_number` to `last_sequence_number`.

    The repr omits payload and key.
    """

    stream_name: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int = 0
    last_sequence_number: str
    count: int = 1
    attempts: int
    reason: str | None
    first_failure_ms: int | None
    last_failure_ms: int | None
    data: bytes | None = field(repr=False)
    partition_key: str | None = field(repr=False)
    approximate_arrival_ms: int | None

    @property
    def message_id(self) -> str:
        """`shardId:sequence[.sub]:attempt` of the last delivery."""
        sub = f".{self.sub_sequence_number}" if self.sub_sequence_number else ""
        return f"{self.shard_id}:{self.sequence_number}{sub}:{self.attempts}"
