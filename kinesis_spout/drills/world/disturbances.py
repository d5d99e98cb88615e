"""Random faults of the service and random reshards, drawn from a seed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.testing import (
    drop,
    duplicate_listing,
    expired_iterator,
    internal_failure,
    limit_exceeded,
    replace,
    service_unavailable,
    slow,
    throttle,
    truncate,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from kinesis_spout.testing import FakeKinesis, Fault
    from kinesis_spout.testing.stream.hash_keys import HashKeyRange

READ, ITERATOR, LISTING = "GetRecords", "GetShardIterator", "ListShards"
MIN_SHARDS, MAX_SHARDS = 3, 8
_OUTAGES, _BURSTS = 0.01, 0.1  # of all disturbances
_OUTAGE_S = (2.0, 8.0)


def drawn_fault(random: Random) -> tuple[str, Fault]:
    """A fault, and the operation that it strikes."""
    anywhere = [
        internal_failure(),
        service_unavailable(),
        drop(),
        drop(processed=True),
        truncate(),
        _undecodable(),
        slow(random.uniform(0.1, 3.0)),
    ]
    of_operation = {
        READ: [throttle(), throttle(), expired_iterator(), expired_iterator()],
        ITERATOR: [throttle()],
        LISTING: [limit_exceeded(), duplicate_listing()],
    }
    operation = random.choices((READ, ITERATOR, LISTING), (6, 2, 2))[0]
    return operation, random.choice([*anywhere, *of_operation[operation]])


def _undecodable() -> Fault:
    """A whole answer whose JSON is cut."""
    return replace(lambda _request: msgspec.Raw(b'{"Records":[{"Data":"'))


def disturb(fake: FakeKinesis, random: Random, wait: Callable[[float], object]) -> None:
    """One more fault, in place of the one before: of a request or two mostly, of all of an
    operation until the next one at times, of all requests for some seconds now and then.
    """
    operation, fault = drawn_fault(random)
    fake.faults.clear()  # else, faults for a spout that waits would pile up, and never end
    drawn = random.random()
    if drawn < _OUTAGES:
        fake.faults.add(random.choice([service_unavailable(), drop()]), times=None)
        wait(random.uniform(*_OUTAGE_S))
    else:
        times = None if drawn < _BURSTS else random.randint(1, 2)
        fake.faults.add(fault, operation=operation, times=times)


def struck(fake: FakeKinesis) -> Counter[str]:
    """How often each fault was injected."""
    return Counter(
        f"{operation} {fault.code or ('undecodable' if fault.replace else fault.kind.value)}"
        for operation, fault in fake.faults.struck
    )


def empty_pages(fake: FakeKinesis, random: Random, stream: str) -> None:
    open_shards = [shard for shard in fake.shards(stream) if shard.is_open]
    fake.insert_empty_pages(stream, random.choice(open_shards).shard_id, random.randint(1, 10))


def reshard(fake: FakeKinesis, random: Random, stream: str) -> str:
    """Split or merge open shards at random. Returns which of them."""
    open_shards = sorted(
        (shard for shard in fake.shards(stream) if shard.is_open),
        key=lambda shard: shard.hash_keys.start,
    )
    splits = len(open_shards) < MAX_SHARDS and (
        len(open_shards) <= MIN_SHARDS or random.random() < 0.5
    )
    if splits:
        widest = max(open_shards, key=lambda shard: _width(shard.hash_keys))
        one = random.choice([widest, *open_shards])
        fake.split(stream, one.shard_id)
        return "split"
    at = random.randrange(len(open_shards) - 1)
    fake.merge(stream, open_shards[at].shard_id, open_shards[at + 1].shard_id)
    return "merge"


def _width(hash_keys: HashKeyRange) -> int:
    return hash_keys.end - hash_keys.start
