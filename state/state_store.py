"""The contract of a state store. `state.memory_store` and `state.zookeeper.store` implement it, and
one contract suite tests both.

A store is bound to one application and one stream (`/<root>/<application>/<stream>` in ZooKeeper).

Users. There are three kinds. The owner (a Spark driver, a spout) plans, settles and writes shard
states. A task of a plan (a Spark executor) only publishes its result. A tracked batch only reports
its outcomes.

Fencing. Every write of the owner is one transaction that also checks the epoch which `acquire`
counted up. So a process that lost the ownership can write nothing, not even a node that the new
owner has not touched yet. Results and reports are fenced by their plan instead: nothing can be
added to a plan once it is closed.

Shares. Several spouts may own one application together, each as one task of a fixed total
(`TaskShare`). They divide the shards among themselves by the shard list, which one of them, the
shard list leader, writes.

Blocking and errors. Every method blocks on I/O, at most for the store's time limit. It retries
transient faults within that limit and then raises `StoreUnavailableError`. A failed read raises; it
never returns as if nothing was stored. Damaged or newer stored bytes raise `StoredDataError`.

Threads. All methods are safe from any thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

from state.errors import InvalidStoreSettingError
from state.position import Position
from state.shard_state import ShardState
from state.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from state.owner.owner_info import OwnerInfo
    from state.owner.run_log import Run, RunLog
    from state.plan import Plan, PlanPointer, PlanStatus, TaskPlan, TaskResult
    from state.report import OpenReport, OutcomePolicy, PlanReport, ReportStatus

MAX_TASKS = 1000
_SHARE = re.compile(r"(0|[1-9]\d*)-of-([1-9]\d*)")


class StreamIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The stream that the state belongs to. A stream that was deleted and created again under the
    same name differs in `created_ms` (milliseconds since 1970).
    """

    arn: str
    name: str
    created_ms: int
    format: int = 1

    def is_same(self, other: StreamIdentity) -> bool:
        """Whether it is the same stream, and not one that was created again under its name."""
        return (self.arn, self.created_ms) == (other.arn, other.created_ms)


