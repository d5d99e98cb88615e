"""`kinesis-spout import`: goes on where another consumer of the stream has stopped."""

from pathlib import Path
from typing import Annotated

import typer

from kinesis_spout.checkpoints.application_moves import check_bound_stream, check_past
from kinesis_spout.checkpoints.migration.arrival import Arrival, ShardArrival, find_arrival
from kinesis_spout.checkpoints.migration.origin import Origin
from kinesis_spout.checkpoints.migration.storm_spout import PREFIX
from kinesis_spout.checkpoints.recorded_move import ServiceTime
from kinesis_spout.checkpoints.transfer import Import, import_application, import_of
from kinesis_spout.checkpoints.wanted_position import WantedPosition
from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.move_in_sources import Asked, From, Opened, origin_of
from kinesis_spout.cli.checkpoint.moving import (
    DEFAULT_COUNT,
    TAKES_ITS_PLACE,
    Count,
    confirmed,
    own,
)
from kinesis_spout.cli.checkpoint.printing import printable, records_of, say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import Place, log_as_notes, note, operators_command, takes_place
from kinesis_spout.cli.shared_options import usage_errors
from kinesis_spout.clock import SystemClock
from state.position import Position


@takes_place()
def import_from(
    ctx: typer.Context,
    *,
    place: Place,
    system: Annotated[From, typer.Option("--from", help="The consumer whose state is imported.")],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            help="Where to begin in shards of which the other consumer does not say where it is: "
            "TRIM_HORIZON, LATEST, -2h, 14:00 (of today, UTC) or an ISO time.",
        ),
    ] = None,
    topology: Annotated[
        str | None, typer.Option(help="storm-spout: the name of the topology.")
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(help=f"storm-spout: its ZooKeeper prefix (default: {PREFIX})."),
    ] = None,
    from_zookeeper: Annotated[
        str | None, typer.Option(help="storm-spout: its ZooKeeper (default: --zookeeper).")
    ] = None,
    lease_table: Annotated[
        str | None,
        typer.Option(help="kcl: the lease table, which has the name of the KCL application."),
    ] = None,
    dynamodb_endpoint_url: Annotated[
        str | None, typer.Option(help="kcl, awslabs: another DynamoDB endpoint, e.g. a local one.")
    ] = None,
    checkpoint_location: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="awslabs, databricks: the query's checkpointLocation, copied."
        ),
    ] = None,
    metadata_path: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="awslabs: its option kinesis.metadataPath, copied."),
    ] = None,
    metadata_table: Annotated[
        str | None, typer.Option(help="awslabs: its option kinesis.dynamodb.tableName.")
    ] = None,
    progress: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="databricks: the query's lastProgress, as JSON, instead."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace what the application has.")
    ] = False,
    dry_run: places.DryRun = False,
    yes: places.Yes = False,
    count: Count = DEFAULT_COUNT,
) -> None:
    """Go on where another consumer of the stream has stopped.

    Reads the state of a Storm topology, a KCL application, or a query of awslabs' or
    Databricks' connector, shows for each shard where reading goes on and what is read
    twice or not at all, and makes it the state of the application. Stop the other
    consumer first, and try --dry-run. What it has stored stays as it is.

    Exit codes: 0 done, 1 refused, 3 a service cannot be reached, 4 the application runs.
    """
    asked = Asked(
        system=system,
        topology=topology,
        prefix=prefix,
        from_zookeeper=from_zookeeper,
        lease_table=lease_table,
        dynamodb_endpoint_url=dynamodb_endpoint_url,
        checkpoint_location=checkpoint_location,
        metadata_path=metadata_path,
        metadata_table=metadata_table,
        progress=progress,
    )
    asked.check()
    wanted = None if at is None else _parsed(at)
    clock = SystemClock()
    with operators_command(ctx) as stack:
        stack.enter_context(log_as_notes())
        client, store = place.client(stack), place.new_store(stack)
        with place.patience(client):
            summary = client.describe()
            now_ms = summary.now_ms(clock.now_ms())
            service_time = ServiceTime(client, clock, now_ms)
            check_bound_stream(store, summary)
            own(store, dry_run=dry_run)
            origin, is_in_place = origin_of(
                asked,
                Opened(place=place, store=store, client=client, summary=summary, stack=stack),
            )
            found = find_arrival(
                client,
                origin,
                summary,
                place.application,
                at=None if wanted is None else _past(wanted, now_ms),
                now_ms=now_ms,
                clock=clock,
                max_counted=count,
            )
            done = import_of(found.application, store.shard_states.load())
            start = store.identity.read_start(also_unfinished=True)
        _say(origin, found, done)
        goes_on = start is not None and start.importing
        if goes_on:
            say(TAKES_ITS_PLACE)
        if done.replaces and not (replace or is_in_place or goes_on):
            raise CliError(
                f"application {place.application} has state on stream {place.stream} already; give "
                "--replace to replace it, or another --application"
            )
        if not confirmed("Import them?", dry_run=dry_run, yes=yes):
            return
        import_application(store, found.application, now_ms=service_time.now_ms)
        say("imported")


def _parsed(at: str) -> WantedPosition:
    with usage_errors("--at"):
        wanted = WantedPosition.parse(at)
    if wanted.is_of_one_shard:
        raise typer.BadParameter(
            f"{at} is a position in one shard; give a time, or TRIM_HORIZON", param_hint="--at"
        )
    return wanted


def _past(wanted: WantedPosition, now_ms: int) -> Position:
    position = wanted.at(now_ms)
    check_past(position, now_ms)
    return position


def _say(origin: Origin, found: Arrival, done: Import) -> None:
    for one in found.shards:
        for line in _lines(one, done):
            say(line)
    for shard_id in sorted(done.states.keys() - {one.state.shard_id for one in found.shards}):
        say(f"{shard_id}\n  its state is removed: it is not listed any more")
    for shard_id in found.expired:
        gone = "is not listed any more, and was not read to its end: the rest has expired"
        note(f"{printable(shard_id)} {gone}")
    for sentence in origin.notes:
        note(printable(sentence))


def _lines(one: ShardArrival, done: Import) -> list[str]:
    before, after = done.states[one.state.shard_id]
    arrival = (
        ""
        if one.arrival_ms is None
        else f"  (next record arrived {Position.at_timestamp(one.arrival_ms)})"
    )
    lines = [
        one.state.shard_id,
        f"  there   {printable(one.says)}",
        f"  before  {'no state' if before is None else before.read_position}",
        f"  after   {'no state' if after is None else after.read_position}{arrival}",
        f"  {_effect(one)}",
    ]
    if one.lost_until_ms is not None:
        until = Position.at_timestamp(one.lost_until_ms)
        lines.append(f"  what arrived there before {until} may have expired")
    return lines if one.note is None else [*lines, f"  note: {one.note}"]


def _effect(one: ShardArrival) -> str:
    skipped = f"skips {records_of(one.skipped)}" if one.skipped.records else "skips nothing"
    repeated = (
        f"repeats {records_of(one.repeated)}" if one.repeated.records else "repeats nothing known"
    )
    if one.state.read_position.is_end:
        return f"reads nothing, {skipped}"
    return f"reads {records_of(one.waiting)} that wait, {repeated}, {skipped}"
