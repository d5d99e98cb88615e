"""The znode paths of one application and stream, and the names that they may be made of.

    /<chroot>/<root>/<application>/<stream>/
        stream | start | shardList | plan | tracked | paused | reset
        epoch | epoch/<i>-of-<n> | epoch/unclosed-<i>-of-<n> | epoch/lister
        owner | owner/<i>-of-<n>
        <shardId>/state
        history | history/<number>-<timeMs>-<kind>-<part>-of-<parts>
        runs | runs/all | runs/<i>-of-<n>
        batches/<planId>/<task>/end | begun
        batches/<planId>/report/<token>-<version>-<part>

The paths of the shards are those of the Kinesis Storm spout, so an application can continue from
its checkpoints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from state.errors import InvalidStoreSettingError
from state.plan import plan_number

if TYPE_CHECKING:
    from state.store.ownership import TaskShare

# The characters that ZooKeeper refuses in a path:
# https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html (The data model). Java writes a
# character beyond U+FFFF as two surrogates, and those are refused.
_FORBIDDEN = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_MAX_NAME_BYTES = 200


def valid_name(what: str, name: str) -> str:
    """`name` unchanged, if it can be one part of a path. Else raises `InvalidStoreSettingError`,
    which says `what` the name is for.
    """
    remedy = None
    if not name or name in {".", ".."}:
        remedy = "use a name that is neither empty nor '.' nor '..'"
    elif _FORBIDDEN.search(name):
        remedy = "use a name without '/', control characters or emoji"
    if remedy is not None:
        raise InvalidStoreSettingError(f"{what} {name!r} is not a valid name in ZooKeeper", remedy)
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise InvalidStoreSettingError(
            f"{what} {name[:20]!r}... is longer than {_MAX_NAME_BYTES} bytes", "use a shorter name"
        )
    return name


class _Node:
    """The path of a node below the application's own, by the node's name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, paths: ZookeeperPaths, _: type) -> str:
        return f"{paths.base}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperPaths:
    """The paths of one application and stream. `chroot`: empty, or `/a/b`."""

    chroot: str = ""
    root: str
    application: str
    stream: str
    base: str = field(init=False, repr=False, compare=False)

    identity = _Node("stream")
    start = _Node("start")
    reset = _Node("reset")  # tells who removed the state, until the application begins again
    epoch = _Node("epoch")
    owner = _Node("owner")
    # The shard list leader's, and the tasks' unclean starts, are below `epoch`, so that they are
    # removed with the tasks' epochs when the shares change.
    shard_list_leader = _Node("epoch/lister")
    shard_list = _Node("shardList")
    plan = _Node("plan")
    tracked = _Node("tracked")
    paused = _Node("paused")  # pauses the application while it exists
    history = _Node("history")
    runs = _Node("runs")
    batches = _Node("batches")

    def __post_init__(self) -> None:
        if valid_name("root", self.root) == "zookeeper" and not self.chroot:
            raise InvalidStoreSettingError(
                "the root znode cannot be 'zookeeper', because ZooKeeper reserves this name",
                "use another name for the root znode",
            )
        valid_name("application", self.application)
        valid_name("stream", self.stream)
        base = f"{self.chroot}/{self.root}/{self.application}/{self.stream}"
        object.__setattr__(self, "base", base)

    def task_owner(self, task: TaskShare) -> str:
        return f"{self.owner}/{task}"

    def task_epoch(self, task: TaskShare) -> str:
        return f"{self.epoch}/{task}"

    def task_unclean_starts(self, task: TaskShare) -> str:
        """The node that counts the task's starts without an orderly end."""
        return f"{self.epoch}/unclosed-{task}"  # its name from before stays

    def history_part(self, name: str) -> str:
        """A part of an entry of the history, by the name of its node."""
        return f"{self.history}/{name}"

    def run_log(self, name: str) -> str:
        """The last runs of a share (`1-of-3`), or of the whole application (`all`)."""
        return f"{self.runs}/{name}"

    def shard(self, shard_id: str) -> str:
        if shard_id in _RESERVED:
            raise InvalidStoreSettingError(
                f"shard id {shard_id!r} is reserved for another znode of the state",
                "pass the shard id that Kinesis returned",
            )
        return f"{self.base}/{valid_name('shard id', shard_id)}"

    def shard_state(self, shard_id: str) -> str:
        return f"{self.shard(shard_id)}/state"

    def batch(self, plan_id: str) -> str:
        plan_number(plan_id)
        return f"{self.batches}/{plan_id}"

    def task(self, plan_id: str, task: int) -> str:
        return f"{self.batch(plan_id)}/{task}"

    def end(self, plan_id: str, task: int) -> str:
        return f"{self.task(plan_id, task)}/end"

    def begun(self, plan_id: str, task: int) -> str:
        """The node that is created with the task's log, and shows that there was one."""
        return f"{self.task(plan_id, task)}/begun"

    def report(self, plan_id: str) -> str:
        return f"{self.batch(plan_id)}/report"

    def report_part(self, plan_id: str, token: str, version: int, part: int) -> str:
        """A part of the report opened with this token, in this version of the report's node."""
        return f"{self.report(plan_id)}/{valid_name('report token', token)}-{version}-{part}"


# Names of the application's own nodes. No shard has one of them.
_RESERVED = frozenset(
    node.name.partition("/")[0] for node in vars(ZookeeperPaths).values() if isinstance(node, _Node)
)


def is_shard(child: str) -> bool:
    """Whether a child of `base` is the node of a shard."""
    return child not in _RESERVED


def subject(paths: ZookeeperPaths) -> str:
    """What the paths belong to, for messages."""
    return f"application {paths.application!r} of stream {paths.stream!r}"
