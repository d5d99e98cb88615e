"""The check of an application's state: whether it is of the stream that is there today."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.doctor.checkup import Check
from kinesis_spout.doctor.finding import Finding, failed, not_tried, ok
from kinesis_spout.doctor.zookeeper import ACCESS
from state.position import Position
from state.zookeeper.security import OPEN, ZookeeperSecurity
from state.zookeeper.store import ZookeeperStateStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kinesis_spout.service.shard_info import StreamSummary

STATE = "state"
_CALL_LIMIT_S = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationCheckup:
    """The check of one application on one stream. `described`: the stream of today; None if it
    could not be described.
    """

    zookeeper: str
    root: str
    application: str
    stream: str
    security: ZookeeperSecurity = OPEN
    described: Callable[[], StreamSummary | None]

    def checks(self) -> list[Check]:
        return [Check(name=STATE, look=self.look_at_state, needs=[ACCESS])]

    def look_at_state(self) -> Iterator[Finding]:
        described = self.described()
        if described is None:
            yield not_tried(STATE, "it needs stream")
            return
        store = ZookeeperStateStore(
            self.zookeeper,
            root=self.root,
            application=self.application,
            stream=self.stream,
            operation_timeout_s=_CALL_LIMIT_S,
            connect_timeout_s=_CALL_LIMIT_S,
            security=self.security,
        )
        with closing(store):
            known = store.identity.read()
        if known is None:
            yield ok(STATE, f"application {self.application} has none yet")
        elif known.is_same(described.identity):
            yield ok(STATE, f"application {self.application} has begun on this stream")
        else:
            yield failed(
                STATE,
                f"application {self.application} has the state of another stream, {known.arn} "
                f"created at {Position.at_timestamp(known.created_ms)}; use another application "
                "name, or remove the state with kinesis-spout reset",
            )
