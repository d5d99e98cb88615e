"""The seam to where state is kept. `memory_store` and `zookeeper_store` implement it; one contract
suite holds both.

A store is bound to one application and one stream (`/<root>/<application>/<stream>` in ZooKeeper).

Three users: the owner (a Spark driver, a spout) plans, settles and writes shard states; tasks of a
plan (Spark executors) only publish ends; a tracked batch only reports its outcomes. Every owner
write is one transaction that checks the epoch which `acquire` counted up, so a process whose
ownership has passed on can write nothing at all, also nothing that the new owner has not touched
yet. Several spouts may own one application together, each as a task (`TaskShare`) of so many: then
which shards are whose is theirs to agree on, by the list of shards.

All methods block on I/O, at most for the store's own time limit, retry transient faults inside that
limit, and then raise `StoreUnavailableError`. A failed read is an error, never "there is nothing".
All are safe from any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from state.position import Position
from state.shard_state import ShardState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from state.plan import Plan, PlanPointer, TaskPlan, TaskResult
    from state.report import OpenReport, OutcomePolicy, PlanReport
    from state.task_share import TaskShare


class StreamIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Which stream the state belongs to. A stream deleted and made anew under its name has another
    creation time.
    """

    arn: str
    name: str
    created_ms: int
    format: int = 1


class StartPin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the application started: pinned once. Shards listed then start at their position, later
    ones at TRIM_HORIZON.

    `time_ms` is the service's time when it was pinned; `wish` is what the user asked for;
    `position` is what that means for every shard in `shards` that has no position of its own in
    `shard_positions`.
    """

    time_ms: int
    wish: str
    position: Position
    shards: tuple[str, ...]
    shard_positions: dict[str, Position] = {}
    format: int = 1


class OwnerInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who holds the ownership, for the error that another consumer gets.

    `host_identity` tells processes of one kernel and pid namespace; with `pid` and `process_start`
    (the process's start in the kernel's ticks) a successor there can see that the holder is dead
    and need not wait for its session to lapse.
    """

    host: str
    pid: int
    since_ms: int
    host_identity: str = ""
    process_start: str = ""


class ShardList(msgspec.Struct, frozen=True):
    """The list of shards, in the order of whoever wrote it. Each write that changes it counts
    `version` up.
    """

    shard_ids: tuple[str, ...]
    version: int


class StoredState(msgspec.Struct, frozen=True):
    """A shard state with the version it was read in, for compare-and-set."""

    state: ShardState
    version: int


class StateChange(msgspec.Struct, frozen=True):
    """A shard state to write: `before` is what it is based on, None to create it."""

    before: StoredState | None
    after: ShardState


class TaskStore(Protocol):
    """What an executor needs."""

    def read_end(self, plan_id: str, task: int) -> TaskResult | None:
        """The published end of a task, or None. Reads the newest state (syncs first, where that
        makes a difference).
        """
        ...

    def publish_end(self, plan_id: str, task: int, end: TaskResult) -> TaskResult:
        """Publish a task's end, once: creates it if the plan is open and the task has none, in one
        transaction.

        Returns the end that holds: `end`, or the one that another attempt published first. Raises
        `PlanClosedError` when the plan is closed or unknown (nothing is created then, parents
        neither), `StateTooLargeError`. A lost answer is resolved by reading the end back and
        comparing tokens.
        """
        ...

    def close(self) -> None:
        """Release the connection (and the ownership, if this store holds it). Idempotent."""
        ...


class OutcomeStore(TaskStore, Protocol):
    """What the driver's part of a tracked batch needs. It is not the owner: it is fenced by the
    plan, as tasks are.
    """

    def read_pointer(self) -> PlanPointer | None:
        """`/plan`, or None before the first."""
        ...

    def read_plan(self, plan_id: str) -> Plan | None:
        """A whole plan, or None when the store does not know it (any more)."""
        ...

    def read_ends(self, plan_id: str) -> Mapping[int, TaskResult]:
        """All published ends of a plan, by task. Complete when called after `close_plan`."""
        ...

    def load_states(self) -> Mapping[str, StoredState]:
        """All shard states by shard id. Raises `StoredDataError` for one that cannot be read.

        The ancestor's plain `{"checkpoint": "<seq>"}` is read as: all up to it acked, read on after
        it.
        """
        ...

    def read_policy(self) -> OutcomePolicy | None:
        """The mark of an application that tracks its records, with its policy; None for one that
        never did.
        """
        ...

    def mark_tracked(self, policy: OutcomePolicy) -> None:
        """Mark the application as one that tracks its records, or change its policy. Idempotent.
        Needs no ownership.
        """
        ...

    def open_report(self, plan_id: str, token: str) -> OpenReport:
        """Say that a batch of the plan has begun, over whatever report there was: one that was done
        does not count any more.

        One transaction with a check that the plan is open; raises `PlanClosedError` when it is not,
        or is gone.
        """
        ...

    def finish_report(self, opened: OpenReport, report: PlanReport) -> None:
        """Say that the batch is done, with its outcomes. A report too large for a node is stored in
        parts.

        Raises `PlanClosedError` when the plan is not open any more, `ConflictError` when somebody
        else has opened the report since. A lost answer is resolved by reading it back and comparing
        tokens. Nothing counts before all of it is there.
        """
        ...


