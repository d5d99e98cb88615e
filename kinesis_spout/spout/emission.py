"""What a spout hands out: a record of a shard, with the methods that give it its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from kinesis_spout.errors import (
    NO_OUTCOME,
    FailRecordError,
    IllegalAckerEventError,
    KinesisError,
    failure_of,
)
from kinesis_spout.spout.metrics import ShardCounts, ShardMetrics
from kinesis_spout.spout.tracked_shard import Delivery
from scheme.record import Record
from state.tracker.transitions import Effect

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Protocol, Self

    from kinesis_spout.spout.tracked_shard import TrackedShard
    from kinesis_spout.tuple_tree import TupleTree
    from scheme.record_scheme import RecordScheme

    class Outcomes(Protocol):
        """Takes the outcomes of emissions: the scheduler (`SpoutScheduler`), which imports this."""

        @property
        def stream_name(self) -> str: ...

        def resolve(self, emission: SpoutEmission) -> bool: ...

        def record_failure(
            self, emission: SpoutEmission, reason: str | None, *, retry: bool = True
        ) -> Effect: ...

        def extend(self, emission: SpoutEmission, timeout_s: float | None) -> bool: ...

        def tree(self, emission: SpoutEmission) -> TupleTree: ...


COUNTED_FAILURES = frozenset({Effect.QUEUED, Effect.EXHAUSTED})


@dataclass(slots=True)
class EmissionBlock:
    """What was done inside a `with emission:` block.

    - `acked`: the outcome that the emission was given, whether it counted or not; None without one.
    - `tree`: a tuple tree that was made.
    - `depth`: how many blocks of the same emission are around the one that runs.
    """

    acked: bool | None = None
    tree: TupleTree | None = None
    depth: int = 0

    def answer(self, message_id: str, *, acked: bool) -> None:
        """Raises `IllegalAckerEventError` when the emission was given the other outcome before."""
        if self.acked is not None and self.acked is not acked:
            earlier, later = ("acked", "failed") if self.acked else ("failed", "acked")
            raise IllegalAckerEventError(
                f"emission {message_id} was {later} after it was {earlier} in the same `with` "
                "block. The first outcome counts",
                "ack or fail each emission only once in its `with` block",
            )
        self.acked = acked


@dataclass(slots=True, eq=False, repr=False)
class AssignedShard:
    """A shard that this spout reads: its records, its counts, its place in the rotations
    (`kinesis_spout.spout.rotation`), and the scheduler, which takes the outcomes of its emissions.
    """

    shard: TrackedShard
    scheduler: Outcomes
    # The `with emission:` blocks that run, by the delivery's number and attempt. None until
    # something is done inside: for most records nothing is, and this costs each of them.
    blocks: dict[tuple[str, int], EmissionBlock | None] = field(default_factory=dict)
    counts: ShardCounts = field(default_factory=ShardCounts)
    in_rotation: bool = False
    in_retry_rotation: bool = False
    is_released: bool = False  # outcomes of its deliveries are ignored from then on
    is_dirty: bool = False  # its state may have changed since it was stored

    def metrics(self, service_now_ms: int, refused_letters: int) -> ShardMetrics:
        """A snapshot: later events do not change it."""
        shard = self.shard
        counts = ShardCounts()
        counts.add(self.counts)
        checkpoint = shard.tracker.checkpoint
        return ShardMetrics(
            counts=counts,
            pending=shard.pending,
            queued=shard.waiting,
            lag_ms=shard.lag_ms(service_now_ms),
            checkpoint=None if checkpoint is None else str(checkpoint),
            refused=refused_letters,
        )

    def block(self, number: str, attempt: int) -> EmissionBlock | None:
        """The `with emission:` block that a delivery is in, if any."""
        key = number, attempt
        if key not in self.blocks:
            return None
        block = self.blocks[key] = self.blocks[key] or EmissionBlock()
        return block

    def answer(self, number: str, attempt: int, *, acked: bool) -> None:
        """Note the outcome of a delivery in the `with` block that it is in, if any. Raises
        `IllegalAckerEventError` when it was given the other outcome there before.
        """
        if (block := self.block(number, attempt)) is not None:
            block.answer(f"{self.shard.shard_id}:{number}:{attempt}", acked=acked)


class SpoutEmission(Delivery, frozen=True, eq=False):
    """One delivery of one record. As a context manager, it acks at the end of the block, and fails
    if the block raises an error. An outcome given inside the block stands; a second, contradicting
    one raises `kinesis_spout.errors.IllegalAckerEventError`.

    `attempt` counts deliveries from 1. `run`, `index` and `assigned` are internal: the spout finds
    the record by them. Any thread may give the outcome, once. A late ack of an earlier attempt
    still counts.

    The repr omits the payload.
    """

    assigned: AssignedShard
    _decoded: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, assigned: AssignedShard, delivery: Delivery) -> Self:
        return cls(delivery.run, delivery.index, delivery.attempt, delivery.data, assigned)

    def decoded(self, scheme: RecordScheme) -> SpoutEmission:
        """A copy with the values that the scheme decodes from the payload. Raises what the scheme
        raises.
        """
        return msgspec.structs.replace(self, _decoded=scheme.decode(self.record))

    @property
    def values(self) -> tuple[Any, ...]:
        """The values that the scheme decoded from the payload; without a scheme, the payload."""
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
        """None if the producer gave no key, which a stream with record distribution AUTO allows."""
        return self.run.keys[self.index]

    @property
    def approximate_arrival_ms(self) -> int:
        """Milliseconds since 1970 UTC, by Kinesis's clock."""
        return self.run.arrivals[self.index]

    @property
    def record(self) -> Record:
        """The record with all its fields."""
        return Record(
            stream_name=self.assigned.scheduler.stream_name,
            shard_id=self.shard_id,
            sequence_number=self.sequence_number,
            partition_key=self.partition_key,
            data=self.data,
            approximate_arrival_ms=self.approximate_arrival_ms,
            attempt=self.attempt,
            sub_sequence_number=self.sub_sequence_number,
        )

    def ack(self) -> bool:
        """Ack the record: it was processed. Returns False if the ack did not count, because the
        record was already acked or dead-lettered, or the spout is closed.
        """
        assigned = self.assigned
        if assigned.blocks:
            assigned.answer(self.number, self.attempt, acked=True)
        return assigned.scheduler.resolve(self)

    def fail(self, reason: str | None = None, *, retry: bool = True) -> bool:
        """Fail the record: it was not processed. It is redelivered after a delay; without `retry`,
        it is dead-lettered at once. `reason` is cut to 1,000 characters.

        Returns False if the failure did not count, because this emission already had an outcome or
        has timed out.
        """
        self.assigned.answer(self.number, self.attempt, acked=False)
        effect = self.assigned.scheduler.record_failure(self, reason, retry=retry)
        return effect in COUNTED_FAILURES

    def extend(self, timeout_s: float | None) -> bool:
        """Move the emission's deadline to `timeout_s` seconds from now (None: no deadline). Returns
        False if the emission is no longer pending, or the spout is closed. Raises `ConfigError` if
        the time is not a finite number.
        """
        return self.assigned.scheduler.extend(self, timeout_s)

    def tree(self) -> TupleTree:
        """Return a tuple tree, for work that fans out to threads or tasks. The emission is acked
        when all parts are acked, and fails when one part fails.

        The emission fails, and is redelivered, as a whole. If created in a
        `with emission:` block, the tree replaces the block's outcome, and the end of the block acks
        the tree's first tuple. After the spout is closed, the end of the tree no longer counts,
        just as an ack does not.
        """
        tree = self.assigned.scheduler.tree(self)
        if (block := self.assigned.block(self.number, self.attempt)) is not None:
            block.tree = tree
        return tree

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
                assigned.scheduler.resolve(self)
                return False
            block = EmissionBlock()
        if block.depth:
            block.depth -= 1
            assigned.blocks[key] = block
        if isinstance(error, NO_OUTCOME):
            return False
        if isinstance(error, FailRecordError) or (error is not None and block.acked is None):
            block.answer(self.message_id, acked=False)
            reason, retry = failure_of(error)
            assigned.scheduler.record_failure(self, reason, retry=retry)
        elif error is None and block.acked is None and block.tree is None:
            block.acked = True
            assigned.scheduler.resolve(self)
        if block.tree is not None and (error is not None or block.acked is not False):
            block.tree.__exit__(kind, error, None)
        return isinstance(error, FailRecordError)

    def __reduce__(self) -> NoReturn:
        raise KinesisError(
            f"emission {self.message_id} cannot be pickled for another process, because only this "
            "process can give it an outcome",
            "pass emission.record to the other process, and ack or fail the emission here",
        )

    def __repr__(self) -> str:
        return f"SpoutEmission({self.message_id})"
