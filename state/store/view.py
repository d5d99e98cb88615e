"""All that is stored of an application, as somebody who only looks sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from state.plan import PlanStatus, TaskPlan
    from state.report import OutcomePolicy, PlanReport, ReportStatus
    from state.shard_state import ShardState
    from state.store.history import OperatorMove
    from state.store.identity import Pause, StartPin, StreamIdentity
    from state.store.ownership import OwnerInfo, OwnerView, TaskShare
    from state.store.runs import RunLog
    from state.task_log import TaskLog


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task of a plan, and what it has published; None before its first round."""

    number: int
    plan: TaskPlan
    log: TaskLog | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """The newest plan, as somebody who only looks sees it.

    - `report`: the status of its report. `openings`: how many openings of it have not answered, the
      current one included. `outcomes`: its counts once it is done, without those of single shards.
    - `previous_ms`: when the plan before it was made; None where that is not known.
    """

    plan_id: str
    status: PlanStatus
    created_ms: int
    tasks: tuple[TaskView, ...]
    until_ms: int | None = None
    outages: int = 0
    delivery_limit: int | None = None
    report: ReportStatus | None = None
    openings: int = 0
    outcomes: PlanReport | None = None
    previous_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredApplication:
    """All that is stored of an application on a stream, read in one pass.

    - `total_tasks`: into how many shares it is divided; None where one process owns all, or none.
    - `policy`: None where whole batches are acked, and for a standalone spout.
    - `pause`: None while the application is not paused.
    - `move`: None where no operator has moved the application, or too long ago to be known.
    - `held_since_ms`: by shard with unresolved records, the earliest time by which the first of
      them was unresolved, as far as the newest entries of the history tell.
    - `runs`: what the owners told of themselves, by share. One of an earlier version told nothing.
    - `of_the_stream`, `of_the_application`: where nothing is stored of it, the other applications
      that have state of the stream, and the other streams of which it has state.
    - `reset`: `IdentityStore.read_reset`.
    """

    identity: StreamIdentity | None = None
    of_the_stream: tuple[str, ...] = ()
    of_the_application: tuple[str, ...] = ()
    reset: OwnerInfo | None = None
    pin: StartPin | None = None
    states: Mapping[str, ShardState] = field(default_factory=dict)
    owners: tuple[OwnerView, ...] = ()
    total_tasks: int | None = None
    plan: PlanView | None = None
    policy: OutcomePolicy | None = None
    shard_list: tuple[str, ...] | None = None
    pause: Pause | None = None
    move: OperatorMove | None = None
    held_since_ms: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[TaskShare | None, RunLog] = field(default_factory=dict)

    @property
    def paused(self) -> bool:
        return self.pause is not None


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """Who may write under a path. Identities: `anyone`, `digest ann`, `ip 10.0.0.1`.

    - `writers`: may write it, or create below it where that is what its owner does.
    - `keepers`: may change who may.
    """

    writers: frozenset[str]
    keepers: frozenset[str]
