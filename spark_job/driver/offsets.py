"""The offsets that Spark logs for a query: which plan of each stream a batch ends with. Pure.

    {"format": 1, "plan": "7-a1b2"}                               a query of one stream
    {"format": 2, "plans": {"etl/orders": "7-a1b2", ...}}         a query of several streams

A stream is named by its application and name, as its state in ZooKeeper is. A stream that the query
no longer reads stays in the offsets with its last plan: when it is read again, that plan is settled
as the one of a finished batch, and nothing of it is delivered twice. So a query that has read
several streams goes on with format 2, also if it reads one of them now.

A batch that Spark repeats must have the rows that it had. It cannot have those of a stream that the
query no longer reads, and to leave them out would lose them: Spark would then count them as
delivered. Such a batch is refused, with the stream's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

OF_ONE = 1
OF_SEVERAL = 2


def start_offset(*, is_of_one: bool) -> dict[str, Any]:
    """The offset before every plan."""
    return {"format": OF_ONE, "plan": ""} if is_of_one else {"format": OF_SEVERAL, "plans": {}}


def read_offset(offset: Mapping[str, Any]) -> dict[str, str]:
    """The plans in an offset, by stream. The plan of an offset that does not name its only stream
    stands under "". Raises `ConfigError` for an offset of another format.
    """
    match offset:
        case {"format": 1, "plan": str(plan)}:
            return {"": plan} if plan else {}
        case {"format": 2, "plans": dict(plans)} if all(
            isinstance(plan, str) for plan in plans.values()
        ):
            return plans
    raise ConfigError(
        f"the checkpoint location contains an offset of format {offset.get('format')!r}, not "
        f"{OF_ONE} or {OF_SEVERAL}",
        "use the kinesis-spout version that wrote it, or a new "
        "checkpointLocation (ZooKeeper keeps the progress)",
    )


def with_plans(
    start: Mapping[str, str], plans: Mapping[str, str], *, is_of_one: bool
) -> dict[str, Any]:
    """The offset after `start` that names these plans. A query of one stream continues with format
    1, which earlier versions read, unless it has read several.
    """
    if is_of_one and not any(start):
        (plan,) = plans.values()
        return {"format": OF_ONE, "plan": plan}
    return {"format": OF_SEVERAL, "plans": dict(plans)}


def refuse_missing(
    start: Mapping[str, str], end: Mapping[str, str], streams: Collection[str]
) -> None:
    """Raise `ConfigError` for a batch that holds records of a stream which is not one of
    `streams`.
    """
    for stream, plan in sorted(end.items()):
        if stream not in streams and plan != start.get(stream, ""):
            application, name = stream.split("/", 1)
            raise ConfigError(
                f"the batch that Spark repeats contains records of stream {name} (application "
                f"{application}, plan {plan}), which this query does not read any more",
                f"run the "
                f"query with stream {name} until the batch is done, for example with "
                "trigger(availableNow=True), and leave the stream out after that",
            )
