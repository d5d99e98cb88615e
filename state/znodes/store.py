"""The state store over a tree of znodes: the same rules for ZooKeeper and for memory.

The contract is `state.state_store.StateStore`. The rules are in the other modules of
`state.znodes`: ownership in `fence` and `claim`, openings in `openings`, shard states in
`shard_states`, their list in `shard_list`, their history in `history`, plans and logs in `plans`,
reports and policies in `reports`, the pause in `pause`, what owners tell of themselves in `runs`;
all of it, for those who only look, in `view`, and who may write it in `access`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from state.codec.values import decode, encode
from state.errors import StateError, StreamMismatchError, UnfinishedImportError
from state.state_store import (
    HistoryEntry,
    HistoryIndex,
    HistoryMark,
    Pause,
    ShardList,
    StartPin,
    StateChange,
    StoredApplication,
    StoredLog,
    StoredState,
    StreamIdentity,
)
from state.znodes.access import AccessZnodes
from state.znodes.claim import Claims
from state.znodes.fence import Fence
from state.znodes.history import HistoryZnodes
from state.znodes.openings import OpeningZnodes
from state.znodes.pause import PauseZnodes
from state.znodes.plans import PlanZnodes
from state.znodes.reports import ReportZnodes
from state.znodes.runs import RunZnodes
from state.znodes.shard_list import ShardListZnodes
from state.znodes.shard_states import ShardZnodes, conflict
from state.znodes.tree import (
    Create,
    Delete,
    Operation,
    Set,
    TransactionRefusedError,
    ZnodeTree,
)
from state.znodes.view import ViewZnodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from state.owner.owner_info import OwnerInfo
    from state.owner.run_log import Run, RunLog
    from state.plan import Plan, PlanPointer, TaskPlan, TaskResult
    from state.report import OpenReport, OutcomePolicy, PlanReport
    from state.shard_state import ShardState
    from state.state_store import TaskShare
    from state.task_log import TaskLog
    from state.znodes.access import NodeAccess
    from state.znodes.paths import ZookeeperPaths


class ZnodeStateStore:
    """A `StateStore`. `reset_command`: the command, named in errors, that drops the application's
    state. The constructor does no I/O.
    """

    def __init__(self, tree: ZnodeTree, paths: ZookeeperPaths, *, reset_command: str) -> None:
        self._tree = tree
        self._paths = paths
        self._reset_command = reset_command
        self._claims = Claims(tree, paths)
        self._fence = Fence(tree, paths, self._claims)
        self._openings = OpeningZnodes(tree, paths, self._fence)
        self._shard_list = ShardListZnodes(tree, paths, self._fence, self._claims)
        self._shards = ShardZnodes(tree, paths, self._fence)
        self._history = HistoryZnodes(tree, paths, self._fence)
        self._plans = PlanZnodes(tree, paths, self._fence)
        self._reports = ReportZnodes(tree, paths, self._fence)
        self._pause = PauseZnodes(tree, paths)
        self._runs = RunZnodes(tree, paths, self._fence)
        self._access = AccessZnodes(tree, paths)
        self._view = ViewZnodes(tree, paths, self._fence, self._claims)

    # ownership ------------------------------------------------------------------------------------
    def acquire(self, owner: OwnerInfo, *, timeout_s: float, task: TaskShare | None = None) -> int:
        return self._fence.acquire(owner, timeout_s=timeout_s, task=task)

    def release(self) -> None:
        self._fence.release()

    def read_unclosed(self) -> int:
        return self._openings.read()

    def save_unclosed(self, openings: int) -> None:
        self._openings.save(openings)

    def close(self) -> None:
        self._fence.forget()
        self._tree.close()

    def read_owner(self) -> OwnerInfo | None:
        """The process that holds the ownership now, or None; of several tasks, the first."""
        return next((holder.info for holder in self._claims.holders()), None)

    def read_tasks(self) -> Mapping[TaskShare, OwnerInfo]:
        """The tasks that share the ownership now, in order; empty while one process owns all."""
        return {
            holder.task: holder.info for holder in self._claims.holders() if holder.task is not None
        }

    def read_application(self) -> StoredApplication:
        """All that is stored of the application, in one pass (`state.znodes.view`)."""
        return self._view.read(self.read_stream(), self.read_start(also_unfinished=True))

    def read_access(self, shard_ids: Iterable[str]) -> Mapping[str, NodeAccess]:
        """Who may write the nodes of the application, by path (`state.znodes.access`)."""
        return self._access.read(shard_ids)

    def reset(self, owner: OwnerInfo, *, timeout_s: float) -> int:
        """Remove all state of the application and stream. Returns the number of shards that had
        state.

        Acquires the ownership for it (see `acquire`) and releases it afterwards; raises
        `OwnedByAnotherError` while another live process holds it. The node `epoch` stays, with an
        incremented number, so that no process from before the reset can write later; and `reset`
        tells that `owner` has removed the state (`read_reset`).
        """
        self._fence.acquire(owner, timeout_s=timeout_s)
        try:
            shards = len(self._shards.names())
            # Last of all: stopped before, what is left still belongs to its stream, and is found.
            last = [self._paths.start, self._paths.identity]
            stay = {self._paths.epoch, self._paths.owner, self._paths.reset}
            self._note_reset(owner)
            names = self._tree.children([self._paths.base])[0] or ()
            paths = {f"{self._paths.base}/{name}" for name in names} - stay
            for path in [*sorted(paths.difference(last)), *(one for one in last if one in paths)]:
                if not self._plans.remove_tree(path):
                    raise StateError(
                        f"{path} was written to while it was being removed; stop the process that "
                        "writes there and reset again"
                    )
        finally:
            self._fence.release()
        return shards

    def read_reset(self) -> OwnerInfo | None:
        return self._view.reset()

    def _note_reset(self, owner: OwnerInfo) -> None:
        """Before anything is removed: so a reset that was stopped in the middle is told, too."""
        path = self._paths.reset
        data, there = encode(owner, path), self._tree.read([path])[0]
        write = Create(path, data) if there is None else Set(path, data, there.version)
        with suppress(TransactionRefusedError):  # another operator was faster: that is told
            self._tree.commit([write])

    def _forget_reset(self) -> None:
        """It has begun again: a state that is missing later was not removed by that reset."""
        with suppress(TransactionRefusedError):
            if self._tree.read([self._paths.reset])[0] is not None:
                self._tree.commit([Delete(self._paths.reset)])

    def begin_run(self, run: Run) -> None:
        self._runs.begin(run)

    def amend_run(self, of: OwnerInfo, amended: Callable[[RunLog], RunLog]) -> bool:
        return self._runs.amend(of, amended)

    def read_runs(self) -> Mapping[TaskShare | None, RunLog]:
        return self._runs.read()

    # identity and start ---------------------------------------------------------------------------
    def bind_stream(self, identity: StreamIdentity) -> None:
        stored = self._create_once(
            self._paths.identity,
            encode(identity, self._paths.identity),
            fenced=self._fence.ever_held,
        )
        known = decode(stored, StreamIdentity, self._paths.identity)
        if known.is_same(identity):
            return
        if known.arn == identity.arn:
            what = (
                f"stream {identity.arn} was deleted and created again: the state belongs to the "
                f"stream created at {_time(known.created_ms)}, but the stream of today was created "
                f"at {_time(identity.created_ms)}"
            )
        else:
            what = (
                f"the state of application {self._paths.application!r} belongs to stream "
                f"{known.arn}, not to {identity.arn}"
            )
        raise StreamMismatchError(
            f"{what}; use another application name, or drop the old state with: "
            f"{self._reset_command}"
        )

    def read_stream(self) -> StreamIdentity | None:
        """The stream that the state is bound to, or None before `bind_stream`."""
        node = self._tree.read([self._paths.identity])[0]
        return None if node is None else decode(node.data, StreamIdentity, self._paths.identity)

    def read_start(self, *, also_unfinished: bool = False) -> StartPin | None:
        node = self._tree.read([self._paths.start])[0]
        pin = None if node is None else decode(node.data, StartPin, self._paths.start)
        if pin is not None and pin.importing and not also_unfinished:
            raise UnfinishedImportError(
                f"an import into application {self._paths.application} on stream "
                f"{self._paths.stream} was stopped before its end, so its shards are not all where "
                "they belong; give the command again, `kinesis-spout checkpoint import` or "
                f"`kinesis-spout import`, or drop the state with: {self._reset_command}"
            )
        return pin

    def pin_start(self, pin: StartPin) -> StartPin:
        stored = self._create_once(self._paths.start, encode(pin, self._paths.start), fenced=False)
        self._forget_reset()
        return decode(stored, StartPin, self._paths.start)

    def replace_start(self, pin: StartPin | None) -> None:
        path = self._paths.start
        node = self._tree.read([path])[0]
        write: Operation
        if pin is not None:
            data = encode(pin, path)
            write = Create(path, data) if node is None else Set(path, data, node.version)
        elif node is not None:
            write = Delete(path)
        else:
            return
        try:
            self._fence.commit([write])
        except TransactionRefusedError as refused:
            raise conflict(refused) from refused
        self._forget_reset()

    # pause ----------------------------------------------------------------------------------------
    def pause(self, pause: Pause) -> Pause:
        return self._pause.begin(pause)

    def resume(self) -> Pause | None:
        return self._pause.end()

    def read_pause(self) -> Pause | None:
        return self._pause.read()

    def watch_pause(self, callback: Callable[[], None]) -> None:
        self._pause.watch(callback)

    # shards ---------------------------------------------------------------------------------------
    def load_states(self) -> Mapping[str, StoredState]:
        return self._shards.load()

    def save_states(
        self,
        changes: Sequence[StateChange],
        *,
        cache: dict[str, StoredState] | None = None,
        max_per_write: int | None = None,
    ) -> list[StoredState]:
        return self._shards.save(changes, {} if cache is None else cache, max_per_write)

    def check_states(self, states: Iterable[ShardState]) -> None:
        """Raise `InvalidStoreSettingError` or `StateTooLargeError` where these states cannot be
        stored, whatever is stored. Does no I/O.
        """
        self._shards.check(states)

    def move_states(self, changes: Sequence[StateChange]) -> list[StoredState]:
        return self._shards.save(changes, {}, None, may_go_back=True)

    def remove_states(
        self, states: Sequence[StoredState], *, cache: dict[str, StoredState] | None = None
    ) -> None:
        self._shards.remove(states, {} if cache is None else cache)

    def list_history(self) -> HistoryIndex:
        return self._history.index()

    def read_history(self, marks: Sequence[HistoryMark]) -> list[HistoryEntry | None]:
        return self._history.read(marks)

    def write_history(
        self,
        index: HistoryIndex,
        entries: Sequence[tuple[int, HistoryEntry]],
        *,
        remove: Sequence[HistoryMark] = (),
    ) -> HistoryIndex:
        return self._history.write(index, entries, remove)

    def save_shard_list(self, shard_ids: Sequence[str]) -> None:
        self._shard_list.save(shard_ids)

    def remove_shard_list(self) -> None:
        self._shard_list.remove()

    def read_shard_list(self) -> ShardList | None:
        return self._shard_list.read()

    def watch_shard_list(self, callback: Callable[[], None]) -> None:
        self._shard_list.watch(callback)

    def try_lead(self) -> bool:
        return self._shard_list.try_lead()

    # plans
    # -----
    def read_pointer(self) -> PlanPointer | None:
        return self._plans.pointer()

    def create_plan(self, plan: Plan) -> None:
        self._plans.create(plan)

    def known_plans(self) -> Sequence[str]:
        return self._plans.known()

    def read_plan(self, plan_id: str) -> Plan | None:
        return self._plans.read(plan_id)

    def read_task(self, plan_id: str, task: int) -> TaskPlan | None:
        return self._plans.read_task(plan_id, task)

    def close_plan(self, plan_id: str) -> None:
        self._plans.close(plan_id)

    def read_log(self, plan_id: str, task: int) -> StoredLog:
        return self._plans.read_log(plan_id, task)

    def append_log(self, plan_id: str, task: int, log: TaskLog, version: int | None) -> int:
        return self._plans.append_log(plan_id, task, log, version)

    def read_ends(self, plan_id: str) -> Mapping[int, TaskResult]:
        return self._plans.read_ends(plan_id)

    def removed_logs(self, plan_id: str) -> Sequence[int]:
        return self._plans.removed_logs(plan_id)

    def mark_settled(self, plan_id: str) -> None:
        self._plans.mark_settled(plan_id)

    def remove_plan(self, plan_id: str) -> None:
        self._plans.remove(plan_id)

    # outcomes -------------------------------------------------------------------------------------
    def read_policy(self) -> OutcomePolicy | None:
        return self._reports.read_policy()

    def mark_tracked(self, policy: OutcomePolicy) -> None:
        self._reports.mark_tracked(policy)

    def clear_policy(self) -> None:
        self._reports.clear_policy()

    def open_report(self, plan_id: str, token: str) -> OpenReport:
        return self._reports.open(plan_id, token)

    def answer_report(self, opened: OpenReport) -> None:
        self._reports.answer(opened)

    def finish_report(self, opened: OpenReport, report: PlanReport) -> None:
        self._reports.finish(opened, report)

    def read_report(self, plan_id: str) -> PlanReport | None:
        return self._reports.read(plan_id)

    def _create_once(self, path: str, data: bytes, *, fenced: bool) -> bytes:
        """Create the node with `data` if it does not exist, and return what it holds.

        `fenced`: the creation is a write of the owner, so that a stale owner creates nothing.
        """
        while True:
            node = self._tree.read([path])[0]
            if node is not None:
                return node.data
            self._tree.ensure(self._paths.base)
            try:
                (self._fence if fenced else self._tree).commit([Create(path, data)])
            except TransactionRefusedError:
                continue  # another process has just created it
            return data


def _time(moment_ms: int) -> str:
    return (
        datetime.fromtimestamp(moment_ms / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
