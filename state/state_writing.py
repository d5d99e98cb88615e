"""Writing many shard states, as many at a time as a transaction takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.failpoint import failpoint
from state.znodes.shard_states import split_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from state.state_store import StateChange, StateStore, StoredState


def write_states(
    store: StateStore,
    states: dict[str, StoredState],
    changes: Sequence[StateChange],
    *,
    states_per_write: int,
) -> None:
    """Write the changes, as many at a time as fit, and note in `states` what is stored now."""
    written = 0
    for chunk in split_changes(changes, states_per_write):
        for stored in store.save_states(chunk):
            states[stored.state.shard_id] = stored
        written += len(chunk)
        if written < len(changes):
            failpoint("shard-states-half-written")
