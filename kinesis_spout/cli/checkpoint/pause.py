"""`kinesis-spout pause` and `kinesis-spout resume`."""

import getpass
import socket
import time
from typing import Annotated

import typer

from kinesis_spout.application.pause import pause_clause
from kinesis_spout.cli.checkpoint.printing import say
from kinesis_spout.cli.exit_codes import CliError, StopSignals
from kinesis_spout.cli.patience import patience
from kinesis_spout.cli.places import Place, note, operators_command, takes_place
from kinesis_spout.cli.shared_options import usage_errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import parse_duration_ms
from kinesis_spout.inspection.rest import unrest
from state.process import describe
from state.store.pause import Pause
from state.store.view import StoredApplication
from state.zookeeper.store import ZookeeperStateStore

# A spout commits every second, and a driver that was just planning has planned by then.
SETTLES_S = 3.0
MAX_REASON = 1_000


@takes_place(aws=False)
def pause(
    ctx: typer.Context,
    *,
    place: Place,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; status and explain show it.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the running work has ended.")
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait at most, e.g. 10m.")
    ] = "60s",
    before_start: Annotated[
        bool,
        typer.Option("--before-start", help="Pause an application that has never run."),
    ] = False,
) -> None:
    """Pause an application: it keeps its place and its ownership, and reads nothing.

    Its job or its spouts keep running. The current batch ends, outcomes are
    checkpointed, and `kinesis-spout resume` ends the pause, also after restarts.
    Records that expire meanwhile are lost, as beside a stopped job.

    Exit codes: 0 paused (with --wait: and at rest), 1 not at rest in time, or no such
    application, 3 ZooKeeper cannot be reached.
    """
    with usage_errors("--timeout"):
        limit_s = parse_duration_ms(timeout, option="timeout") / 1000
    if reason is not None and len(reason) > MAX_REASON:
        raise typer.BadParameter(f"at most {MAX_REASON} characters", param_hint="--reason")
    with operators_command(ctx) as stack:
        signals = stack.enter_context(StopSignals())
        store = place.store(stack)
        wanted = Pause(by=_operator(), since_ms=SystemClock().now_ms(), reason=reason)
        with patience(note, f"ZooKeeper at {place.zookeeper}"):
            if not before_start:
                _check_known(store, place)
            stored = store.pause.begin(wanted)
        was = "paused" if stored == wanted else "paused already"
        named = f"application {place.application} on stream {place.stream}"
        say(f"{named} is {was}{pause_clause(stored)}")
        if wait:
            say(_rested(store, signals, limit_s))


@takes_place(aws=False)
def resume(
    ctx: typer.Context,
    *,
    place: Place,
) -> None:
    """End the pause of an application: it continues where it was, at once if it runs.

    Exit codes: 0 it is not paused any more, 1 no such application, 3 ZooKeeper cannot
    be reached.
    """
    with operators_command(ctx) as stack:
        store = place.store(stack)
        with patience(note, f"ZooKeeper at {place.zookeeper}"):
            ended = store.pause.end()
            if ended is None:
                _check_known(store, place)
                say(f"application {place.application} on stream {place.stream} is not paused")
                return
        say(f"ended the pause of application {place.application}{pause_clause(ended)}")


def _check_known(store: ZookeeperStateStore, place: Place) -> None:
    is_known = (
        store.identity.read() is not None
        or store.identity.read_start(also_unfinished=True) is not None
    )
    if not is_known and not store.shard_states.load() and not store.ownership.holders():
        raise CliError(
            f"application {place.application} has never run on stream {place.stream}",
            "correct the "
            "names, or give --before-start to `kinesis-spout pause` if it is to start paused",
        )


def _operator() -> str:
    """The user and the machine, as far as the machine tells."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = "somebody"
    return f"{user} on {socket.gethostname()}"


def _rested(store: ZookeeperStateStore, signals: StopSignals, limit_s: float) -> str:
    """Wait until the application is at rest. Returns the sentence that says so."""
    ends_s = time.monotonic() + limit_s
    before, said = store.view.read(), None
    while before.owners:
        signals.wait(max(0.0, min(SETTLES_S, ends_s - time.monotonic())))
        now = store.view.read()
        if now.pause is None:
            raise CliError(
                "the pause was ended while the command waited", "pause the application again"
            )
        why = unrest(before, now)
        if why is None:
            return f"at rest: {_owners(now)}, and nothing is under way"
        if time.monotonic() >= ends_s:
            raise CliError(
                f"the application is paused, but was not at rest after {limit_s:g} s: {why}; it "
                "stays paused"
            )
        if why != said:
            note(f"{why}; waiting")
        before, said = now, why
    return "at rest: no process runs the application, and the next one starts paused"


def _owners(stored: StoredApplication) -> str:
    if len(stored.owners) == 1:
        return f"{describe(stored.owners[0].info)} keeps the ownership"
    return f"{len(stored.owners)} tasks keep the ownership"
