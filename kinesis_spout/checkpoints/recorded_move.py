"""Writes the states of shards that an operator has moved, and the history of it. Blocks on the
store.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from kinesis_spout.application.history_recorder import MARGIN_MS, write_entry
from kinesis_spout.application.session import closed_plan
from kinesis_spout.clock import Clock, SteadyTime
from kinesis_spout.service.client import KinesisClient
from state.failpoint import failpoint
from state.moves import earlier, never_settling, resume_position
from state.position import Position
from state.shard_state import ShardState
from state.store.identity import StreamIdentity
from state.store.shard_states import ShardStateStore, StateChange, StoredState
from state.znodes.topics import StoreTopics


def service_time(client: KinesisClient, clock: Clock) -> Callable[[], int]:
    """Tells the service's time, which is asked for now: commands wait for their users before they
    write, and meanwhile the machine may sleep, or its clock be set. Blocks; raises errors of the
    service.
    """
    return SteadyTime(clock, client.describe().now_ms(clock.now_ms())).now_ms


def check_bound_stream(store: StoreTopics, identity: StreamIdentity) -> None:
    """Raise `StreamMismatchError` if the application's state belongs to another stream."""
    if store.identity.read() is not None:  # then binding only compares
        store.identity.bind(identity)


def write_states(
    store: StoreTopics,
    cause: str,
    stored: Mapping[str, StoredState],
    after: Iterable[ShardState],
    *,
    now_ms: Callable[[], int],
    removed: Collection[str] = (),
) -> None:
    """Close the open plan and write these states, into which the plan is never settled, and the
    history of it. The states in `stored`, from before, are replaced; those of `removed` are
    removed. The caller owns all of the application. `cause`: the command. `now_ms`: as of
    `service_time`.

    A shard that goes back does so in the history first: an entry may be behind the truth of its
    time, never ahead. So where the process is stopped in between, an application that goes back to
    this time repeats records. A shard that goes forward counts from when it is written: until then
    nothing is skipped.

    Stopped at any time, it leaves each shard as it was before or as it is after. Raises
    `ConflictError` where a state is not the stored one any more.
    """
    plan = closed_plan(store.plans)
    states = [never_settling(state, plan) for state in after]
    before, index = _positions(store.shard_states), store.history.index()
    wanted = {state.shard_id: resume_position(state) for state in states}
    # A shard that is not in a full entry is read from its beginning.
    lowest = {
        shard: earlier(at, wanted.get(shard, at))
        for shard, at in before.items()
        if shard not in removed
    }
    if lowest != before:
        index = write_entry(store.history, index, lowest, now_ms=now_ms() + MARGIN_MS, cause=cause)
    store.shard_states.move(
        [StateChange(before=stored.get(state.shard_id), after=state) for state in states]
    )
    store.shard_states.remove([stored[shard] for shard in sorted(removed)])
    failpoint("states-moved")
    after_it = _positions(store.shard_states)
    if after_it != lowest:
        write_entry(store.history, index, after_it, now_ms=now_ms() + MARGIN_MS, cause=cause)


def _positions(shard_states: ShardStateStore) -> dict[str, Position]:
    return {shard: resume_position(stored.state) for shard, stored in shard_states.load().items()}
