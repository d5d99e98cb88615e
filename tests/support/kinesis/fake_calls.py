"""Calls to a FakeKinesis in the process, with a stopped clock: for tests of the fake itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.testing import FakeKinesis, FakeKinesisSettings, ManualClock
from kinesis_spout.testing.service import requests

if TYPE_CHECKING:
    from kinesis_spout.testing.service.answers import GetRecordsAnswer

STREAM = "orders"
SHARD = "shardId-000000000000"


def new_fake(*, shards: int = 1, **settings: Any) -> tuple[FakeKinesis, ManualClock]:
    """A fake with one stream, and its clock."""
    clock = ManualClock()
    fake = FakeKinesis(settings=FakeKinesisSettings(**settings), clock=clock)
    fake.create(STREAM, shards=shards)
    return fake, clock


def iterator(
    fake: FakeKinesis, kind: str = "TRIM_HORIZON", *, shard_id: str = SHARD, **members: Any
) -> str:
    request = requests.GetShardIterator(
        stream_name=STREAM, shard_id=shard_id, shard_iterator_type=kind, **members
    )
    return fake.get_shard_iterator(request).shard_iterator


def page(fake: FakeKinesis, start: str | None, *, limit: int | None = None) -> GetRecordsAnswer:
    return fake.get_records(requests.GetRecords(shard_iterator=start, limit=limit))


def data(answer: GetRecordsAnswer) -> list[bytes]:
    return [record.data for record in answer.records]
