"""A producer of random user records, most of them in aggregates, that knows what a reader of the
stream must do with each of them.

Aggregates and hash keys are made without the code under test. Each user record is JSON as
`spark_job_under_test` takes it, `{"n": 7, "kind": "good", ...}`, with a number of its own.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.aggregates.wire import aggregate, number, string, user
from tests.support.spark.source import STREAM

if TYPE_CHECKING:
    from random import Random

    from tests.support.spark.source import StreamUnderTest

HASH_KEYS = 2**128
LETTERS = "abc \u00e4\u20ac\U0001f600"
CHUNK = 100
"""Entries in a PutRecords: at most 500."""


class Shard(NamedTuple):
    """An open shard's hash keys, inclusive."""

    first: int
    last: int


class User(NamedTuple):
    n: int
    kind: str
    key: str
    explicit: int | None
    data: bytes

    @property
    def hash_key(self) -> int:
        return hash_key_of(self.key) if self.explicit is None else self.explicit


class Entry(NamedTuple):
    """A record to put. Without `users`, nobody gets anything of it, or it is malformed."""

    data: bytes
    key: str
    hash_key: int | None = None
    users: tuple[User, ...] = ()
    packed: bool = False
    malformed: tuple[int, ...] = ()
    """Sub-sequence numbers of records in it that are no JSON."""


