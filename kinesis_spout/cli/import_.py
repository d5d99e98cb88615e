"""`kinesis-spout import`: continues where another consumer of the stream has stopped."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer

from kinesis_spout.checkpoints.application_moves import past_position
from kinesis_spout.checkpoints.located import NONE
from kinesis_spout.checkpoints.migration import kcl, spark_queries, storm_spout
from kinesis_spout.checkpoints.migration.import_plan import Item, Origin, ShardImport, find_import
from kinesis_spout.checkpoints.moves import RequestedPosition
from kinesis_spout.checkpoints.recorded_move import check_bound_stream
from kinesis_spout.cli.checkpoint import write_import
from kinesis_spout.cli.places import COUNT, REPLACE, Operation, command, records_of, say
from kinesis_spout.cli.shared_options import note, option, typed_text, usage_errors, wrong_usage
from kinesis_spout.inspection.wording import visible
from kinesis_spout.service.dynamodb import scan_table
from kinesis_spout.service.shard_info import StreamSummary
from state.position import Position
from state.store.shard_states import StoredState
from state.zookeeper.store import ZookeeperStateStore


class System(StrEnum):
    """The consumers whose state can be imported."""

    STORM_SPOUT = "storm-spout"
    KCL = "kcl"
    AWSLABS = "awslabs"
    DATABRICKS = "databricks"


AWSLABS, DATABRICKS, KCL, STORM = System.AWSLABS, System.DATABRICKS, System.KCL, System.STORM_SPOUT
# The options that say where a system's state is: its systems and meaning. The first one of a system
# is required, but for Databricks, whose state may be unknown.
_STATE: dict[str, tuple[list[System], str]] = {
    "topology": ([STORM], "name of the Storm topology"),
    "prefix": (
        [STORM],
        f"prefix of the Storm topology's znodes in ZooKeeper (default: {storm_spout.PREFIX})",
    ),
    "from_zookeeper": (
        [STORM],
        "connect string of the Storm topology's ZooKeeper (default: --zookeeper)",
    ),
    "lease_table": (
        [KCL],
        "name of the DynamoDB lease table, which is the name of the KCL application",
    ),
    "checkpoint_location": (
        [AWSLABS, DATABRICKS],
        "local copy of the directory in the query's option checkpointLocation",
    ),
    "metadata_path": (
        [AWSLABS],
        "local copy of the directory in the query's option kinesis.metadataPath",
    ),
    "metadata_table": ([AWSLABS], "value of the query's option kinesis.dynamodb.tableName"),
    "dynamodb_endpoint_url": ([KCL, AWSLABS], "endpoint of a DynamoDB that is not on AWS"),
    "progress": (
        [DATABRICKS],
        "file with the query's lastProgress as JSON, used instead of --checkpoint-location",
    ),
}
_PATHS = {"checkpoint_location", "metadata_path", "progress"}


@usage_errors()
def _in_all_shards(text: str) -> RequestedPosition:
    requested = RequestedPosition.parse(text)
    if requested.belongs_to_one_shard:
        raise typer.BadParameter(
            f"{text} is a position in one shard. Pass a position that applies to all shards: a "
            "time, TRIM_HORIZON or LATEST"
        )
    return requested


@command(
    writes=True,
    is_new=True,
    more={
        name: (
            Path | None if name in _PATHS else str | None,
            option(
                f"{', '.join(systems)}: {meaning}.",
                panel="The other consumer's state",
                callback=None if name in _PATHS else typed_text,
            ),
        )
        for name, (systems, meaning) in _STATE.items()
    },
)
def import_(
    op: Operation,
    *,
    system: System = option(
        f"The consumer whose positions are imported: {', '.join(System)}.",
        "--from",
        metavar="SYSTEM",
    ),
    at: RequestedPosition | None = option(
        "Starting position of shards that the other consumer has no position for: TRIM_HORIZON, "
        "LATEST, or a time such as -2h, 14:00 (today, in UTC) or 2026-01-31T12:00:00Z.",
        metavar="POSITION",
        parser=_in_all_shards,
    ),
    replace: bool = REPLACE,
    count: int = COUNT,
    **given: Any,
) -> None:
    """Import the positions of another consumer, so that the application continues where it stopped.

    The command reads the state of a Storm topology, a KCL application, or a query
    of awslabs' or Databricks' connector, and stores this state as the
    application's state. For each shard, the command shows the position at which
    reading continues, and the number of records that will be repeated or skipped.
    Before the import, stop the other consumer, and run the command with
    --dry-run. The command does not change the other consumer's state.

    The exit code is 0 if the positions are stored, 1 if the import is refused, 3
    if Kinesis or ZooKeeper cannot be reached, and 4 if the application is
    running.
    """
    flags = {name: f"--{name.replace('_', '-')}" for name in _STATE}
    own = [name for name, (systems, _) in _STATE.items() if system in systems]
    for name, value in given.items():
        if value is not None and name not in own:
            takes = ", ".join(flags[one] for one in own)
            wrong = (
                f"--from {system} does not allow this option. The options of --from {system} are "
                f"{takes}"
            )
            raise wrong_usage(flags[name], wrong)
    if system is not System.DATABRICKS and given[own[0]] is None:
        raise wrong_usage(flags[own[0]], f"--from {system} needs {flags[own[0]]}")
    with op.patience():
        summary = op.client.describe()
        now_ms = summary.now_ms(op.clock.now_ms())
        check_bound_stream(op.store, summary.identity)
        op.own()
        origin = _origin(op, system, summary, given)
        plan = find_import(
            op.client,
            origin,
            summary,
            op.place.application,
            at=None if at is None else past_position(at, now_ms),
            now_ms=now_ms,
            clock=op.clock,
            max_counted=count,
        )
        states = op.store.shard_states.load()
    for one in plan.shards:
        for line in _lines(one, states.get(one.state.shard_id)):
            say(line)
    for shard_id in sorted(states.keys() - {one.state.shard_id for one in plan.shards}):
        say(shard_id)
        say("  the shard's state is removed, because the stream no longer lists the shard")
    lost = "shard {} expired before its last record was read, so its unread records are lost"
    for sentence in (*map(lost.format, plan.expired), *origin.notes):
        note(visible(sentence))
    write_import(op, plan.application, may_replace=replace or origin.in_place or not states)


def _origin(
    op: Operation, system: System, summary: StreamSummary, given: Mapping[str, Any]
) -> Origin:
    def table(name: str) -> list[Item]:
        aws, region = op.client.aws, op.client.stream.region_or(op.client.aws.region)
        return scan_table(aws, name, region=region, endpoint_url=given["dynamodb_endpoint_url"])

    if system is STORM:
        return _storm_spout(op, given, summary.name)
    if system is KCL:
        name = given["lease_table"]
        return kcl.origin_of(table(name), name, summary.identity)
    location = given["checkpoint_location"]
    if system is DATABRICKS:
        progress = given["progress"]
        return spark_queries.databricks_origin(summary.name, progress=progress, location=location)
    return spark_queries.awslabs_origin(
        location,
        summary.name,
        metadata_path=given["metadata_path"],
        table_items=table(given["metadata_table"]) if given["metadata_table"] else None,
    )


def _storm_spout(op: Operation, given: Mapping[str, Any], stream: str) -> Origin:
    """From the znodes by a store of their own; from the application's store, if it has the same."""
    place, topology = op.place, given["topology"]
    prefix = (given["prefix"] or storm_spout.PREFIX).strip("/")
    where = f"/{prefix}/{topology}/{stream}"
    # The prefix may be a path, whose last name is a root of ours.
    *above, root = prefix.split("/")
    zookeeper = (given["from_zookeeper"] or place.zookeeper).rstrip("/")
    zookeeper = "/".join([zookeeper, *above])
    mine = (place.zookeeper.rstrip("/"), place.zookeeper_root, place.application)
    if (zookeeper, root, topology) == mine:
        return storm_spout.origin_of(op.store, where, in_place=True)
    other = ZookeeperStateStore(
        zookeeper, root=root, application=topology, stream=stream, security=place.security()
    )
    return storm_spout.origin_of(op.stack.enter_context(closing(other)), where)


def _lines(one: ShardImport, stored: StoredState | None) -> Iterator[str]:
    arrival = ""
    if one.arrival_ms is not None:
        arrival = f"  (next record arrived {Position.at_timestamp(one.arrival_ms)})"
    yield one.state.shard_id
    yield f"  source  {visible(one.stored)}"
    yield f"  before  {'no state' if stored is None else stored.state.read_position}"
    yield f"  after   {one.state.read_position}{arrival}"
    repeats = f", repeats {records_of(one.repeated)}" if one.repeated != NONE else ""
    waiting = records_of(one.waiting, "waiting record")
    yield f"  reads {waiting}{repeats}, skips {records_of(one.skipped)}"
    if one.lost_until_ms is not None:
        until = Position.at_timestamp(one.lost_until_ms)
        yield f"  records that arrived before {until} may have expired"
    if one.note is not None:
        yield f"  note: {one.note}"
