"""A stream of a Kinesis that is there already: an emulator, or AWS."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kinesis_spout.config import StreamRef
from kinesis_spout.errors import KinesisError, ServiceUnavailableError, StreamNotFoundError
from kinesis_spout.service.botocore_connection import KinesisConnection
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import OutgoingRecord, RecordPutter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.config import AwsConfig
    from kinesis_spout.service.shard_info import ShardInfo

log = logging.getLogger("kinesis_spout")
FIRST_SHARDS = 4
_ACTIVE_LIMIT_S = 300.0  # AWS takes a minute for most changes
_POLL_S = 0.5
_FIRST_ANSWER_S = 5.0
_REMOVAL_S = 60.0
_PUT_AGAIN_S = 0.1


class SeenShard(NamedTuple):
    """A shard of a listing. The hash keys are inclusive at both ends."""

    shard_id: str
    parents: tuple[str, ...]
    is_open: bool
    hash_start: int
    hash_end: int


class RemoteStream:
    """Made when its context begins, and removed when that ends, also after an error or a signal."""

    fake = None

    def __init__(self, name: str, aws: AwsConfig, *, is_local: bool) -> None:
        self.name = name
        self.aws = aws
        self.is_local = is_local
        stream = StreamRef(name)
        self._connection = KinesisConnection(aws, stream)
        self._client = KinesisClient(aws, stream)
        self._putter = RecordPutter(self._connection)
        self._tick = threading.Event()

    def __enter__(self) -> Self:
        first = KinesisConnection(self.aws, StreamRef(self.name), retry_for_s=_FIRST_ANSWER_S)
        try:
            with closing(first):
                arguments = {"StreamName": self.name, "ShardCount": FIRST_SHARDS}
                first.call("create_stream", arguments, lambda answer: answer)
            self._wait_until_active()
        except BaseException:
            self._remove(retry_for_s=_FIRST_ANSWER_S)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove(retry_for_s=_REMOVAL_S)

    def put(self, records: Sequence[tuple[str, bytes]]) -> list[tuple[str, int]]:
        placed: dict[int, tuple[str, int]] = {}
        while len(placed) < len(records):
            missing = [at for at in range(len(records)) if at not in placed]
            results = self._putter.put_once([OutgoingRecord(*records[at]) for at in missing])
            for at, result in zip(missing, results, strict=True):
                if result.shard_id is not None and result.sequence_number is not None:
                    placed[at] = result.shard_id, int(result.sequence_number)
            if len(placed) < len(records):
                self._tick.wait(_PUT_AGAIN_S)  # a shard's limit
        return [placed[at] for at in range(len(records))]

    def shards(self) -> list[SeenShard]:
        return [_seen(one) for one in self._client.list_shards()]

    def split(self, shard_id: str) -> None:
        one = next(one for one in self.shards() if one.shard_id == shard_id)
        middle = (one.hash_start + one.hash_end + 1) // 2
        self._call("split_shard", ShardToSplit=shard_id, NewStartingHashKey=str(middle))
        self._wait_until_active()

    def merge(self, shard_id: str, adjacent_id: str) -> None:
        self._call("merge_shards", ShardToMerge=shard_id, AdjacentShardToMerge=adjacent_id)
        self._wait_until_active()

    def update_shard_count(self, shards: int) -> None:
        self._call("update_shard_count", TargetShardCount=shards, ScalingType="UNIFORM_SCALING")
        self._wait_until_active()

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        given = {"StreamName": self.name} | arguments
        return self._connection.call(operation, given, lambda answer: answer)

    def _wait_until_active(self) -> None:
        deadline_s = time.monotonic() + _ACTIVE_LIMIT_S
        while self._client.describe().status != "ACTIVE":
            if time.monotonic() > deadline_s:
                raise ServiceUnavailableError(
                    f"{self._client.where} is not active after {_ACTIVE_LIMIT_S:.0f} s",
                    "look at the stream in the AWS console and delete it",
                )
            self._tick.wait(_POLL_S)

    def _remove(self, *, retry_for_s: float) -> None:
        """Remove the stream if it is there. It need not be active. If that fails, a warning names
        it: an error that ended the drill says more.
        """
        self._client.close()
        self._connection.close()
        last = KinesisConnection(self.aws, StreamRef(self.name), retry_for_s=retry_for_s)
        arguments = {"StreamName": self.name, "EnforceConsumerDeletion": True}
        try:
            with closing(last):
                last.call("delete_stream", arguments, lambda answer: answer)
        except StreamNotFoundError:
            pass
        except KinesisError as exc:
            log.warning("%s may still exist. Delete it by hand: %s", last.where, exc)


def _seen(one: ShardInfo) -> SeenShard:
    return SeenShard(one.shard_id, one.parents, not one.is_closed, *one.hash_key_range)
