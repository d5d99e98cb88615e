"""Where a consumer of the Kinesis Client Library stands: the leases in its DynamoDB table. Pure.

The table has an item for each shard. Its attributes, from `DynamoDBLeaseSerializer` and
`DynamoDBMultiStreamLeaseSerializer` of awslabs/amazon-kinesis-client (Apache 2.0):

    leaseKey                     the shard's id; in a table of several streams
                                 <account>:<stream>:<creation time in s>:<shard id>
    checkpoint                   the last record that was processed, or TRIM_HORIZON, LATEST,
                                 AT_TIMESTAMP, SHARD_END
    checkpointSubSequenceNumber  the last user record of that record, from 0
    leaseOwner                   the worker that has it; not there once it was given back
    entityType                   LEASE; other items of the table are no leases

A pending checkpoint is one that was prepared and not made, so it does not count. Leases of parents
are removed once their children's are past TRIM_HORIZON (`LeaseCleanupManager`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from kinesis_spout.checkpoints.migration.origin import (
    MigrationError,
    Origin,
    OriginShard,
    after_user_record,
    number_in,
)
from state.position import SHARD_END, TRIM_HORIZON

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Item: TypeAlias = "Mapping[str, Mapping[str, Any]]"
"""An item as DynamoDB has it: by name, `{"S": text}` or another kind."""

_OF_SEVERAL = re.compile(r"(\d+):([^:]+):(\d+):([^:]+)")
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
# The positions at which a consumer that has processed nothing begins. They say when it began, not
# where: LATEST is past by now, and the time of AT_TIMESTAMP is in its configuration.
_NOT_BEGUN = frozenset({"LATEST", "AT_TIMESTAMP"})


def origin_of(
    items: Iterable[Item],
    table: str,
    stream: str,
    *,
    created_ms: int | None = None,
    account: str | None = None,
) -> Origin:
    """The leases of the stream, from the table's items as DynamoDB has them (`{"S": ...}`).

    `created_ms`: the stream's creation, compared with leases that name it. `account`: the stream's;
    those of a stream of this name in another one are others'. Raises `MigrationError`.
    """
    shards: dict[str, OriginShard] = {}
    owners: set[str] = set()
    for item in items:
        if _text(item, "entityType", table) not in (None, "LEASE"):
            continue
        shard_id = _shard_of(item, table, stream, created_ms, account)
        if shard_id is None:
            continue
        shards[shard_id] = _lease(item, f"lease {shard_id} of table {table}")
        owner = _text(item, "leaseOwner", table)
        if owner is not None:
            owners.add(owner)
    if not shards:
        raise MigrationError(
            f"table {table} has no lease of stream {stream}; give the lease table, which has the "
            "name of the application"
        )
    return Origin(
        name="KCL",
        shards=shards,
        drops_finished=True,
        notes=(
            "records after the last checkpoint that the workers had processed are read again",
            *(
                f"worker {owner} still holds leases; stop it before, or what it goes on to process "
                "is read again"
                for owner in sorted(owners)
            ),
        ),
    )


def _shard_of(
    item: Item, table: str, stream: str, created_ms: int | None, account: str | None
) -> str | None:
    """The shard of a lease; None for one of another stream."""
    key = _text(item, "leaseKey", table)
    if not key:
        raise MigrationError(
            f"table {table} has an item without leaseKey, so it is not a lease table; give the "
            "table that has the name of the KCL application"
        )
    of_several = _OF_SEVERAL.fullmatch(key)
    if of_several is None:
        return key
    if of_several[2] != stream or account not in {None, of_several[1]}:
        return None
    if created_ms is not None and int(of_several[3]) != created_ms // 1000:
        raise MigrationError(
            f"lease {key} of table {table} is of a stream {stream} that was created at "
            f"{of_several[3]} s, and this one was at {created_ms // 1000} s; its records have "
            "other numbers"
        )
    return of_several[4]


def _lease(item: Item, where: str) -> OriginShard:
    checkpoint = _text(item, "checkpoint", where)
    if not checkpoint:
        raise MigrationError(f"{where} has no checkpoint")
    if checkpoint == "SHARD_END":
        return OriginShard(says=checkpoint, position=SHARD_END)
    if checkpoint == "TRIM_HORIZON":
        return OriginShard(says=checkpoint, position=TRIM_HORIZON)
    if checkpoint in _NOT_BEGUN:
        return OriginShard(says=f"{checkpoint}, nothing processed yet", position=None)
    number, sub = number_in(checkpoint, where), _number(item, "checkpointSubSequenceNumber", where)
    return OriginShard(
        says=f"checkpoint {number}, user record {sub}", position=after_user_record(number, sub)
    )


def _text(item: Item, name: str, where: str) -> str | None:
    return _value(item, name, "S", where)


def _number(item: Item, name: str, where: str) -> int:
    """A whole number, 0 where there is none."""
    text = _value(item, name, "N", where)
    if text is None:
        return 0
    if not _WHOLE.fullmatch(text):
        raise MigrationError(f"{where}: {name} is {text[:40]!r}, which is no whole number")
    return int(text)


def _value(item: Item, name: str, kind: str, where: str) -> str | None:
    value = item.get(name)
    if value is None:
        return None
    text = value.get(kind)
    if not isinstance(text, str):
        raise MigrationError(f"{where}: {name} is not of type {kind}, so this is no lease table")
    return text
