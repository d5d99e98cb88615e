"""`kinesis-spout pause` and `kinesis-spout resume`."""

import getpass
import socket
import time

from kinesis_spout.application.session import pause_clause
from kinesis_spout.cli.exit_codes import CliError, StopSignals
from kinesis_spout.cli.places import Operation, command, say
from kinesis_spout.cli.shared_options import duration_option, note, option, typed_text, wrong_usage
from kinesis_spout.inspection.status import unrest
from state.process import describe
from state.store.identity import Pause
from state.zookeeper.store import ZookeeperStateStore

# A spout commits every second, and a driver that was just planning has planned by then.
SETTLES_S = 3.0
MAX_REASON = 1_000


@command(aws=False)
def pause(
    op: Operation,
    *,
    reason: str | None = option(
        "The reason for the pause, which status and explain show.",
        metavar="TEXT",
        callback=typed_text,
    ),
    wait: bool = option("Wait until the application has no records in flight."),
    timeout: float = duration_option("Maximum time that --wait waits, such as 10m.", "60s"),
    before_start: bool = option("Also pause an application that has never run."),
) -> None:
    """Pause an application.

    A paused application reads nothing, but keeps its positions and its ownership.
    The job or the spouts keep running. A Spark job finishes the current batch,
    and stores the outcomes of the batch. The pause lasts until `kinesis-spout
    resume`, even across restarts. Records that expire during the pause are lost.

    The exit code is 0 if the application is paused, 1 if the application does not
    exist, and 3 if ZooKeeper cannot be reached. With --wait, the exit code is 1
    if records are still in flight at the timeout.
    """
    if reason is not None and len(reason) > MAX_REASON:
        raise wrong_usage("--reason", f"the reason is longer than {MAX_REASON} characters")
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = "somebody"
    by = f"{user} on {socket.gethostname()}"
    requested = Pause(by=by, since_ms=op.clock.now_ms(), reason=reason)
    with op.patience(aws=False):
        if not before_start:
            _check_known(
                op,
                "correct --application or --stream; to pause the application before its first "
                "start, run `kinesis-spout pause --before-start`",
            )
        stored = op.store.pause.begin(requested)
    was = "paused" if stored == requested else "paused already"
    say(f"application {op.place.application} {op.on_stream} is {was}{pause_clause(stored)}")
    if wait:
        say(_rested(op.store, op.signals, timeout))


@command(aws=False)
def resume(op: Operation) -> None:
    """Resume a paused application. A running application starts reading again at once.

    The exit code is 0 if the application is not paused, 1 if the application does
    not exist, and 3 if ZooKeeper cannot be reached.
    """
    with op.patience(aws=False):
        ended = op.store.pause.end()
        if ended is None:
            _check_known(op, "correct --application or --stream")
    if ended is None:
        say(f"application {op.place.application} {op.on_stream} is not paused")
    else:
        say(f"ended the pause of application {op.place.application}{pause_clause(ended)}")


def _check_known(op: Operation, remedy: str) -> None:
    identity, store = op.store.identity, op.store
    start = identity.read() or identity.read_start(also_unfinished=True)
    if start is None and not store.shard_states.load() and not store.ownership.holders():
        raise CliError(f"application {op.place.application} has never run {op.on_stream}", remedy)


def _rested(store: ZookeeperStateStore, signals: StopSignals, limit_s: float) -> str:
    """Wait until the application is at rest. Returns the sentence that says so."""
    ends_s = time.monotonic() + limit_s
    before, noted = store.view.read(), None
    while before.owners:
        signals.wait(max(0.0, min(SETTLES_S, ends_s - time.monotonic())))
        now = store.view.read()
        if now.pause is None:
            raise CliError(
                "another command ended the pause while this command was waiting",
                "pause the application again",
            )
        why = unrest(before, now)
        if why is None:
            owners = f"{len(now.owners)} tasks still own the application"
            if len(now.owners) == 1:
                owners = f"{describe(now.owners[0].info)} still owns the application"
            return f"the application has no records in flight; {owners}"
        if time.monotonic() >= ends_s:
            raise CliError(
                "the application is paused, but records may still be in flight after "
                f"{limit_s:g} s: {why}",
                "to wait longer, run `kinesis-spout pause --wait --timeout TIME`; the "
                "application stays paused",
            )
        if why != noted:
            note(f"{why}; waiting")
        before, noted = now, why
    return (
        "the application has no records in flight, because no process is running it; the next "
        "process starts paused"
    )
