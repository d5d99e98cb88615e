"""What a spout hands over: a record, and the means to tell what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheme.record import Record

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Protocol, Self

    from kinesis_spout.record_run import RecordRun
    from kinesis_spout.spout_core import ShardSeat

    class Outcomes(Protocol):
        """Where outcomes are told: the spout."""

        @property
        def stream_name(self) -> str: ...

        def tell_ack(self, emission: SpoutEmission) -> bool: ...

        def tell_fail(self, emission: SpoutEmission, reason: str | None, *, retry: bool) -> bool: ...

        def tell_extend(self, emission: SpoutEmission, timeout_s: float | None) -> bool: ...


class FailRecordError(Exception):
    """Raised in a `with emission:` block: the record has failed, and the loop goes on. Without `retry` it is dead-lettered."""

    def __init__(self, reason: str = "", *, retry: bool = True) -> None:
        super().__init__(reason)
        self.retry = retry


class SpoutEmission:
    """One hand-over of one record. As a context manager it acks at the end, and fails when the block raises.

    `values`: what the scheme made of the payload; the payload alone without a scheme. `attempt` counts deliveries from 1.
    Outcomes may be told from any thread, once; a late ack of an earlier attempt still counts. The repr leaves the payload out.
    """

    __slots__ = ("_at", "_outcomes", "_run", "_seat", "attempt", "values")

    def __init__(self, outcomes: Outcomes, seat: ShardSeat, run: RecordRun, at: int, attempt: int) -> None:
        self._outcomes = outcomes
        self._seat = seat
        self._run = run
        self._at = at
        self.attempt = attempt
        self.values: tuple[Any, ...] = (run.data[at],)

    @property
    def message_id(self) -> str:
        """`shardId:sequence:attempt`, by which `KinesisSpout.ack` and `fail` take outcomes."""
        return f"{self._seat.shard.shard_id}:{self._run.sequences[self._at]}:{self.attempt}"

    @property
    def shard_id(self) -> str:
        return self._seat.shard.shard_id

    @property
    def sequence_number(self) -> str:
        return str(self._run.sequences[self._at])

    @property
    def partition_key(self) -> str:
        return self._run.keys[self._at]

    @property
    def data(self) -> bytes:
        return self._run.data[self._at]

    @property
    def approximate_arrival_ms(self) -> int:
        """Milliseconds since 1970 UTC, by the service's clock."""
        return self._run.arrivals[self._at]

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
        """The record was processed. False when that did not count: acked, or dead-lettered, before; or the spout was closed."""
        return self._outcomes.tell_ack(self)

    def fail(self, reason: str | None = None, *, retry: bool = True) -> bool:
        """The record was not processed: it comes again after a while, or is dead-lettered: at once without `retry`.

        False when that did not count: another outcome of this emission was told before, or it has timed out.
        """
        return self._outcomes.tell_fail(self, reason, retry=retry)

    def extend(self, timeout_s: float | None) -> bool:
        """Let the emission time out so many seconds from now instead (None: never). False when it is not pending any more."""
        return self._outcomes.tell_extend(self, timeout_s)

    @property
    def place(self) -> tuple[ShardSeat, RecordRun, int, int]:
        """Where the spout finds it."""
        return self._seat, self._run, self._at, self.attempt

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        """An error goes on to the caller, but for `FailRecordError`, which is meant for the record alone.

        An interrupt (`KeyboardInterrupt`, `SystemExit`) is no fault of the record: it stays without an outcome and comes again.
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
