"""The stream of a drill: what is put on it, and what shards it has. It belongs to a Kinesis that
exists already, an emulator or AWS, or to our own.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from copy import copy
from random import Random
from typing import TYPE_CHECKING, Any, Self

from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.drills.consumer import REGION, aws_of
from kinesis_spout.drills.history.events import Put
from kinesis_spout.drills.setting import DrillError
from kinesis_spout.errors import KinesisError, ServiceUnavailableError, StreamNotFoundError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import OutgoingRecord, RecordPutter
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer, FaultPlan
from kinesis_spout.threads import ThreadLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_spout.config import AwsConfig
    from kinesis_spout.service.shard_info import ShardInfo

log = logging.getLogger("kinesis_spout")
FIRST_SHARDS = 4
KEYS = 24
_ACTIVE_LIMIT_S = 300.0  # AWS takes a minute for most changes
_POLL_S = 0.5
_FIRST_ANSWER_S = 5.0
_REMOVAL_S = 60.0
_PUT_AGAIN_S = 0.1
_AGE_MS = 12 * 3_600_000  # of our own stream when a drill begins
_PADDING = b"." * 100
_INTERVAL_S = 0.05
_APART = 37  # the first numbers, so that all fates come soon


class DrillStream:
    """Made when its context begins, and removed when that ends, also after an error or a signal.
    Any thread may call it; its methods block on the service and raise `KinesisError`.

    - `aws`: where the job reaches it. `is_local`: that takes any credentials.
    - `fake` makes faults on demand, where it is of our own Kinesis.
    """

    fake: FakeKinesis | None = None

    def __init__(self, name: str, aws: AwsConfig, *, is_local: bool) -> None:
        self.name = name
        self.aws = self._own_aws = aws
        self.is_local = is_local
        self._client = KinesisClient(aws, StreamRef(name))
        self._putter = RecordPutter(self._client)
        self._tick = threading.Event()

    def __enter__(self) -> Self:
        try:
            self._call_apart("create_stream", _FIRST_ANSWER_S, ShardCount=FIRST_SHARDS)
            self._wait_until_active()
        except BaseException:
            self._remove(retry_for_s=_FIRST_ANSWER_S)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove(retry_for_s=_REMOVAL_S)

    def put(self, records: Sequence[tuple[str, bytes]]) -> list[tuple[str, int]]:
        """Put records with their partition keys, no two of one key. Returns the shard and the
        sequence number of each.
        """
        placed: dict[int, tuple[str, int]] = {}
        while missing := [at for at in range(len(records)) if at not in placed]:
            results = self._putter.put_once([OutgoingRecord(*records[at]) for at in missing])
            for at, result in zip(missing, results, strict=True):
                if result.shard_id is not None and result.sequence_number is not None:
                    placed[at] = result.shard_id, int(result.sequence_number)
            if len(placed) < len(records):
                self._tick.wait(_PUT_AGAIN_S)  # a shard's limit
        return [placed[at] for at in range(len(records))]

    def shards(self) -> tuple[ShardInfo, ...]:
        """All that the service lists, closed ones included."""
        return self._client.list_shards()

    def split(self, shard_id: str) -> None:
        """In the middle. Returns when the stream is active again, as all that reshard do."""
        one = next(one for one in self.shards() if one.shard_id == shard_id)
        middle = (sum(one.hash_key_range) + 1) // 2
        self._reshard("split_shard", ShardToSplit=shard_id, NewStartingHashKey=str(middle))

    def merge(self, shard_id: str, adjacent_id: str) -> None:
        self._reshard("merge_shards", ShardToMerge=shard_id, AdjacentShardToMerge=adjacent_id)

    def update_shard_count(self, shards: int) -> None:
        self._reshard("update_shard_count", TargetShardCount=shards, ScalingType="UNIFORM_SCALING")

    def _reshard(self, operation: str, **arguments: Any) -> None:
        given = {"StreamName": self.name} | arguments
        self._client.call(operation, given, lambda answer: answer)
        self._wait_until_active()

    def _call_apart(self, operation: str, retry_for_s: float, **arguments: Any) -> None:
        """Through a connection of its own, which is retried for so long."""
        last = KinesisClient(self._own_aws, StreamRef(self.name), retry_for_s=retry_for_s)
        with closing(last):
            last.call(operation, {"StreamName": self.name} | arguments, lambda answer: answer)

    def _wait_until_active(self) -> None:
        deadline_s = time.monotonic() + _ACTIVE_LIMIT_S
        while self._client.describe().status != "ACTIVE":
            if time.monotonic() > deadline_s:
                raise ServiceUnavailableError(
                    f"{self._client.where} is not active after {_ACTIVE_LIMIT_S:.0f} s",
                    "check and delete the stream in the AWS console",
                )
            self._tick.wait(_POLL_S)

    def _remove(self, *, retry_for_s: float) -> None:
        """Remove the stream if it is there. It need not be active. If that fails, a warning names
        it: an error that ended the drill says more.
        """
        self._client.close()
        try:
            self._call_apart("delete_stream", retry_for_s, EnforceConsumerDeletion=True)
        except StreamNotFoundError:
            pass
        except KinesisError as exc:
            log.warning(
                "%s may still exist. Delete the stream in the AWS console: %s",
                self._client.where,
                exc,
            )


class ServiceClock(SystemClock):
    """The clock of our own Kinesis. `ahead_ms`: by how much it is wrong; any thread may set it."""

    __slots__ = ("ahead_ms",)

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class OwnStream(DrillStream):
    """A stream of our own Kinesis, which runs in this process and listens on loopback. The drill
    has a server of its own, so no fault hits its own calls. `clock`: the service's.
    """

    fake: FakeKinesis

    def __init__(self, name: str) -> None:
        self.clock = ServiceClock()
        self.fake = FakeKinesis(clock=self.clock)
        unharmed = copy(self.fake)  # it has the same streams
        unharmed.faults = FaultPlan()
        self._servers = [FakeKinesisServer(one) for one in (self.fake, unharmed)]
        for server in self._servers:
            server.start()
        of_job, own = (
            aws_of(region=REGION, endpoint=server.endpoint_url, is_local=True)
            for server in self._servers
        )
        super().__init__(name, own, is_local=True)
        self.aws = of_job

    def __enter__(self) -> Self:
        # An older stream still exists when its clock is set back.
        self.clock.ahead_ms = -_AGE_MS
        super().__enter__()
        self.clock.ahead_ms = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        for server in self._servers:
            server.__exit__(None, None, None)


def numbered(key: str, number: int) -> bytes:
    """The data of a record, which states its key and number."""
    return f"{key} {number} ".encode() + _PADDING


class Producers:
    """Puts numbered records, in order for each key, in a thread of its own between `start` and
    `stop`. `puts`: those that the service has taken. `fail` gets the error that ends the thread.
    """

    def __init__(
        self,
        stream: DrillStream,
        fail: Callable[[Exception], None],
        *,
        records_per_s: float,
        seed: int,
        payload: Callable[[str, int], bytes] = numbered,
    ) -> None:
        self._stream = stream
        self._records_per_s = records_per_s
        self._random = Random(f"{seed} producers")  # noqa: S311  # keys to draw, not a secret
        self._payload = payload
        self._next = {f"key-{key}": key * _APART for key in range(KEYS)}
        self._due, self._last_s = 0.0, 0.0
        self._loop: ThreadLoop | None = None
        self._fail = fail
        self.puts: list[Put] = []

    def start(self) -> None:
        self._last_s = time.monotonic()
        self._loop = ThreadLoop.start("producers", self._put_due, self._fail)

    def stop(self) -> None:
        """Returns when the last put is answered. Idempotent."""
        if self._loop is not None:
            self._loop.stop()
            self._loop.join(None)

    def _put_due(self) -> float:
        now_s = time.monotonic()
        self._due += (now_s - self._last_s) * self._records_per_s
        self._last_s = now_s
        if count := min(int(self._due), KEYS):
            self._put(self._random.sample(list(self._next), count))
            self._due -= count
        return 0 if self._due >= 1 else _INTERVAL_S

    def _put(self, keys: Sequence[str]) -> None:
        """Put the next record of each key."""
        records = [(key, self._data(key, self._next[key])) for key in keys]
        at_ns = time.monotonic_ns()
        for key, (shard_id, sequence) in zip(keys, self._stream.put(records), strict=True):
            self.puts.append(Put(key, self._next[key], shard_id, sequence, at_ns))
            self._next[key] += 1

    def _data(self, key: str, number: int) -> bytes:
        """Raises `DrillError` for whatever the user's function raises, or if it makes no bytes."""
        payload = f"the payload of {key!r}, {number}"
        try:
            data = self._payload(key, number)
        except (Exception, SystemExit) as exc:
            raise DrillError(f"cannot make {payload}: {type(exc).__name__}: {exc}") from exc
        if not isinstance(data, bytes):
            raise DrillError(f"{payload} is of type {type(data).__name__}", "return bytes")
        return data
