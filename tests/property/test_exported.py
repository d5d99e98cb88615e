"""Random applications, exported and imported: nothing is lost on the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kinesis_spout.checkpoints.transfer import export_application, import_application
from state.codec.exported import ExportedApplication, decode_export, encode_export
from state.memory_store import MemoryStateStore
from state.plan import Plan, PlanStatus, ShardSlice, TaskPlan
from state.position import TRIM_HORIZON
from state.shard_state import ShardState
from tests.support.state import state_values
from tests.support.state.state_stores import OWNER

# Any two applications have shards in common.
applications = st.builds(
    ExportedApplication,
    application=st.just("app"),
    exported_ms=state_values.times_ms,
    stream=st.none() | state_values.stream_identities,
    start=st.none() | state_values.start_pins,
    policy=st.none() | state_values.outcome_policies,
    shard_list=st.none() | st.lists(state_values.shard_ids, max_size=3).map(tuple),
    states=st.lists(state_values.shard_states(), max_size=4).map(
        lambda states: tuple(
            replace(state, shard_id=f"shardId-{number:012}") for number, state in enumerate(states)
        )
    ),
)
NOW_MS = 1_000


@given(applications)
def test_a_document_gives_back_what_was_written(exported: ExportedApplication) -> None:
    assert decode_export(encode_export(exported), "file") == exported


@given(applications, applications)
def test_an_import_over_anything_is_the_export(
    before: ExportedApplication, exported: ExportedApplication
) -> None:
    """Into an empty application, and over another: shards that the export does not have lose their
    states, and one that was finished may be read again.
    """
    store = MemoryStateStore()
    store.ownership.acquire(OWNER, timeout_s=1)
    identity = exported.stream or before.stream
    for one in (before, exported):
        import_application(store, replace(one, stream=identity), now_ms=lambda: NOW_MS)
    found = export_application(store, "app", now_ms=exported.exported_ms)
    start = exported.start or before.start
    expected = replace(exported, stream=identity, start=start)
    assert found == (expected if expected.states or start is not None else None)


def test_an_old_plan_is_not_settled_into_an_imported_state() -> None:
    """It has read from where the export is, and what it read is to be read again."""
    store = MemoryStateStore()
    store.ownership.acquire(OWNER, timeout_s=1)
    exported = ExportedApplication(
        application="app",
        exported_ms=1,
        states=(ShardState(shard_id="s", read_position=TRIM_HORIZON),),
    )
    import_application(store, exported, now_ms=lambda: NOW_MS)
    slices = (ShardSlice(shard_id="s", position=TRIM_HORIZON, max_records=10),)
    task = TaskPlan(shards=slices, max_bytes=1, fetch_time_ms=1, fetch_cap_ms=1)
    store.plans.create(Plan(plan_id="1-aa", created_ms=0, tasks=(task,)))
    import_application(store, exported, now_ms=lambda: NOW_MS)
    pointer = store.plans.pointer()
    assert pointer is not None
    assert pointer.status is PlanStatus.CLOSED
    assert store.shard_states.load()["s"].state.settled_plan == "1-aa"
