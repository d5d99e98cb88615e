"""Hypothesis strategies for every value in the state store."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state.owner.owner_info import OwnerInfo
from state.plan import (
    ChildShard,
    Plan,
    PlannedRetry,
    RangePart,
    ShardReadResult,
    ShardSlice,
    ShortRange,
    TaskPlan,
    UserRecords,
    make_plan_id,
)
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.report import OnFailure, OutcomePolicy, PlanReport, ShardOutcome
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import Lifecycle, ShardState, UnresolvedRecord
from state.state_store import StartPin, StreamIdentity
from state.task_log import TaskLog

T = TypeVar("T")


def sample(strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """The same values every time. For tests with live connections: their threads draw random
    numbers, which Hypothesis forbids.
    """
    values: list[T] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: T) -> None:
        values.append(value)

    collect()
    return values


sequence_numbers = st.builds(SequenceNumber, st.integers(0, 10**129 - 1), st.integers(0, 10**9))
times_ms = st.integers(0, 4_102_444_800_000)  # 1970 to 2100
counts = st.integers(0, 2**31)
texts = st.text(max_size=30)
shard_ids = st.from_regex(r"shardId-[0-9]{12}", fullmatch=True)
positions = st.one_of(
    st.just(TRIM_HORIZON),
    st.just(SHARD_END),
    times_ms.map(Position.at_timestamp),
    sequence_numbers.map(Position.at),
    sequence_numbers.map(Position.after),
)


@st.composite
def unresolved_records(draw: st.DrawFn) -> UnresolvedRecord:
    first, last = sorted((draw(sequence_numbers), draw(sequence_numbers)))
    return UnresolvedRecord(
        first=first,
        last=last,
        count=draw(st.integers(1, 2**31)),
        attempts=draw(st.integers(0, 1000)),
        due_ms=draw(times_ms),
        first_failure_ms=draw(st.none() | times_ms),
        last_failure_ms=draw(st.none() | times_ms),
        reason=draw(st.none() | texts),
        key=draw(st.none() | st.from_regex(r"[0-9a-f]{16}", fullmatch=True)),
        blocked=draw(st.booleans()),
        rejected=draw(st.booleans()),
        whole=draw(st.booleans()),
    )


def shard_states(ids: st.SearchStrategy[str] = shard_ids) -> st.SearchStrategy[ShardState]:
    return st.builds(
        ShardState,
        shard_id=ids,
        checkpoint=st.none() | sequence_numbers,
        read_position=positions,
        unresolved=st.lists(unresolved_records(), max_size=4).map(tuple),
        lifecycle=st.sampled_from(Lifecycle),
        parents=st.lists(shard_ids, max_size=2).map(tuple),
        settled_plan=st.none() | st.builds(make_plan_id, st.integers(0, 10**18 - 1), st.just("0a")),
        verified_until_ms=st.none() | times_ms,
        at_tip=st.booleans(),
    )


planned_retries = st.builds(
    PlannedRetry,
    first=sequence_numbers,
    last=st.none() | sequence_numbers,
    count=counts,
    attempts=counts,
    exhausted=st.booleans(),
    whole=st.booleans(),
)
shard_slices = st.builds(
    ShardSlice,
    shard_id=shard_ids,
    position=positions,
    max_records=counts,
    iterator=st.none() | texts,
    ending_sequence=st.none() | sequence_numbers,
    retries=st.lists(planned_retries, max_size=2).map(tuple),
)
task_plans = st.builds(
    TaskPlan,
    shards=st.lists(shard_slices, max_size=3).map(tuple),
    max_bytes=counts,
    fetch_time_ms=counts,
    fetch_cap_ms=counts,
)
plans = st.builds(
    Plan,
    plan_id=st.just("1-00"),
    created_ms=times_ms,
    tasks=st.lists(task_plans, max_size=3).map(tuple),
    until_ms=st.none() | times_ms,
    outages=counts,
    delivery_limit=st.none() | st.integers(1, 10**6),
)
shard_ends = st.builds(
    ShardReadResult,
    shard_id=shard_ids,
    first=st.none() | sequence_numbers,
    last=st.none() | sequence_numbers,
    count=counts,
    at_tip=st.booleans(),
    tip_ms=st.none() | times_ms,
    at_shard_end=st.booleans(),
    children=st.lists(
        st.builds(
            ChildShard, shard_id=shard_ids, parents=st.lists(shard_ids, max_size=2).map(tuple)
        ),
        max_size=2,
    ).map(tuple),
    last_arrival_ms=st.none() | times_ms,
    millis_behind_latest=counts,
    iterator=st.none() | texts,
    gone=st.booleans(),
    retries_done=counts,
    retry_rows=counts,
    retries_gone=st.lists(sequence_numbers, max_size=2).map(tuple),
    retries_short=st.lists(
        st.builds(ShortRange, first=sequence_numbers, missing=counts), max_size=2
    ).map(tuple),
    retry_part=st.none()
    | st.builds(RangePart, last=sequence_numbers, rest=sequence_numbers, count=counts),
    position=st.none() | positions,
    lapsed_ms=st.none() | times_ms,
    users=st.none()
    | st.builds(
        UserRecords,
        count=counts,
        first=st.none() | sequence_numbers,
        last=st.none() | sequence_numbers,
    ),
    payload_bytes=counts,
)
task_logs = st.builds(
    TaskLog, entries=st.lists(shard_ends, max_size=3).map(tuple), sealed=st.booleans()
)
stream_identities = st.builds(StreamIdentity, arn=texts, name=texts, created_ms=times_ms)
start_pins = st.builds(
    StartPin,
    time_ms=times_ms,
    wish=texts,
    position=positions,
    shards=st.lists(shard_ids, max_size=3).map(tuple),
    shard_positions=st.dictionaries(shard_ids, positions, max_size=3),
)
owner_infos = st.builds(
    OwnerInfo, host=texts, pid=counts, since_ms=times_ms, host_identity=texts, process_start=texts
)
retry_policies = st.builds(
    RetryPolicy,
    retry_limit=st.integers(0, 1000),
    first_delay_ms=st.integers(0, 1000),
    growth=st.floats(1, 100),
    max_delay_ms=st.integers(1000, 10**9),
    jitter=st.floats(0, 1),
    max_age_ms=st.none() | st.integers(1, 10**12),
)
outcome_policies = st.builds(
    OutcomePolicy, retry=retry_policies, on_failure=st.sampled_from(OnFailure)
)
shard_outcomes = st.builds(
    ShardOutcome,
    shard_id=shard_ids,
    unresolved=st.lists(unresolved_records(), max_size=4).map(tuple),
)
plan_reports = st.builds(
    PlanReport,
    shards=st.lists(shard_outcomes, max_size=3, unique_by=lambda outcome: outcome.shard_id).map(
        tuple
    ),
    tasks=st.none() | st.lists(st.integers(0, 999), max_size=3).map(tuple),
    delivery_limit=st.none() | st.integers(1, 10**6),
    outage=st.booleans(),
    failed=counts,
    retried=counts,
    exhausted=counts,
    dead_lettered=counts,
    dropped=counts,
    done_ms=times_ms,
)
