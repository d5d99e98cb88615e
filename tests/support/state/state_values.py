"""Hypothesis strategies for every value in the state store: each field of a struct is drawn by its
type, so that a new field is drawn as well.
"""

from __future__ import annotations

from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state.plan import Plan, make_plan_id
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.report import OutcomePolicy, PlanReport
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState, UnresolvedRecord
from state.store.identity import StartPin, StreamIdentity
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


times_ms = st.integers(0, 4_102_444_800_000)  # 1970 to 2100
counts = st.integers(0, 2**31)
texts = st.text(max_size=30)
shard_ids = st.from_regex(r"shardId-[0-9]{12}", fullmatch=True)
sequence_numbers = st.builds(SequenceNumber, st.integers(0, 10**129 - 1), st.integers(0, 10**9))
positions = st.one_of(
    st.just(TRIM_HORIZON),
    st.just(SHARD_END),
    times_ms.map(Position.at_timestamp),
    sequence_numbers.map(Position.at),
    sequence_numbers.map(Position.after),
)
_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    str: texts,
    int: counts,
    bool: st.booleans(),
    SequenceNumber: sequence_numbers,
    Position: positions,
}


def _of(kind: Any, name: str) -> st.SearchStrategy[Any]:
    origin, inner = get_origin(kind), get_args(kind)
    found: st.SearchStrategy[Any]
    if origin in (Union, UnionType):
        found = st.one_of(*(_of(one, name) for one in inner))
    elif origin is tuple and inner[1:] == (...,):
        found = st.lists(_of(inner[0], name), max_size=3).map(tuple)
    elif origin is tuple:
        found = st.tuples(*(_of(one, name) for one in inner))
    elif origin is dict:
        found = st.dictionaries(shard_ids, _of(inner[1], name), max_size=3)
    elif kind is int and name.endswith("_ms"):
        found = times_ms
    elif kind is str and name in ("shard_id", "shards", "parents"):
        found = shard_ids
    elif issubclass(kind, Enum):
        found = st.sampled_from(kind)
    else:
        found = struct(kind) if issubclass(kind, msgspec.Struct) else _BY_TYPE[kind]
    return found


def struct(kind: type[T], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Structs of a kind, of this version's format. `fields` are drawn otherwise than by type."""
    drawn = {
        field.name: _of(field.type, field.name)
        for field in msgspec.structs.fields(kind)  # type: ignore[arg-type]
        if field.name not in {"format", *fields}
    }
    return st.builds(kind, **drawn, **fields)


def unresolved_records() -> st.SearchStrategy[UnresolvedRecord]:
    def in_order(record: UnresolvedRecord) -> UnresolvedRecord:
        first, last = sorted((record.first, record.last))
        return msgspec.structs.replace(record, first=first, last=last)

    return struct(UnresolvedRecord, count=st.integers(1, 2**31)).map(in_order)


_unresolved = st.lists(unresolved_records(), max_size=4).map(tuple)


def shard_states(ids: st.SearchStrategy[str] = shard_ids) -> st.SearchStrategy[ShardState]:
    plan_ids = st.builds(make_plan_id, st.integers(0, 10**18 - 1), st.just("0a"))
    return struct(
        ShardState, shard_id=ids, unresolved=_unresolved, settled_plan=st.none() | plan_ids
    )


plans = struct(Plan, plan_id=st.just("1-00"))
task_logs = struct(TaskLog)
stream_identities = struct(StreamIdentity)
start_pins = struct(StartPin, importing=st.just(value=False))  # an import that ended
outcome_policies = struct(
    OutcomePolicy,
    retry=st.builds(
        RetryPolicy,
        retry_limit=st.integers(0, 1000),
        growth=st.floats(1, 100),
        first_delay_ms=st.integers(0, 1000),
        max_delay_ms=st.integers(1000, 10**9),
        jitter=st.floats(0, 1),
        max_age_ms=st.none() | st.integers(1, 10**12),
    ),
)
plan_reports = struct(
    PlanReport, unresolved=st.dictionaries(st.text(max_size=20), _unresolved, max_size=3)
)
