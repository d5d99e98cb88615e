"""The steps that the commands share which change an application's progress."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from kinesis_spout.checkpoints.requested_position import RequestedPosition
from kinesis_spout.cli.checkpoint.printing import say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import OWNER_WAIT_S, Place, log_as_notes, operators_command
from kinesis_spout.cli.shared_options import usage_errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.service.client import KinesisClient
from state.process import this_process
from state.zookeeper.store import ZookeeperStateStore

DEFAULT_COUNT = 10_000
Count = Annotated[
    int,
    typer.Option(
        min=0, max=1_000_000, help="Count at most so many records of each shard, by reading."
    ),
]


@contextmanager
def moving_command(
    ctx: typer.Context, place: Place, *, dry_run: bool
) -> Iterator[tuple[KinesisClient, ZookeeperStateStore]]:
    """The command's connections, closed at the end. The application has state, and is owned as by
    `own`. The log's warnings are notes.
    """
    with operators_command(ctx) as stack:
        stack.enter_context(log_as_notes())
        client, store = place.client(stack), place.store(stack)
        with place.patience(client):
            if store.identity.read_start() is None and not store.shard_states.load():
                raise CliError(
                    f"application {place.application} has no state on stream {place.stream}",
                    "correct the names, or start it first",
                )
            own(store, dry_run=dry_run)
        yield client, store


def own(store: ZookeeperStateStore, *, dry_run: bool) -> None:
    """Own the application until the store is closed, but in a dry run. Raises
    `OwnedByAnotherError` while it runs.
    """
    if not dry_run:
        store.ownership.acquire(this_process(SystemClock().now_ms()), timeout_s=OWNER_WAIT_S)


def confirmed(question: str, *, yes: bool, dry_run: bool = False) -> bool:
    """Whether to write: not in a dry run. Raises typer's exit where the user says no."""
    if dry_run:
        say("nothing was written")
        return False
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)
    return True


def requested_time(text: str, option: str) -> RequestedPosition:
    """A time in the past that the user names. Raises typer's usage error, which names `option`."""
    with usage_errors(option):
        requested = RequestedPosition.parse(text)
    if not requested.is_time:
        raise typer.BadParameter(
            f"{text} is not a time; use -2h, 14:00, or an ISO time like 2026-01-31T12:00:00Z",
            param_hint=option,
        )
    return requested
