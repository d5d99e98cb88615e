"""Plans and their tasks' logs as znodes.

A plan is open while its node `batches/<planId>` is in version 0. Closing the plan sets the node. A
task's log is written in one transaction with a check of version 0, so nothing can be added to a
closed plan.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import asdict

from state.codec.values import decode, encode, stored_format
from state.errors import ConflictError, PlanClosedError, TaskLogError
from state.plan import PLAN_FORMAT, Plan, PlanPointer, PlanStatus, TaskPlan, TaskResult, plan_number
from state.store.plans import PlanStore, StoredLog
from state.task_log import LOG_FORMAT, TaskLog
from state.znodes.fence import Nodes, in_transactions
from state.znodes.tree import (
    Check,
    Create,
    Operation,
    Refusal,
    Set,
    TransactionRefusedError,
    Znode,
    ensure,
    put,
    stands,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OPEN_VERSION = 0
_THERE_IS_ONE = Refusal.NODE_EXISTS
_MAX_REMOVALS = 5  # rounds; only a late result of an unsettled plan makes a second one necessary


class PlanHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of `batches/<planId>`: a `Plan` with the number of its tasks, its child nodes."""

    created_ms: int
    tasks: int
    until_ms: int | None = None
    outages: int = msgspec.field(default=0, name="storms")  # the name in ZooKeeper stays
    delivery_limit: int | None = None
    format: int = PLAN_FORMAT