@dataclass
class RandomProducer:
    """Puts records on the stream. Its list of shards is as old as the last `refresh`, as a
    producer's is after a reshard.

    - `kinds`, `ids`: outcome and message id, without the attempt, of each user record to deliver.
    - `malformed`: ids of records that are no JSON.
    - `left_out`: user records in aggregates on shards without their hash keys. Half of those that a
      reshard brought there are put again, with another number.
    """

    stream: StreamUnderTest
    random: Random
    kinds: dict[int, str] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    malformed: set[str] = field(default_factory=set)
    left_out: set[int] = field(default_factory=set)
    count: int = 0
    shards: list[Shard] = field(default_factory=list)

    def of(self, kind: str) -> set[int]:
        return {n for n, its in self.kinds.items() if its == kind}

    def refresh(self) -> None:
        self.shards = [_range_of(shard) for shard in self.stream.open_shards()]

    def put(self, count: int) -> None:
        """Put about `count` Kinesis records."""
        self._put([self._entry() for _ in range(count)])

    def put_aggregate(self, size: int, *, bad: int) -> int:
        """Put an aggregate of so many good user records; the one at `bad` always fails. Returns its
        number.
        """
        shard = self.random.choice(self.shards)
        users = [self._user(shard, "always" if at == bad else "good") for at in range(size)]
        self._put([self._packed(users)])
        return users[bad].n

    def _put(self, entries: list[Entry]) -> None:
        again: list[Entry] = []
        ranges = {one["ShardId"]: _range_of(one) for one in self._listed()}
        for start in range(0, len(entries), CHUNK):
            chunk = entries[start : start + CHUNK]
            answer = self.stream.client.put_records(
                StreamName=STREAM, Records=[_request(one) for one in chunk]
            )
            assert answer["FailedRecordCount"] == 0
            for entry, put in zip(chunk, answer["Records"], strict=True):
                strays = self._note(entry, put["ShardId"], put["SequenceNumber"], ranges)
                again += [_plain(self._like(one)) for one in strays if self.random.random() < 0.5]
        if again:
            self._put(again)

    def _note(
        self, entry: Entry, shard_id: str, sequence: str, ranges: dict[str, Shard]
    ) -> list[User]:
        """Remember where the record is; returns those of its user records that are left out."""
        self.stream.records.setdefault(shard_id, []).append(sequence)
        taken_by, strays = ranges[shard_id], []
        for sub, one in enumerate(entry.users):
            record_id = f"{shard_id}:{sequence}" + (f".{sub}" if sub else "")
            if entry.packed and not taken_by.first <= one.hash_key <= taken_by.last:
                self.left_out.add(one.n)
                strays.append(one)
            elif sub in entry.malformed:
                self.malformed.add(record_id)
            else:
                self.kinds[one.n], self.ids[one.n] = one.kind, record_id
        if not entry.users:
            self.malformed |= {f"{shard_id}:{sequence}" for _ in entry.malformed}
        return strays

    # random values -------------------------------------------------------------------------------
    def _entry(self) -> Entry:
        random, shard = self.random, self.random.choice(self.shards)
        form = random.choices(
            ("packed", "plain", "damaged", "nested", "empty", "foreign"),
            (70, 18, 3, 3, 2, 4),
        )[0]
        users = [self._user(shard) for _ in range(random.choice((1, 2, 3, 10, 40, 120)))]
        if form == "plain":
            return _plain(users[0])
        packed = self._packed(users)
        if form == "damaged":
            broken = bytearray(packed.data)
            broken[random.randrange(4, len(broken))] ^= 1 << random.randrange(8)
            return Entry(bytes(broken), "a", packed.hash_key, malformed=(0,))
        if form == "nested":
            at = random.randrange(len(users))
            users[at] = users[at]._replace(data=packed.data)
            return self._packed(users)._replace(malformed=(at,))
        if form == "empty":
            return Entry(aggregate([b"unused"], []), "a", packed.hash_key)
        if form == "foreign":  # packed by a producer that does not look where it goes
            return packed._replace(hash_key=random.randrange(HASH_KEYS))
        return packed

    def _user(self, shard: Shard, kind: str | None = None) -> User:
        """A user record that belongs to the shard, with an explicit hash key now and then."""
        random, n = self.random, self.count
        self.count += 1
        kind = kind or random.choices(("good", "twice", "always"), (97, 2, 1))[0]
        value = {"n": n, "kind": kind, "pad": "x" * random.choice((0, 0, 20, 200))}
        data = json.dumps(value).encode()
        if random.random() < 0.2:
            explicit = random.randint(shard.first, shard.last)
            return User(n, kind, random.choice(LETTERS), explicit, data)
        while True:
            key = "".join(random.choices(LETTERS, k=random.randint(1, 20)))
            if shard.first <= hash_key_of(key) <= shard.last:
                return User(n, kind, key, None, data)

    def _like(self, stray: User) -> User:
        """The copy that is put again, with a number of its own: so the two are told apart."""
        n = self.count
        self.count += 1
        data = json.dumps({"n": n, "kind": stray.kind}).encode()
        return stray._replace(n=n, data=data)

    def _packed(self, users: list[User]) -> Entry:
        keys = list(dict.fromkeys(one.key for one in users))
        explicit = list(dict.fromkeys(one.explicit for one in users if one.explicit is not None))
        encoded = []
        for one in users:
            key = keys.index(one.key)
            at = None if one.explicit is None else explicit.index(one.explicit)
            backwards = self.random.random() < 0.02  # as the format allows, and nobody does
            if backwards:
                encoded.append(
                    string(3, one.data) + (b"" if at is None else number(2, at)) + number(1, key)
                )
            else:
                encoded.append(user(key, one.data, at))
        data = aggregate(
            [key.encode() for key in keys], encoded, [str(one).encode() for one in explicit]
        )
        return Entry(data, "a", users[0].hash_key, tuple(users), packed=True)

    def _listed(self) -> list[dict[str, Any]]:
        shards: list[dict[str, Any]] = self.stream.client.list_shards(StreamName=STREAM)["Shards"]
        return shards


def hash_key_of(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest(), "big")


def _plain(user: User) -> Entry:
    return Entry(user.data, user.key, user.explicit, (user,))


def _request(entry: Entry) -> dict[str, Any]:
    request: dict[str, Any] = {"Data": entry.data, "PartitionKey": entry.key}
    return request if entry.hash_key is None else request | {"ExplicitHashKey": str(entry.hash_key)}


def _range_of(shard: dict[str, Any]) -> Shard:
    keys = shard["HashKeyRange"]
    return Shard(int(keys["StartingHashKey"]), int(keys["EndingHashKey"]))
