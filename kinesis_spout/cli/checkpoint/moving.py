"""What the commands share that change where an application stands: the steps, in their order."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kinesis_spout.cli.checkpoint.printing import move_lines, say
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import OWNER_WAIT_S, log_as_notes, operators_command
from kinesis_spout.clock import SystemClock
from state.process import this_process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinesis_spout.checkpoints.application_moves import ApplicationMove
    from kinesis_spout.cli.places import Place
    from kinesis_spout.service.client import KinesisClient
    from state.zookeeper.store import ZookeeperStateStore

DEFAULT_COUNT = 10_000
TAKES_ITS_PLACE = "an import was stopped before its end; this one takes its place"
Count = Annotated[
    int,
    typer.Option(
        min=0, max=1_000_000, help="Count at most so many records of each shard, by reading."
    ),
]


@contextmanager
def moving_command(
    ctx: typer.Context, place: Place
) -> Iterator[tuple[KinesisClient, ZookeeperStateStore]]:
    """The command's connections, closed at the end. The log's warnings are notes."""
    with operators_command(ctx) as stack:
        stack.enter_context(log_as_notes())
        store = place.store(stack)
        yield place.client(stack), store


def own(store: ZookeeperStateStore, *, dry_run: bool) -> None:
    """Own the application until the store is closed, but in a dry run. Raises
    `OwnedByAnotherError` while it runs.
    """
    if not dry_run:
        store.ownership.acquire(this_process(SystemClock().now_ms()), timeout_s=OWNER_WAIT_S)


def say_moves(found: ApplicationMove) -> None:
    for one in found.moves:
        for line in move_lines(one):
            say(line)


def refuse_skips(found: ApplicationMove, *, allow_skip: bool) -> None:
    """Raise `CliError` where records would be skipped, or have expired unread, unless that is
    wanted.
    """
    skipping = [one.after.shard_id for one in found.moves if one.skips]
    losing = [one.after.shard_id for one in found.moves if one.accepts_loss]
    if losing and not allow_skip:
        raise CliError(
            f"records of {', '.join(losing)} have expired, and were never read; give --allow-skip "
            "to go on without them"
        )
    if skipping and not allow_skip:
        raise CliError(
            f"records of {', '.join(skipping)} would be skipped, and never be read; give "
            "--allow-skip if that is wanted"
        )


def confirmed(question: str, *, yes: bool, dry_run: bool = False) -> bool:
    """Whether to write: not in a dry run. Raises typer's exit where the user says no."""
    if dry_run:
        say("nothing was written")
        return False
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)
    return True
