"""`kinesis-spout consumers`: the consumers that are registered with a stream."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.moving import confirmed
from kinesis_spout.cli.checkpoint.printing import printable, say
from kinesis_spout.cli.places import Place, operators_command, takes_place
from kinesis_spout.cli.shared_options import command_group
from kinesis_spout.clock import SystemClock
from kinesis_spout.inspection.wording import moment
from kinesis_spout.service.consumers import ConsumerRegistry


@takes_place(application="none", stream_is_argument=True)
def list_(
    ctx: typer.Context,
    *,
    place: Place,
    as_json: places.AsJson = False,
) -> None:
    """List the consumers that are registered with a stream.

    Each is billed for by the hour and shard, whether it is used or not.
    """
    with operators_command(ctx) as stack:
        client = place.client(stack)
        with place.patience(client):
            found = ConsumerRegistry(client).list()
        if as_json:
            typer.echo(json.dumps([asdict(consumer) for consumer in found], indent=2))
            return
        if not found:
            say(f"stream {client.stream.name} has no consumers")
        now_ms = SystemClock().now_ms()
        for one in found:
            say(
                f"{printable(one.name)}  {one.status}  since {moment(one.created_ms, now_ms)}  "
                f"{printable(one.arn)}"
            )


@takes_place(application="none", stream_is_argument=True)
def remove(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the consumer.", show_default=False)
    ],
    *,
    place: Place,
    yes: places.Yes = False,
    dry_run: places.DryRun = False,
) -> None:
    """Remove a consumer from a stream.

    A reader that uses it polls from then on, or registers it again by its name.
    No checkpoint is touched.
    """
    with operators_command(ctx) as stack:
        client = place.client(stack)
        registry = ConsumerRegistry(client)
        with place.patience(client):
            found = registry.find(name=name)
        say(f"consumer {found.name} of stream {client.stream.name} is {found.status}: {found.arn}")
        if confirmed("Remove this consumer?", yes=yes, dry_run=dry_run):
            registry.deregister(found.arn)
            say("removed")


_COMMANDS: dict[str, Any] = {"list": list_, "remove": remove}


@command_group(**_COMMANDS)
def consumers() -> None:
    """List and remove a stream's registered consumers, which read by enhanced fan-out."""
