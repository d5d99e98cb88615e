"""Reads a snapshot, and asks the service for the tips of shards. Blocks; writes nothing.

A question is one GetShardIterator and one GetRecords of one record, at the reader's own position.
Each shard is asked once in a round, so at most one of its five reads a second is taken, and no
question is repeated when the shard is throttled: its consumer comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.errors import (
    AccessDeniedError,
    KeyThrottledError,
    KinesisError,
    ShardNotFoundError,
    StreamNotFoundError,
    ThrottledError,
    UnreadableRecordError,
)
from kinesis_spout.inspection.health import TipAnswer
from kinesis_spout.inspection.snapshot import Snapshot
from kinesis_spout.inspection.wording import counted
from kinesis_spout.threads import DaemonPool
from state.process import state_of, stopped_jvm
from state.store.view import StoredApplication

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.client import KinesisClient
    from state.position import Position
    from state.znodes.topics import StoreTopics

MAX_CONCURRENT_CALLS = 16


def read_snapshot(
    client: KinesisClient, store: StoreTopics | None, *, application: str, clock: Clock
) -> Snapshot:
    """What ZooKeeper has, and one listing of the shards. Without a store, the listing alone.

    ZooKeeper is read first: a shard that a job learns of in between would otherwise have a state
    and look as if it had expired. `clock` is used if the service does not give its time. Raises
    `StreamNotFoundError`, which says whether the stream was there once.
    """
    stored = StoredApplication() if store is None else store.view.read()
    try:
        stream = client.describe()
    except StreamNotFoundError as exc:
        if not stored.states:
            raise
        raise StreamNotFoundError(
            f"{client.where} does not exist, but ZooKeeper has the state of application "
            f"{application} for {counted(len(stored.states), 'shard')} of a stream with this name",
            "pass the job's region, account and endpoint. If the stream was deleted, its unread "
            "records are lost: run `kinesis-spout reset`, and start the job from TRIM_HORIZON. "
            "LATEST would skip the records that a new stream already contains",
        ) from exc
    runs = [log.newest.owner for log in stored.runs.values() if log.newest is not None]
    owners = [*(one.info for one in stored.owners), *runs]
    return Snapshot(
        application=application,
        stored=stored,
        stream=stream,
        listing=client.list_shards(),
        now_ms=stream.now_ms(clock.now_ms()),
        process_states={
            owner: state
            for owner in dict.fromkeys(owners)
            if (state := state_of(owner)) is not None
        },
        access={} if store is None else store.view.read_access(stored.states),
        stopped_jvms={
            one.info: pid for one in stored.owners if (pid := stopped_jvm(one.info)) is not None
        },
    )


@dataclass(slots=True)
class TipReader:
    """Asks shards for their tips.

    - `patient`: a question is repeated after a transient fault, and an error is raised. Else each
      is asked once, and a shard that does not answer, as a throttled one, is left out.
    - `refused`: the error that ended the asking: the right to read is missing.
    - `throttled`: the shards of the last round that did not answer because they are throttled.
    - `unanswered`: why other shards of it did not answer.
    """

    client: KinesisClient
    clock: Clock
    patient: bool = False
    refused: KinesisError | None = field(default=None, init=False)
    throttled: set[str] = field(default_factory=set, init=False)
    unanswered: dict[str, KinesisError] = field(default_factory=dict, init=False)

    def ask(self, wanted: Iterable[tuple[str, Position]]) -> dict[str, TipAnswer]:
        """The answers by shard. A shard that is gone has none."""
        pairs = [] if self.refused else list(wanted)
        self.throttled, self.unanswered = set(), {}
        with DaemonPool(MAX_CONCURRENT_CALLS, "tips") as pool:
            answers = pool.map(lambda pair: self._answer(*pair), pairs)
            return {
                shard_id: answer
                for (shard_id, _), answer in zip(pairs, answers, strict=True)
                if answer is not None
            }

    def _answer(self, shard_id: str, position: Position) -> TipAnswer | None:
        if self.refused:
            return None
        try:
            iterator = self.client.shard_iterator(shard_id, position, retry=self.patient)
            page = self.client.get_records(iterator, 1, retry=self.patient)
        except ShardNotFoundError:
            return None
        except KinesisError as exc:
            found: KinesisError = exc
            if isinstance(exc, UnreadableRecordError):
                found = exc.at(self.client.where, shard_id)
            if self.patient:
                raise found from None
            if isinstance(exc, AccessDeniedError):
                self.refused = exc
            elif isinstance(exc, ThrottledError) and not isinstance(exc, KeyThrottledError):
                self.throttled.add(shard_id)
            else:
                self.unanswered[shard_id] = found
            return None
        dated_ms, behind_ms = page.service_time_ms, page.millis_behind_latest
        asked_ms = self.clock.now_ms() if dated_ms is None else dated_ms
        # MillisBehindLatest tells of the place after the page. A record in the page is unread, so
        # it counts.
        times = (page.last_arrival_ms, asked_ms - behind_ms if behind_ms else None)
        return TipAnswer(asked_ms, min((one for one in times if one is not None), default=None))
