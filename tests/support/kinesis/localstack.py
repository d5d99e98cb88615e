"""LocalStack for tests: one for the session, and streams on it that are split, merged and scaled
with bounded waits.
"""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from localstack import emulator, runtime
from tests.support.kinesis.services import create_stream, kinesis_client, wait_until_active

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHANGE_LIMIT_S = 60.0


@pytest.fixture(scope="session")
def localstack_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """LocalStack, serving Kinesis in processes of its own; one for the session. Where it is not set
    up, tests fail and say so.
    """
    try:
        with runtime.running(tmp_path_factory.mktemp("localstack") / "localstack.log") as service:
            yield service.endpoint_url
    except (runtime.LocalStackError, emulator.EmulatorError) as exc:
        pytest.fail(str(exc))


@dataclass(frozen=True, slots=True)
class LocalStackStream:
    """A stream that no other test uses, its endpoint, and a client of it. Changes of its shards
    block until it is ACTIVE.
    """

    name: str
    endpoint_url: str
    client: Any

    def shards(self) -> list[dict[str, Any]]:
        """All shards that the service still lists, open and closed, over all pages."""
        page = self.client.list_shards(StreamName=self.name)
        found: list[dict[str, Any]] = page["Shards"]
        while token := page.get("NextToken"):
            page = self.client.list_shards(NextToken=token)
            found += page["Shards"]
        return found

    def open_shard_ids(self) -> list[str]:
        """The open shards in the order of their hash keys."""
        still_open = [
            shard
            for shard in self.shards()
            if "EndingSequenceNumber" not in shard["SequenceNumberRange"]
        ]
        return [shard["ShardId"] for shard in sorted(still_open, key=_first_hash_key)]

    def put(self, data: bytes, key: str, *, hash_key: int | None = None) -> tuple[str, str]:
        """Put one record; returns its shard and its sequence number. `hash_key` overrides the MD5
        of the key.
        """
        explicit = {} if hash_key is None else {"ExplicitHashKey": str(hash_key)}
        answer = self.client.put_record(
            StreamName=self.name, Data=data, PartitionKey=key, **explicit
        )
        return answer["ShardId"], answer["SequenceNumber"]

    def split(self, shard_id: str) -> list[str]:
        """Split an open shard in the middle of its hash keys; its two children, lower first."""
        shard = next(shard for shard in self.shards() if shard["ShardId"] == shard_id)
        middle = (_first_hash_key(shard) + int(shard["HashKeyRange"]["EndingHashKey"]) + 1) // 2
        with self._change() as new:
            self.client.split_shard(
                StreamName=self.name, ShardToSplit=shard_id, NewStartingHashKey=str(middle)
            )
        return new

    def merge(self, shard_id: str, adjacent_id: str) -> str:
        """Merge two open neighbours; their child."""
        with self._change() as new:
            self.client.merge_shards(
                StreamName=self.name, ShardToMerge=shard_id, AdjacentShardToMerge=adjacent_id
            )
        (child,) = new
        return child

    def update_shard_count(self, count: int) -> list[str]:
        """Scale to `shards` open shards; returns the new ones. Shards that are opened and closed in
        between are not among them.
        """
        with self._change() as new:
            self.client.update_shard_count(
                StreamName=self.name, TargetShardCount=count, ScalingType="UNIFORM_SCALING"
            )
        return new

    def recreate(self, *, shards: int = 1) -> None:
        """Delete the stream and create it again under its name."""
        self.client.delete_stream(StreamName=self.name)
        deadline = time.monotonic() + _CHANGE_LIMIT_S
        while self._exists():
            if time.monotonic() > deadline:
                pytest.fail(
                    f"stream {self.name} is still there {_CHANGE_LIMIT_S:.0f} s after it was "
                    "deleted"
                )
            time.sleep(0.02)  # noqa: TID251  # the service announces nothing: it can only be asked
        create_stream(self.client, self.name, shards=shards)

    def _exists(self) -> bool:
        try:
            self.client.describe_stream_summary(StreamName=self.name)
        except self.client.exceptions.ResourceNotFoundException:
            return False
        return True

    @contextmanager
    def _change(self) -> Iterator[list[str]]:
        """A context for a change of the shards. At its end the stream is ACTIVE, and the list holds
        the new open shards.
        """
        before = set(self.open_shard_ids())
        new: list[str] = []
        yield new
        wait_until_active(self.client, self.name, limit_s=_CHANGE_LIMIT_S)
        new += [shard_id for shard_id in self.open_shard_ids() if shard_id not in before]


@contextmanager
def stream_on(endpoint_url: str, *, shards: int = 1) -> Iterator[LocalStackStream]:
    """A new stream with a client of its own. It is deleted at the end: the shards of all streams
    count towards the service's limit.
    """
    with kinesis_client(endpoint_url) as client:
        stream = LocalStackStream(f"localstack-{uuid.uuid4().hex}", endpoint_url, client)
        create_stream(client, stream.name, shards=shards)
        try:
            yield stream
        finally:
            client.delete_stream(StreamName=stream.name)


@pytest.fixture
def localstack_stream(localstack_endpoint: str) -> Iterator[LocalStackStream]:
    """A stream of one shard. A test that needs more uses `stream_on(localstack_endpoint,
    shards=...)`.
    """
    with stream_on(localstack_endpoint) as stream:
        yield stream


def _first_hash_key(shard: dict[str, Any]) -> int:
    return int(shard["HashKeyRange"]["StartingHashKey"])
