"""What each use of a stream has to be allowed: the operations that it calls, and their IAM actions.

Operations are spelt as in the code (`describe_stream_summary`), actions as in a policy
(`kinesis:DescribeStreamSummary`). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DECRYPT, GENERATE_DATA_KEY = "kms:Decrypt", "kms:GenerateDataKey"
ASSUME_ROLE = "assume_role"
"""The operation of every process that is configured with a role. It needs no stream."""

# The operations that change nothing, so they can be tried at any time.
READING = frozenset({"describe_stream_summary", "list_shards", "get_shard_iterator", "get_records"})


class Use(StrEnum):
    """What somebody does with a stream."""

    READ = "read"
    """Queries, batch reads, the spout, `consume`, `peek`, `import`."""
    SUBSCRIBE = "enhanced fan-out"
    """Queries, the spout and `consume` with enhanced fan-out, besides READ."""
    CONSUMERS = "consumers"
    DESCRIBE = "describe"
    """`shards`, `checkpoint`, `status --ask 0`."""
    PRODUCE = "produce"
    SINK = "sink"
    """`df.write` and `df.writeStream`."""
    DEAD_LETTERS = "dead letters"
    """`DeadLetter.to_stream`, on the stream of dead letters."""
    REDRIVE = "redrive"
    """On the stream that records go back to."""
    DRILL = "drill"
    """On AWS, where it makes a stream of its own, and removes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What a use has to be allowed.

    - `operations`: those that it always calls.
    - `sometimes`: operations that it calls only then: the operation, and when.
    - `kms`: the actions on the key of the stream, where that is encrypted with a key of one's own.
    """

    operations: tuple[str, ...]
    sometimes: Mapping[str, str] = field(default_factory=dict)
    kms: tuple[str, ...] = ()

    @property
    def all_operations(self) -> tuple[str, ...]:
        return *self.operations, *self.sometimes


_PUT, _LIST = ("put_records",), ("describe_stream_summary", "list_shards")
PERMISSIONS: Mapping[Use, Permissions] = {
    Use.READ: Permissions(
        operations=(*_LIST, "get_shard_iterator", "get_records"),
        kms=(DECRYPT,),
    ),
    Use.SUBSCRIBE: Permissions(
        operations=("describe_stream_consumer", "subscribe_to_shard"),
        sometimes={
            "register_stream_consumer": "with the name of a consumer that is not registered",
        },
    ),
    Use.CONSUMERS: Permissions(
        operations=("describe_stream_summary", "list_stream_consumers"),
        sometimes={
            "describe_stream_consumer": "in `consumers remove`",
            "deregister_stream_consumer": "in `consumers remove`",
        },
    ),
    Use.DESCRIBE: Permissions(operations=_LIST),
    Use.PRODUCE: Permissions(
        operations=_PUT,
        sometimes=dict.fromkeys(_LIST, "with --aggregate"),
        kms=(GENERATE_DATA_KEY,),
    ),
    Use.SINK: Permissions(operations=(*_LIST, *_PUT), kms=(GENERATE_DATA_KEY,)),
    Use.DEAD_LETTERS: Permissions(
        operations=_PUT,
        sometimes={
            "describe_stream_summary": (
                "at the query's start, to check that the stream exists; also when `payload_only` "
                "puts a payload larger than 1 MiB"
            )
        },
        kms=(GENERATE_DATA_KEY,),
    ),
    Use.REDRIVE: Permissions(operations=_PUT, kms=(GENERATE_DATA_KEY,)),
    Use.DRILL: Permissions(
        operations=(
            "create_stream",
            *_LIST,
            "get_shard_iterator",
            "get_records",
            *_PUT,
            "delete_stream",
        ),
        sometimes=dict.fromkeys(("split_shard", "merge_shards"), "in drills that reshard")
        | {"update_shard_count": "in drill update-shard-count"}
        | dict.fromkeys(
            ("describe_stream_consumer", "register_stream_consumer", "subscribe_to_shard"),
            "with --efo",
        ),
    ),
}


def action_of(operation: str) -> str:
    """The IAM action that allows an operation. `list_shards` becomes `kinesis:ListShards`."""
    service = "sts" if operation == ASSUME_ROLE else "kinesis"
    return f"{service}:{''.join(word.capitalize() for word in operation.split('_'))}"
