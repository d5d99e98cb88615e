"""What a spout hands over: a record, and the means to tell what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.spout.scheduler import SpoutDelivery
from scheme.record import Record

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Protocol, Self

    from kinesis_spout.tuple_tree.tracked_tuple import TupleTree
    from scheme.record_scheme import RecordScheme

    class Outcomes(Protocol):
        """Where outcomes are told: the spout, from its opening to its closing."""

        @property
        def stream_name(self) -> str: ...

        def ack(self, emission: SpoutEmission) -> bool: ...

        def fail(self, emission: SpoutEmission, reason: str | None, *, retry: bool) -> bool: ...

        def tree(self, emission: SpoutEmission) -> TupleTree: ...

        def extend(self, emission: SpoutEmission, timeout_s: float | None) -> bool: ...


class FailRecordError(Exception):
    """Raised in a `with emission:` block: the record has failed, and the loop goes on. Without
    `retry` it is dead-lettered.
    """

    def __init__(self, reason: str = "", *, retry: bool = True) -> None:
        super().__init__(reason)
        self.retry = retry


class SpoutEmission(msgspec.Struct, frozen=True, eq=False):
    """One hand-over of one record. As a context manager it acks at the end, and fails when the
    block raises.

    `attempt` counts deliveries from 1. `delivery` is how the spout finds the record. Outcomes may
    be told from any thread, once; a late ack of an earlier attempt still counts. The repr leaves
    the payload out. A struct, for one is made for every record, and this is the cheapest object
    that can be made.
    """

    _outcomes: Outcomes
    data: bytes
    delivery: SpoutDelivery
    _decoded: tuple[Any, ...] | None = None

    @classmethod
    def of(cls, outcomes: Outcomes, delivery: SpoutDelivery) -> SpoutEmission:
        return cls(outcomes, delivery.run.data[delivery.index], delivery)

    @property
    def attempt(self) -> int:
        return self.delivery.attempt

    def decoded(self, scheme: RecordScheme) -> SpoutEmission:
        """The same with the values that the scheme makes of the payload. Raises what
        that raises.
        """
        return msgspec.structs.replace(self, _decoded=scheme.decode(self.record))

    @property
    def values(self) -> tuple[Any, ...]:
        """What the scheme made of the payload; the payload alone without a scheme."""
        return (self.data,) if self._decoded is None else self._decoded

    @property
    def message_id(self) -> str:
        """`shardId:sequence:attempt`, by which `KinesisSpout.ack` and `fail` take outcomes."""
        return f"{self.delivery.shard_id}:{self.sequence_number}:{self.attempt}"

    @property
    def shard_id(self) -> str:
        return self.delivery.shard_id

    @property
    def sequence_number(self) -> str:
        return self.delivery.sequence_number

    @property
    def partition_key(self) -> str:
        return self.delivery.partition_key

    @property
    def approximate_arrival_ms(self) -> int:
        """Milliseconds since 1970 UTC, by the service's clock."""
        return self.delivery.arrival_ms

    @property
    def record(self) -> Record:
        """All of it as one value."""
        return Record(
            stream_name=self._outcomes.stream_name,
            shard_id=self.shard_id,
            sequence_number=self.sequence_number,
            partition_key=self.partition_key,
            data=self.data,
            approximate_arrival_ms=self.approximate_arrival_ms,
            attempt=self.attempt,
        )

    def ack(self) -> bool:
        """The record was processed. False when that did not count: acked, or dead-lettered, before;
        or the spout was closed.
        """
        return self._outcomes.ack(self)

    def fail(self, reason: str | None = None, *, retry: bool = True) -> bool:
        """The record was not processed: it comes again after a while, or is dead-lettered: at once
        without `retry`.

        False when that did not count: another outcome of this emission was told before, or it has
        timed out.
        """
        return self._outcomes.fail(self, reason, retry=retry)

    def extend(self, timeout_s: float | None) -> bool:
        """Let the emission time out so many seconds from now instead (None: never). False when it
        is not pending any more.
        """
        return self._outcomes.extend(self, timeout_s)

    def tree(self) -> TupleTree:
        """For work that fans out to threads or tasks: the emission is acked when all parts are
        done, and failed when one fails.

        It stands or falls as a whole, and is emitted again as a whole. Not to be used together with
        `with emission:`, which would answer too. Raises `SpoutClosedError` of a spout that is not
        open any more.
        """
        return self._outcomes.tree(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """An error goes on to the caller, but for `FailRecordError`, which is meant for the record
        alone.

        An interrupt (`KeyboardInterrupt`, `SystemExit`) is no fault of the record: it stays without
        an outcome and comes again.
        """
        if error is None:
            self.ack()
        elif isinstance(error, FailRecordError):
            self.fail(str(error) or None, retry=error.retry)
            return True
        elif isinstance(error, Exception):
            self.fail(f"{type(error).__name__}: {error}")
        return False

    def __repr__(self) -> str:
        return f"SpoutEmission({self.message_id})"
