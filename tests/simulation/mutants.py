"""Faults to put back into the product: each is a replacement in one file, or several of them, with
the test that has to catch it.

The first two groups are known faults of the Storm spout that this project continues, and of
KafkaSpout's PartitionManager. The last group is our own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

SIMULATION = "the simulation"
TRACKER = "tests/property/test_inflight_record_tracker.py"
CONTRACT = "tests/contract/test_state_store"


class Edit(NamedTuple):
    """`old` stands exactly once in `file`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`catcher`: the simulation, or what pytest is to run. `also`: more edits, where several
    protections stand behind each other, so that without one of them nothing would go wrong.
    """

    name: str
    file: str
    old: str
    new: str
    catcher: str = SIMULATION
    also: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """In the order in which they are made."""
        return (Edit(self.file, self.old, self.new), *self.also)

    def is_named(self, name: str) -> bool:
        """Whether this is a part of its name, or all of its catcher."""
        return name in self.name or name == self.catcher


ANCESTOR = (
    Mutant(
        "a late ack after a failure leaves a ghost in the retry queue",
        "state/tracker/inflight_record_tracker.py",
        "        self._retries.discard(node.first)\n        "
        "self._deadlines.discard(node.first)\n        self._exhausted.drop",
        "        self._deadlines.discard(node.first)\n        self._exhausted.drop",
        TRACKER,
    ),
    Mutant(
        "an acked record is emitted again",
        "state/tracker/snapshot.py",
        "        if node.state is not NodeState.ACKED:\n            unresolved.append",
        "        if node.state is not NodeState.NONE:\n            unresolved.append",
        TRACKER,
    ),
    Mutant(
        "a double failure burns two retries",
        "state/tracker/inflight_record_tracker.py",
        "        if not _is_pending_in(node, attempt):\n            return Effect.IGNORED\n        "
        "record =",
        "        if node.state is not NodeState.PENDING:\n            return "
        "Effect.IGNORED\n        record =",
        TRACKER,
    ),
    Mutant(
        "a retry limit of 0 blocks the checkpoint forever",
        "state/retry_policy.py",
        "        if attempts > self.retry_limit:\n",
        "        if self.retry_limit and attempts > self.retry_limit:\n",
    ),
    Mutant(
        "an unreadable checkpoint is treated as missing",
        "state/codec/shard_states.py",
        "    stored = decode(data, _StoredShardState, path, newest_format=STATE_FORMAT)\n",
        "    try:\n"
        "        stored = decode(data, _StoredShardState, path, newest_format=STATE_FORMAT)\n"
        "    except StoredDataError:\n"
        "        return ShardState(shard_id=shard_id, read_position=TRIM_HORIZON)\n",
    ),
    Mutant(
        "a failed read is treated as a missing checkpoint",
        "state/znodes/shard_states.py",
        "        names = self._tree.children([self._paths.base])[0] or ()\n        shard_ids",
        "        try:\n"
        "            names = self._tree.children([self._paths.base])[0] or ()\n"
        "        except Exception:\n"
        "            names = []\n"
        "        shard_ids",
    ),
    Mutant(
        "a stale owner writes",
        "state/znodes/fence.py",
        "                self._tree.commit([*fence, *operations])\n",
        "                self._tree.commit(operations)\n",
    ),
    Mutant(
        "retries come without backoff",
        "state/retry_policy.py",
        "        return now_ms + round(delay - delay * self.jitter * random.random())\n",
        "        return now_ms\n",
        TRACKER,
    ),
    Mutant(
        "attempts are lost in a restart",
        "state/tracker/snapshot.py",
        "record.count, node_state, record, detached=True)\n",
        "record.count, node_state, replace(record, attempts=0), detached=True)\n",
        TRACKER,
    ),
    Mutant(
        "an ack that comes before the emission is registered is lost",
        "state/tracker/inflight_record_tracker.py",
        "        self._append(sequence, sequence, 1)\n",
        "        late, self._late = getattr(self, '_late', None), sequence\n"
        "        if late is not None:\n"
        "            self._append(late, late, 1)\n",
        TRACKER,
    ),
)
PARTITION_MANAGER = (
    Mutant(
        "failed records that are too far behind are dropped",
        "state/tracker/snapshot.py",
        "        unresolved=tuple(unresolved),\n        lifecycle=lifecycle,\n",
        "        unresolved=tuple(unresolved[-3:]),\n        lifecycle=lifecycle,\n",
    ),
    Mutant(
        "nothing new is read while failures wait",
        "spark_job/driver/retry_queue.py",
        "        return self._blocks_shards or shard.records >= max_unresolved\n",
        "        return True\n",
    ),
    Mutant(
        "a read from a stored position jumps to the newest data",
        "kinesis_spout/service/shapes.py",
        'kind = "AFTER_SEQUENCE_NUMBER" if past else',
        'kind = "LATEST" if past else',
    ),
    Mutant(
        "records that expired unread are skipped in silence",
        "kinesis_spout/shards/data_loss.py",
        "        new = [shard for shard in lapsed if shard not in self._reported]\n",
        "        new: list[str] = []\n",
    ),
    Mutant(
        "the state of another stream is used",
        "state/znodes/identity.py",
        "        if known.is_same(identity):\n",
        "        if known:\n",
    ),
)
OURS = (
    Mutant(
        "a checkpoint may move back",
        "state/znodes/shard_states.py",
        "    if went_back or (before.finished and not after.finished):\n",
        "    if False:\n",
        f"{CONTRACT}_shards.py -k memory",
    ),
    Mutant(
        "a child is read before its parent is settled",
        "kinesis_spout/shards/lineage.py",
        "        return parent in self.listed if state is None else not state.end_was_read\n",
        "        return parent in self.listed and state is None\n",
    ),
    Mutant(
        "the rest of a page that the log cuts is skipped",
        "spark_job/executor/shard_feed.py",
        "            self._rest = page.after(count)\n",
        "            self._rest = None\n",
    ),
    Mutant(
        "failed records are acked with their batch",
        "state/settle.py",
        "    tracker.ack_except(emission.sequence, emission.attempt, left)\n",
        "    tracker.ack(emission.sequence, emission.attempt)\n",
    ),
    Mutant(
        "a plan is settled twice",
        "state/settle.py",
        "    if state.settled_plan == plan_id:\n        return state\n",
        "",
        "tests/unit/state/test_settle.py",
    ),
    Mutant(
        "an empty page is treated as the shard's end",
        "kinesis_spout/reading/shard_getter.py",
        "            self._is_beyond_the_end()\n"
        "            or (is_last and continue_shard(self._shard_id, decoded.child_shards))\n",
        "            self._is_beyond_the_end()\n            or not decoded.count\n",
    ),
    Mutant(
        "a missing iterator alone is the end of a shard",
        "kinesis_spout/reading/shard_getter.py",
        "_SAME_ANSWERS = 3\n",
        "_SAME_ANSWERS = 1\n",
        "tests/unit/kinesis_spout/reading/test_shard_getter.py",
    ),
    Mutant(
        "the last record of a span is read again",
        "kinesis_spout/reading/shard_getter.py",
        "            self._position = Position.after(decoded.last)\n",
        "            self._position = Position.at(decoded.last)\n",
        "tests/unit/kinesis_spout/reading/test_shard_getter.py",
    ),
    Mutant(
        "a cut page reports the last record of the whole page",
        "kinesis_spout/reading/page.py",
        "            last=SequenceNumber.parse(columns.last_number()) if count else None,\n",
        "            last=self.last if count else None,\n",
    ),
    Mutant(
        "shards that never had a state are not reported as lost",
        "kinesis_spout/shards/data_loss.py",
        "[shard for shard in lost if not self._only or shard in self._only]",
        "list[str]()",
    ),
    Mutant(
        "a new shard counts as tracked up to now",
        "kinesis_spout/shards/catalog.py",
        "        return min(known_ms - LISTED_LATE_MS, self.service_now_ms())\n",
        "        return self.service_now_ms()\n",
        "tests/unit/spark_job/driver/test_lost_records.py",
    ),
    Mutant(
        "records that a replayed batch can no longer read are skipped in silence",
        "spark_job/driver/coordinator.py",
        "if task not in ends or not ends[task].sealed\n",
        "if False\n",
        "tests/unit/spark_job/driver/test_lost_records.py",
    ),
    Mutant(
        "a retry that was never read is acked",
        "state/plan.py",
        "        if index >= end.retries_done and part is None and retry.first not in gone:\n"
        "            continue\n",
        "",
    ),
    Mutant(
        "the rest of a range that was read in part is acked",
        "state/settle.py",
        "        left = left if rest is None else [*left, rest]\n",
        "",
        "tests/property/test_settle.py",
    ),
    Mutant(
        "records of a range that are past the retention are acked in silence",
        "spark_job/tracking/outcome_rules.py",
        "            if read.missing:\n",
        "            if read.is_gone:\n",
        "tests/unit/spark_job/tracking/test_outcome_rules.py",
    ),
    Mutant(
        "one answer that a shard is not known makes its retries gone",
        "kinesis_spout/reading/retry_reader.py",
        "                self.shard_gone = True\n",
        "                self.gone.extend(one.first for one in self._retries[self.done :])\n"
        "                self.done = len(self._retries)\n",
    ),
    Mutant(
        "one page at the tip makes retries gone",
        "kinesis_spout/reading/retry_reader.py",
        "self._began_at == self._tip_at == missing)\n",
        "self._began_at == missing)\n",
        "tests/unit/kinesis_spout/reading/test_retry_reader.py",
    ),
    Mutant(
        "a shard is proven gone by one listing",
        "kinesis_spout/shards/data_loss.py",
        "        lasting = self._unlisted.note(unlisted if is_active else (), listed_s)\n",
        "        lasting = unlisted\n",
        "tests/unit/kinesis_spout/shards/test_catalog.py",
    ),
    Mutant(
        "a stream that is recreated under a running job is read on",
        "kinesis_spout/shards/catalog.py",
        "        summary = self.bind()\n",
        "        summary = self.describe()\n",
    ),
    Mutant(
        "a rejected record is tried again",
        "spark_job/driver/retry_planner.py",
        "            record.rejected\n            "
        "or policy.retry.exhausted(record.attempts, record.first",
        "            policy.retry.exhausted(record.attempts, record.first",
    ),
    Mutant(
        "a run ends before it knows the children",
        "spark_job/driver/due_work.py",
        "self._catalog.shard_states(), self._catalog.unfollowed())",
        "self._catalog.shard_states())",
    ),
    Mutant(
        "children that were never observed are skipped in silence",
        "kinesis_spout/shards/data_loss.py",
        "        if alone:\n",
        "        if False:\n",
        "tests/unit/spark_job/driver/test_lost_records.py",
    ),
)
MUTANTS = (*ANCESTOR, *PARTITION_MANAGER, *OURS)
