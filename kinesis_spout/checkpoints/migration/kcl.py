"""Where a consumer of the Kinesis Client Library has stopped: its leases in DynamoDB. Pure.

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

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from kinesis_spout.checkpoints.migration.import_plan import (
    GIVE_THIS_STREAMS,
    Item,
    MigrationError,
    Origin,
    OriginShard,
    after_user_record,
    in_item,
    number_in,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.store.identity import StreamIdentity

_GIVE_LEASES = "pass the name of the KCL application: its lease table has the same name"
_OF_SEVERAL = re.compile(r"(\d+):([^:]+):(\d+):([^:]+)")
# LATEST and AT_TIMESTAMP are where a consumer begins that has processed nothing. They say when it
# began, not where: LATEST is past by now, and the time is in its configuration.
_FIXED = {
    "SHARD_END": SHARD_END,
    "TRIM_HORIZON": TRIM_HORIZON,
    "LATEST": None,
    "AT_TIMESTAMP": None,
}


class _Lease(msgspec.Struct, rename="camel"):
    lease_key: str
    checkpoint: str
    checkpoint_sub_sequence_number: Annotated[int, msgspec.Meta(ge=0)] = 0
    lease_owner: str | None = None


def origin_of(items: Iterable[Item], table: str, stream: StreamIdentity) -> Origin:
    """The leases of the stream, from the table's items. Leases of a stream of this name in another
    account are left out. Raises `MigrationError`.
    """
    account = stream.arn.split(":")[4]
    shards: dict[str, OriginShard] = {}
    owners: set[str] = set()
    for item in items:
        key = item.get("leaseKey", {}).get("S", "without leaseKey")
        where = f"item {key} of table {table}"
        if item.get("entityType", {}).get("S", "LEASE") != "LEASE":
            continue
        lease = in_item(item, _Lease, f"{where} is not a lease of the KCL", _GIVE_LEASES)
        shard_id, of_several = lease.lease_key, _OF_SEVERAL.fullmatch(lease.lease_key)
        if of_several is not None:
            its_account, its_stream, its_creation_s, shard_id = of_several.groups()
            if (its_stream, its_account) != (stream.name, account):
                continue
            if int(its_creation_s) != stream.created_ms // 1000:
                raise MigrationError(
                    f"{where} belongs to an earlier stream {stream.name}, which was created at "
                    f"{Position.at_timestamp(1000 * int(its_creation_s))}; the current stream was "
                    f"created at {Position.at_timestamp(stream.created_ms)}",
                    GIVE_THIS_STREAMS,
                )
        stored, sub = lease.checkpoint, lease.checkpoint_sub_sequence_number
        if stored in _FIXED:
            position = _FIXED[stored]
            stored += "" if position is not None else ", no record processed yet"
        else:
            number = number_in(stored, where)
            stored = f"checkpoint {number}, user record {sub}"
            position = after_user_record(number, sub)
        shards[shard_id] = OriginShard(stored=stored, position=position)
        owners |= {lease.lease_owner} if lease.lease_owner else set()
    if not shards:
        raise MigrationError(f"table {table} has no lease for stream {stream.name}", _GIVE_LEASES)
    return Origin(
        name="KCL",
        shards=shards,
        drops_finished=True,
        notes=(
            "the application repeats records that a KCL worker processed after its last checkpoint",
            *(
                f"worker {owner} still has leases. Stop the worker: otherwise, the application "
                "repeats the records that the worker processes from now on"
                for owner in sorted(owners)
            ),
        ),
    )