class StartPin(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Where the application started. It is pinned once and never changed.

    - `time_ms`: the service's time at which it was pinned.
    - `wish`: the starting position as the user typed it.
    - `shards`: the shards that were listed then. Each starts at its position in `shard_positions`,
      or else at `position`. Shards that are listed later start at TRIM_HORIZON.
    - `importing`: an import is under way, or was stopped: not all shards are where it puts them.
    """

    time_ms: int
    wish: str
    position: Position
    shards: tuple[str, ...]
    shard_positions: dict[str, Position] = {}
    importing: bool = False
    format: int = 1


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Task `index` of `total`, with `index` counted from 0. Its text, `1-of-3`, is also the name of
    its znodes.
    """

    index: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.total <= MAX_TASKS:
            raise InvalidStoreSettingError(
                f"a total of {self.total} tasks is not possible; use 1 to {MAX_TASKS}"
            )
        if not 0 <= self.index < self.total:
            raise InvalidStoreSettingError(
                f"there is no task {self.index} of {self.total}; they are counted from 0, so use 0 "
                f"to {self.total - 1}"
            )

    @classmethod
    def parse(cls, text: str) -> TaskShare:
        """Read a text like `1-of-3`; raises `InvalidStoreSettingError` for any other."""
        written = _SHARE.fullmatch(text)
        if written is None:
            raise InvalidStoreSettingError(f"{text!r} is not a task; use the form 1-of-3")
        return cls(int(written[1]), int(written[2]))

    def __str__(self) -> str:
        return f"{self.index}-of-{self.total}"

    @property
    def label(self) -> str:
        """`task 1 of 3`, for messages."""
        return f"task {self.index} of {self.total}"


class Pause(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pause of the application: it keeps its ownership and reads nothing. The node's existence is
    the pause. What it holds is for people, and may be missing.

    - `by`: who paused it. `since_ms`: when, by that machine's clock. `reason`: as it was given.
    """

    by: str | None = None
    since_ms: int | None = None
    reason: str | None = None
    format: int = 1


class ShardList(msgspec.Struct, frozen=True):
    """The shard list, in the order in which it was written. Each write that changes it increments
    `version`.
    """

    shard_ids: tuple[str, ...]
    version: int


class StoredState(msgspec.Struct, frozen=True, gc=False):
    """A shard state and the version in which it was read, for compare-and-set."""

    state: ShardState
    version: int


class StateChange(msgspec.Struct, frozen=True, gc=False):
    """A shard state to write. `before` is the stored state that it is based on; None creates it."""

    before: StoredState | None
    after: ShardState


class StoredLog(msgspec.Struct, frozen=True):
    """A task's log as it was read; `log` and `version` are None where there is none."""

    log: TaskLog | None
    version: int | None
    plan_is_open: bool


@dataclass(frozen=True, slots=True)
class OwnerView:
    """A process that owns the application, or the share `task` of it."""

    task: TaskShare | None
    info: OwnerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """What became known of the application's progress at one time (`state.moves.history`).

    - `time_ms`: the service's time; all of it was so by then.
    - `positions`: by shard, a position before which every record was acked. Of an entry that is
      `full`, of all shards; else of those that have changed since the entry before it.
    - `cause`: the command by which an operator moved the application; None if it was settled by
      what consumes it.
    """

    time_ms: int
    positions: Mapping[str, Position]
    full: bool = False
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryMark:
    """An entry of the history without its content. `number`: its place among the others.
    `moved`: an operator has moved the application. `parts`: in how many nodes it is.
    """

    number: int
    time_ms: int
    full: bool
    moved: bool
    parts: int = 1


@dataclass(frozen=True, slots=True)
class HistoryIndex:
    """The entries of the history, in the order in which they were written.

    - `next`: the number of the next entry.
    - `version`: of the list; None before the first entry.
    - `leftovers`: names of nodes that a writer left when it was stopped; they are no entries.
    """

    marks: tuple[HistoryMark, ...] = ()
    next: int = 0
    version: int | None = None
    leftovers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMove:
    """The newest move of the application by an operator, as the history tells it.

    - `cause`: the command: `set`, `rewind` or `import`. `time_ms`: by when it was done.
    - `back`, `forward`: the shards that it has set back, and forward: what lay between was skipped.
    """

    cause: str
    time_ms: int
    back: frozenset[str] = frozenset()
    forward: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task of a plan, and what it has published; None before its first round."""

    number: int
    plan: TaskPlan
    log: TaskLog | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """The newest plan, as somebody who only looks sees it.

    - `report`: the status of its report; None where there is none.
    - `openings`: how many openings of the report have not answered, the current one included.
    - `outcomes`: the counts of a done report, without the outcomes of single shards.
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
    - `runs`: what the owners of the application, or of shares of it, told of themselves. A process
      of an earlier version told nothing.
    - `of_the_stream`, `of_the_application`: where nothing is stored of it, the other applications
      that have state of the stream, and the other streams of which it has state.
    - `reset`: the process that removed the state, and when; None where none did, and where it has
      begun again since.
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


class TaskStore(Protocol):
    """The part of the contract that a task (an executor) needs."""

    def read_log(self, plan_id: str, task: int) -> StoredLog:
        """The log of a task, and whether its plan is open. The read is linearizable: it sees every
        write that was answered before it. The plan is read before the log, so an open plan's log
        may be newer than that, and a closed plan's log is final.
        """
        ...

    def append_log(self, plan_id: str, task: int, log: TaskLog, version: int | None) -> int:
        """Replace the log that was read in `version` (None: there was none) by `log`, which
        continues it. Returns the new version.

        One transaction that also checks that the plan is open. Raises `PlanClosedError` when the
        plan is closed or unknown; then nothing is created, no parent node either. Raises
        `ConflictError` when the log has another version: another attempt has appended, or the
        answer to this very call was lost. Read the log again, and follow it. Raises `TaskLogError`
        when there was a log that somebody has removed: a second one might name other records than
        those that were handed over. Raises `StateTooLargeError`.
        """
        ...

    def close(self) -> None:
        """Close the connection, and with it give up the ownership if this store holds it.
        Idempotent.
        """
        ...


class OutcomeStore(TaskStore, Protocol):
    """The part of the contract that a tracked batch needs in the driver. The batch is not the
    owner: its writes are fenced by the plan, as those of tasks are.
    """

    def read_pointer(self) -> PlanPointer | None:
        """The newest plan's id and status, or None before the first plan."""
        ...

    def read_plan(self, plan_id: str) -> Plan | None:
        """A whole plan, or None when the store does not have all of it: never created, only half
        created, or removed.
        """
        ...

    def read_ends(self, plan_id: str) -> Mapping[int, TaskResult]:
        """What the tasks of a plan have published, by task: their logs, folded. Final when called
        after `close_plan`.
        """
        ...

    def known_plans(self) -> Sequence[str]:
        """The ids of all plans that the store still has, in the order of their numbers."""
        ...

    def read_report(self, plan_id: str) -> PlanReport | None:
        """The done report of a plan; None if there is none, or if it is only open. Final when
        called after `close_plan`.
        """
        ...

    def read_runs(self) -> Mapping[TaskShare | None, RunLog]:
        """The last runs by share; None for those of owners of the whole application. Of bytes that
        cannot be read, none.
        """
        ...

    def amend_run(self, of: OwnerInfo, amended: Callable[[RunLog], RunLog]) -> bool:
        """Replace the log whose newest run is of this owner by `amended(log)`, which may be called
        several times. False, and nothing is written, if there is none. Needs no ownership; but a
        store that was overtaken writes nothing, and raises `StaleOwnerError`.
        """
        ...

    def load_states(self) -> Mapping[str, StoredState]:
        """All shard states, by shard id. Raises `StoredDataError` if one cannot be read.

        A plain `{"checkpoint": "<seq>"}` of the Kinesis Storm spout means that every record up to
        and including `<seq>` is acked, and that reading goes on after it.
        """
        ...

    def read_policy(self) -> OutcomePolicy | None:
        """The policy of an application that tracks its records; None for one that acks whole
        batches.
        """
        ...

    def mark_tracked(self, policy: OutcomePolicy) -> None:
        """Mark the application as one that tracks its records, with this policy, or change its
        policy. Idempotent. Needs no ownership. Raises `ConflictError` when other processes keep
        writing it.
        """
        ...

    def open_report(self, plan_id: str, token: str) -> OpenReport:
        """Record that a batch of the plan has begun. It replaces any earlier report: one that was
        done no longer counts. Each opening counts as one without an answer (`OpenReport.openings`)
        until its report is finished, or `answer_report` says that its batch has failed.

        One transaction that also checks that the plan is open. Raises `PlanClosedError` when the
        plan is closed or removed, `ConflictError` when other processes keep writing the report.
        """
        ...

    def answer_report(self, opened: OpenReport) -> None:
        """Record that the batch has failed while its process lives. The report cannot be finished
        any more, and this opening does not count as one without an answer.

        Changes nothing if the plan is closed by now, or the report was opened again or finished.
        """
        ...

    def finish_report(self, opened: OpenReport, report: PlanReport) -> None:
        """Record that the batch is done, with its outcomes. A report that is too large for one node
        is stored in parts, and counts only once all of it is stored.

        A call whose answer was lost reads the report back and recognises its own by the token.
        Raises `PlanClosedError` when the plan is no longer open, and `ConflictError` when another
        process has opened the report since, or removed it.
        """
        ...


class StateStore(OutcomeStore, Protocol):
    """The whole contract, which the owner needs. A method that writes as the owner raises
    `StaleOwnerError` when the ownership was not acquired or has passed on. Then nothing was
    written.
    """

    # ownership ------------------------------------------------------------------------------------
    def acquire(self, owner: OwnerInfo, *, timeout_s: float, task: TaskShare | None = None) -> int:
        """Acquire the ownership of the whole application, or of one task's share, and return its
        new epoch. Idempotent while it is held.

        Waits up to `timeout_s` for the session of a conflicting holder to expire, but not for a
        holder that is provably dead (see `OwnerInfo`). Then raises `OwnedByAnotherError`, which
        names the holder. Every holder conflicts with an owner of the whole. A task conflicts with
        an owner of the whole, with a holder of the same task, and with every task of another
        total.

        If the session is lost and no other process has taken over since, the next write acquires
        the ownership again by itself, with the same epoch. Raises ValueError when this store
        already holds another share.
        """
        ...

    def release(self) -> None:
        """Give up the ownership; a no-op if this store does not hold it."""
        ...

    def read_unclosed(self) -> int:
        """How many openings of this store's task in a row have not ended in order, as
        `save_unclosed` stored it; 0 before that, and after the number of tasks has changed.

        Raises `StaleOwnerError`, and ValueError for the owner of the whole application.
        """
        ...

    def save_unclosed(self, openings: int) -> None:
        """Store that number. Raises as `read_unclosed`, and `ConflictError` when another program
        has changed it meanwhile.
        """
        ...

    def begin_run(self, run: Run) -> None:
        """Add the run of this store's owner to those of its share, and remove what the owners of
        another number of shares told. A write of the owner; nothing if another process writes the
        node at the same time.
        """
        ...

    # identity and start ---------------------------------------------------------------------------
    def read_reset(self) -> OwnerInfo | None:
        """The process that removed the state of the application, and when; None where none did, and
        where it has begun again since.
        """
        ...

    def bind_stream(self, identity: StreamIdentity) -> None:
        """Record the stream that this state belongs to, or compare it with the recorded one.
        Raises `StreamMismatchError`, which names both, if ARN or creation time differ.
        """
        ...

    def read_start(self, *, also_unfinished: bool = False) -> StartPin | None:
        """The start pin, or None before `pin_start`. Raises `UnfinishedImportError` for that of an
        import that is not finished, unless `also_unfinished`.
        """
        ...

    def pin_start(self, pin: StartPin) -> StartPin:
        """Create the start pin if there is none. Returns the stored one: `pin`, or an earlier one.
        Needs no ownership.
        """
        ...

    def replace_start(self, pin: StartPin | None) -> None:
        """Put another start pin, or none, in the place of the stored one, if there is one. Only for
        an operator who restores an exported application. A write of the owner; raises
        `ConflictError` when it was changed meanwhile.
        """
        ...

    # pause ----------------------------------------------------------------------------------------
    def pause(self, pause: Pause) -> Pause:
        """Pause the application, unless it is paused. Returns the stored pause: `pause`, or an
        earlier one. Idempotent. Needs no ownership.
        """
        ...

    def resume(self) -> Pause | None:
        """End the pause. Returns the pause that this call has ended; None if there was none. Needs
        no ownership.
        """
        ...

    def read_pause(self) -> Pause | None:
        """The pause, or None while the application is not paused. Its content may be anything: what
        cannot be read of it is left out. Needs no ownership.
        """
        ...

    def watch_pause(self, callback: Callable[[], None]) -> None:
        """Watch the pause until `close`, as `watch_shard_list` does the shard list."""
        ...

    # shards
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
        differs), when nothing of their transaction was written. A state whose list of unresolved
        records is too large for a znode is collapsed into ranges first: detail is dropped towards
        redelivery, keeping the lowest attempt count of a range.
        """
        ...

    def move_states(self, changes: Sequence[StateChange]) -> list[StoredState]:
        """Write shard states that an operator has moved: their checkpoints may go back, and a
        finished shard may be read again. Only for that; all else is as in `save_states`.

        No state is removed in between: stopped at any time, it leaves each shard as it was before
        or as it is after.
        """
        ...

    def remove_states(
        self, states: Sequence[StoredState], *, cache: dict[str, StoredState] | None = None
    ) -> None:
        """Remove the states of shards that are over, each in the version that was read.

        In their order, in as many transactions as they need; `cache` loses the shards of each
        transaction after it. Raises `StaleOwnerError`, `ConflictError` (one has changed since),
        when nothing of their transaction was removed.
        """
        ...

    def list_history(self) -> HistoryIndex:
        """The entries of the history. Needs no ownership."""
        ...

    def read_history(self, marks: Sequence[HistoryMark]) -> list[HistoryEntry | None]:
        """These entries; None for one that was removed meanwhile. Needs no ownership."""
        ...

    def write_history(
        self,
        index: HistoryIndex,
        entries: Sequence[tuple[int, HistoryEntry]],
        *,
        remove: Sequence[HistoryMark] = (),
    ) -> HistoryIndex:
        """Add entries to the history that was listed as `index`, each with its number, and remove
        others. Returns the list as it is then. An entry never changes: one that takes the place of
        others has the number of one of them, and another time or kind.

        One transaction, unless the entries are too large for one: then entries are removed in the
        last one, and what a writer leaves that is stopped before it is removed by the next. A write
        of the owner; raises `ConflictError` when another process has written since `index`.
        """
        ...

    def try_lead(self) -> bool:
        """Become the shard list leader, the one task that writes the shard list, or check that this
        task still is.

        True means that this task leads until its session ends and another task takes the role.
        False means that another live task leads: call again from time to time. The owner of the
        whole application always leads. Raises `StaleOwnerError`.
        """
        ...

    def save_shard_list(self, shard_ids: Sequence[str]) -> None:
        """Write the shard list, in this order. A list that is equal to the stored one is not
        written, and its version stays.

        Raises `NotListerError` for a task that is not, or no longer, the leader (`try_lead`),
        `StaleOwnerError`, and `ConflictError` when it was changed in between.
        """
        ...

    def remove_shard_list(self) -> None:
        """Remove the shard list, if there is one: the shards were not listed yet.

        Raises `NotListerError`, `StaleOwnerError` and `ConflictError` as `save_shard_list`.
        """
        ...

    def read_shard_list(self) -> ShardList | None:
        """The list that `save_shard_list` wrote, or the Kinesis Storm spout; None if there is none.
        Needs no ownership.
        """
        ...

    def watch_shard_list(self, callback: Callable[[], None]) -> None:
        """Watch the shard list until `close`. Calls back after each change, and after each lost
        connection, when a change may have been missed.

        Watch first and read afterwards, so that no change is missed. Needs no ownership. The
        callback runs in a thread of the store (in memory: in the thread that made the change), and
        it may run more than once for a change. It must return quickly, raise nothing, and not call
        the store: it sets an event.
        """
        ...

    # plans
    # -----
    def create_plan(self, plan: Plan) -> None:
        """Create an open plan and make it the newest one. The plan before it is closed if it is
        still open, and can never be settled from then on.

        The number of the plan must be above that of every plan that the store knows; otherwise
        raises `ConflictError`. A large plan takes several transactions. It becomes visible as a
        whole in the last one, which also moves `/plan`.
        """
        ...

    def read_task(self, plan_id: str, task: int) -> TaskPlan | None:
        """One task of a plan, counted from 0, or None when the store does not have it."""
        ...

    def close_plan(self, plan_id: str) -> None:
        """Close the newest plan: from then on no result and no report can be published under it.
        Idempotent. Raises `ConflictError` for another plan than the newest.
        """
        ...

    def removed_logs(self, plan_id: str) -> Sequence[int]:
        """The tasks of a plan whose logs were begun and are no longer there, in order: somebody has
        removed them. None of them can publish again (`append_log`).
        """
        ...

    def clear_policy(self) -> None:
        """Remove the policy of an application that is to ack whole batches again. A write of the
        owner. Idempotent.
        """
        ...

    def mark_settled(self, plan_id: str) -> None:
        """Record that the outcomes of the newest plan, which is closed, are in the shard states.
        Idempotent. Raises `ConflictError` for a plan that is open or not the newest.
        """
        ...

    def remove_plan(self, plan_id: str) -> None:
        """Remove a plan with its tasks, results and report. A no-op if it is gone. Raises
        ValueError for the newest plan.
        """
        ...