class StateStore(OutcomeStore, Protocol):
    """What an owner needs besides."""

    # ownership
    # ------------------------------------------------------------------------------------------------
    def acquire(self, owner: OwnerInfo, *, timeout_s: float, task: TaskShare | None = None) -> int:
        """Take the ownership, whole or as one of several tasks, and return its new epoch.
        Idempotent while it is held.

        Waits up to `timeout_s` for an earlier owner's session to lapse (not at all when the holder
        is seen to be dead, see `OwnerInfo`), then raises `OwnedByAnotherError` naming the holder.
        In the way of the whole are all others; in the way of a task are the owner of the whole, the
        same task, and all tasks of another total. When the session was lost and nobody else has
        taken over, later writes regain it by themselves.
        """
        ...

    def release(self) -> None:
        """Give the ownership up; a no-op for one who does not hold it."""
        ...

    # identity and start
    # ---------------------------------------------------------------------------------------
    def bind_stream(self, identity: StreamIdentity) -> None:
        """Record which stream this state belongs to, or compare: raises `StreamMismatchError`
        naming both.
        """
        ...

    def read_start(self) -> StartPin | None: ...

    def pin_start(self, pin: StartPin) -> StartPin:
        """Create the start pin if there is none, and return the one that holds. Needs
        no ownership.
        """
        ...

    # shards
    # ---------------------------------------------------------------------------------------------------
    def save_states(
        self,
        changes: Sequence[StateChange],
        *,
        cache: dict[str, StoredState] | None = None,
        max_per_write: int | None = None,
    ) -> list[StoredState]:
        """Write shard states, compare-and-set each; returns them with their new versions.

        They are written in their order, in as many transactions as they need: one takes as many as
        the store allows, or `max_per_write` if that is fewer. `cache`, by shard id, is updated
        after each transaction: after an error it tells which changes are stored.

        Raises `CheckpointRegressionError`, `StateTooLargeError`, and ValueError for a shard that
        occurs twice, before anything is written; `StaleOwnerError` and `ConflictError` (a version
        differs), when nothing of their transaction was written. A state whose list of unresolved records is too large for a
        znode is collapsed into ranges first: detail is dropped towards redelivery, keeping the
        lowest attempt count of a range.
        """
        ...

    def remove_states(
        self, states: Sequence[StoredState], *, cache: dict[str, StoredState] | None = None
    ) -> None:
        """Remove the states of shards that are over, each in the version that was read.

        In their order, in as many transactions as they need; `cache` loses the shards of each
        transaction after it. Raises `StaleOwnerError`, `ConflictError` (one has changed since), when
        nothing of their transaction was removed.
        """
        ...

    def try_lead(self) -> bool:
        """Take the role of the one task that writes the list of shards, or see whether it is still
        this one's.

        True from then on until this task's session ends and another takes the role; False while a
        live task has it: ask again from time to time. Always true for the owner of the whole.
        Raises `StaleOwnerError`.
        """
        ...

    def save_shard_list(self, shard_ids: Sequence[str]) -> None:
        """Write the list of shards, in this order; nothing happens where it is the same.

        Raises `NotListerError` for a task that has not the role of `try_lead` (any more),
        `StaleOwnerError`, `ConflictError`.
        """
        ...

    def read_shard_list(self) -> ShardList | None:
        """What `save_shard_list` wrote, or the ancestor; None when nobody has. Needs no
        ownership.
        """
        ...

    def watch_shard_list(self, callback: Callable[[], None]) -> None:
        """Call back after each change of the list, and after each lost connection, as a change may
        have been missed.

        Watch first, then read. Needs no ownership; lasts until `close`. The callback runs in a
        thread of the store's (in memory: of whoever made the change), may come more than once for a
        change, and must return quickly, raise nothing, and not call the store: set an event.
        """
        ...

    # plans
    # ----------------------------------------------------------------------------------------------------
    def create_plan(self, plan: Plan) -> None:
        """Create an open plan and point `/plan` to it. A plan left behind unsettled is closed by
        it, unsettled, for good.

        Its number must be above that of every plan that the store knows; raises `ConflictError`
        otherwise. The plan becomes visible with the move of `/plan`, in the last transaction, also
        when it takes several.
        """
        ...

    def known_plans(self) -> Sequence[str]:
        """Ids of all plans the store still has, in order of their numbers."""
        ...

    def read_task(self, plan_id: str, task: int) -> TaskPlan | None: ...

    def close_plan(self, plan_id: str) -> None:
        """Close the plan that `/plan` points to: from here on no end can be published under it.
        Idempotent.
        """
        ...

    def read_report(self, plan_id: str) -> PlanReport | None:
        """The done report of a plan; None when there is none or it is only open. Final when called
        after `close_plan`.
        """
        ...

    def clear_policy(self) -> None:
        """Take the mark off an application that is to ack whole batches again. An owner write;
        idempotent.
        """
        ...

    def mark_settled(self, plan_id: str) -> None:
        """Say that a closed plan's outcomes are in the shard states. Idempotent."""
        ...

    def remove_plan(self, plan_id: str) -> None:
        """Remove a plan's tasks and ends. A no-op when it is gone. Refuses (ValueError) the plan of
        `/plan`.
        """
        ...
