"""`kinesis-spout reset`: removes an application's state on a stream."""

import typer

from kinesis_spout.cli import places
from kinesis_spout.cli.checkpoint.moving import confirmed
from kinesis_spout.cli.checkpoint.printing import say
from kinesis_spout.cli.places import OWNER_WAIT_S, Place, operators_command, takes_place
from kinesis_spout.cli.plain_text import plural
from kinesis_spout.clock import SystemClock
from state.process import this_process


@takes_place(aws=False)
def reset(
    ctx: typer.Context,
    *,
    place: Place,
    yes: places.Yes = False,
) -> None:
    """Remove an application's checkpoints on a stream.

    The application then starts again, at its starting position. Refused while it
    runs. Spark's checkpoint location is not touched: start with a new one.
    """
    with operators_command(ctx) as stack:
        store = place.store(stack)
        states = store.shard_states.load()
        if not states and store.identity.read_start(also_unfinished=True) is None:
            say(
                f"application {place.application} has no state on stream {place.stream}: nothing "
                "to reset"
            )
            return
        say(
            f"application {place.application} on stream {place.stream} has state of "
            f"{plural(len(states), 'shard')}:"
        )
        for shard, stored in sorted(states.items()):
            say(f"  {shard}  checkpoint {stored.state.checkpoint_text or 'none'}")
        if confirmed("Remove this state?", yes=yes):
            store.identity.reset(this_process(SystemClock().now_ms()), timeout_s=OWNER_WAIT_S)
            say("removed")