class PlanZnodes(Nodes, PlanStore):
    """A `PlanStore`."""

    # tasks ----------------------------------------------------------------------------------------
    def read_log(self, plan_id: str, task: int) -> StoredLog:
        batch, path = self._paths.batch(plan_id), self._paths.end(plan_id, task)
        plan, node = self._tree.read([batch, path])  # in this order
        return StoredLog(
            log=None if node is None else decode_log(node.data, path),
            version=None if node is None else node.version,
            plan_is_open=plan is not None and plan.version == OPEN_VERSION,
        )

    def append_log(self, plan_id: str, task: int, log: TaskLog, version: int | None) -> int:
        path, begun = self._paths.end(plan_id, task), self._paths.begun(plan_id, task)
        data = encode(log, path)
        write: list[Create | Set] = (
            [Create(path, data), Create(begun, b"")]
            if version is None
            else [Set(path, data, version)]
        )
        try:
            self._tree.commit([Check(self._paths.batch(plan_id), OPEN_VERSION), *write])
        except TransactionRefusedError as refused:
            if refused.path == path and (version is not None or refused.refusal is _THERE_IS_ONE):
                raise ConflictError(
                    f"another process changed the task log in {path}. Nothing was appended; read "
                    "the log again"
                ) from refused
            if refused.path == begun and refused.refusal is _THERE_IS_ONE:
                raise TaskLogError(
                    f"the task log in {path} was removed, although some of its rows may have been "
                    "passed to Spark. No other log can replace it",
                    "start the query again; it redelivers the records that were not acked",
                ) from refused
            raise PlanClosedError(
                f"batch {plan_id} is closed or removed, so its task {task} cannot publish records; "
                "the task's records are redelivered"
            ) from refused
        return stands(write[0]).version

    # the owner ------------------------------------------------------------------------------------
    def pointer(self) -> PlanPointer | None:
        return self._decoded(self._paths.plan, PlanPointer)

    def known(self) -> list[str]:
        numbers = {}
        for name in self._names(self._paths.batches):
            with suppress(ValueError):
                numbers[name] = plan_number(name)
        return sorted(numbers, key=lambda plan_id: (numbers[plan_id], plan_id))

    def create(self, plan: Plan) -> None:
        paths = self._paths
        node = self._read(paths.plan)
        pointer = self._pointed(node)
        known = self.known()
        newest = max(map(plan_number, [*known, *([pointer.id] if pointer else [])]), default=0)
        if plan_number(plan.plan_id) <= newest:
            self._fence.check()  # raises for a process that was overtaken: that is why
            raise ConflictError(
                f"batch {plan.plan_id} does not have a higher number than batch {newest}, "
                f"the newest batch of {paths.base}",
                "choose a higher batch number",
            )
        if not known:
            ensure(self._tree, paths.batches)
        fields = asdict(plan)
        del fields["plan_id"]  # it is in the path
        header = PlanHeader(**fields | {"tasks": len(plan.tasks)})
        values: list[tuple[str, msgspec.Struct]] = [(paths.batch(plan.plan_id), header)]
        values += [(paths.task(plan.plan_id, n), task) for n, task in enumerate(plan.tasks)]
        *first, last = in_transactions(Create(path, encode(value, path)) for path, value in values)
        for creations in first:
            self._fence.write(creations)
        closing: list[Operation] = []
        if pointer is not None and pointer.status is PlanStatus.OPEN:
            batch = paths.batch(pointer.id)
            closing = _closing(batch, self._read(batch))
        self._move(PlanPointer(plan.plan_id, PlanStatus.OPEN), node, [*last, *closing])

    def header(self, plan_id: str) -> PlanHeader | None:
        return self._decoded(self._paths.batch(plan_id), PlanHeader)

    def read(self, plan_id: str) -> Plan | None:
        header = self.header(plan_id)
        if header is None:
            return None
        tasks = self.tasks(plan_id, header)
        if len(tasks) < header.tasks:
            return None  # half created or half removed: not yet, or no longer, a plan
        return Plan(plan_id=plan_id, **asdict(header) | {"tasks": tuple(tasks.values())})

    def tasks(self, plan_id: str, header: PlanHeader) -> dict[int, TaskPlan]:
        paths = {task: self._paths.task(plan_id, task) for task in range(header.tasks)}
        return self._values(paths, lambda data, path: decode(data, TaskPlan, path))

    def read_results(self, plan_id: str) -> Mapping[int, TaskResult]:
        header = self.header(plan_id)
        logs = {} if header is None else self.logs(plan_id, header)
        return {task: log.folded() for task, log in logs.items()}

    def logs(self, plan_id: str, header: PlanHeader) -> dict[int, TaskLog]:
        paths = {task: self._paths.end(plan_id, task) for task in range(header.tasks)}
        return self._values(paths, decode_log)

    def removed_logs(self, plan_id: str) -> list[int]:
        header = self.header(plan_id)
        tasks = range(header.tasks if header else 0)
        # The marker first: both are created at once, so a log that is not there then was removed.
        begun, logs = (
            self._values({task: path(plan_id, task) for task in tasks}, lambda data, _: data)
            for path in (self._paths.begun, self._paths.end)
        )
        return sorted(begun.keys() - logs.keys())

    def close(self, plan_id: str) -> None:
        batch = self._paths.batch(plan_id)
        node, plan = self._tree.read([self._paths.plan, batch])
        if self._status(plan_id, node) is PlanStatus.OPEN:
            self._move(PlanPointer(plan_id, PlanStatus.CLOSED), node, _closing(batch, plan))
        else:
            self._fence.check()

    def mark_settled(self, plan_id: str) -> None:
        node = self._read(self._paths.plan)
        status = self._status(plan_id, node)
        if status is PlanStatus.OPEN:
            raise ConflictError(
                f"batch {plan_id} is open, so no outcome can be stored",
                f"close batch {plan_id} first",
            )
        if status is PlanStatus.CLOSED:
            self._move(PlanPointer(plan_id, PlanStatus.SETTLED), node, [])
        else:
            self._fence.check()

    def remove(self, plan_id: str) -> None:
        batch = self._paths.batch(plan_id)
        for _ in range(_MAX_REMOVALS):
            newest, plan = self._tree.read([self._paths.plan, batch])
            pointer = self._pointed(newest)
            if pointer is not None and pointer.id == plan_id:
                raise ValueError(
                    f"batch {plan_id} cannot be removed, because it is the newest batch; store "
                    "the outcomes of a later batch first"
                )
            # Closed first, so that no result is created under a plan that is being removed.
            if closing := _closing(batch, plan):
                self._fence.write(closing)
            if self._fence.remove_tree(batch):
                return
        raise ConflictError(
            f"another process wrote to batch {plan_id} while it was being removed",
            "try to remove the batch later",
        )

    def _pointed(self, node: Znode | None) -> PlanPointer | None:
        return None if node is None else decode(node.data, PlanPointer, self._paths.plan)

    def _move(
        self, pointer: PlanPointer, node: Znode | None, operations: Sequence[Operation]
    ) -> None:
        """Write `/plan`, which was read as `node`, in one transaction with `operations`."""
        path = self._paths.plan
        self._fence.write([*operations, put(path, encode(pointer, path), node)])

    def _status(self, plan_id: str, node: Znode | None) -> PlanStatus:
        """The newest plan's status, by `/plan` as read. Raises `ConflictError` for another plan."""
        pointer = self._pointed(node)
        if pointer is not None and pointer.id == plan_id:
            return pointer.status
        newest = (
            "because no batch exists"
            if pointer is None
            else f"which is {pointer.id} ({pointer.status})"
        )
        raise ConflictError(
            f"batch {plan_id} is not the newest batch of {self._paths.base}, {newest}",
            "close only the newest batch, and store only its outcomes",
        )


def decode_log(data: bytes, path: str) -> TaskLog:
    """The log in `data`. Format 1 was the whole result of a task, written once.

    Raises `StoredDataError` for damaged bytes and for a newer format.
    """
    if stored_format(data, TaskLog, path, newest=LOG_FORMAT) == PLAN_FORMAT:
        return TaskLog(entries=decode(data, TaskResult, path).shards, sealed=True)
    return decode(data, TaskLog, path, newest_format=LOG_FORMAT)


def _closing(path: str, node: Znode | None) -> list[Operation]:
    """What closes the plan at this path, read as `node`; nothing if it is closed, or gone."""
    if node is None or node.version != OPEN_VERSION:
        return []
    return [Set(path, node.data, OPEN_VERSION)]
