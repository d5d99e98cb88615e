"""Rules that withhold rows of a batch from the user's function. Pure.

A row is withheld if the plan marks it as exhausted, or if it is blocked: an earlier record of its
key or shard waits for a retry. All records of the shard's ancestors count as earlier, because a key
continues in a child shard. The driver makes the rules from the plan and the shard states. The
executors apply the rules to each shard's rows in the order of the sequence numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from kinesis_spout.shards.lineage import unresolved_ancestors
from spark_job.tracking.outcomes import Outcome, order_key
from state.report import OnFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from spark_job.tracking.outcomes import FailedRecord
    from state.plan import Plan
    from state.sequence_number import SequenceNumber
    from state.shard_state import ShardState

Number = tuple[int, int]
"""A sequence number and a sub-sequence number, compared in this order."""

BEFORE_ALL: Number = (-1, 0)

WITHHELD_DDL = "messageId STRING, outcome INT, key STRING, ordinal BIGINT"
_SCHEMA = pa.schema(
    {"messageId": pa.string(), "outcome": pa.int32(), "key": pa.string(), "ordinal": pa.int64()}
)
_WAITING = (Outcome.RETRY, Outcome.ALONE, Outcome.UNCOUNTED, Outcome.BLOCKED)


def number_of(sequence: SequenceNumber) -> Number:
    return sequence.sequence, sequence.sub


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRules:
    """The rules of one shard.

    - `last_retry`: rows up to this number are retries; later rows are new.
    - `exhausted`: ranges of numbers without attempts left, ascending, both ends inclusive.
    - `keys`: by hashed partition key, the number after which rows of that key are blocked.
    - `waits_after`: the number after which all rows are blocked.
    """

    last_retry: Number | None = None
    exhausted: tuple[tuple[Number, Number], ...] = ()
    keys: Mapping[str, Number] = field(default_factory=dict)
    waits_after: Number | None = None

    @property
    def withholds(self) -> bool:
        return bool(self.exhausted or self.keys or self.waits_after is not None)

    def outcome(self, number: Number, key: str | None) -> Outcome | None:
        """Return why the row is withheld; None if it is not withheld. `key` is hashed."""
        at = bisect_right(self.exhausted, number, key=itemgetter(0)) - 1
        if at >= 0 and number <= self.exhausted[at][1]:
            return Outcome.EXHAUSTED
        if self.waits_after is not None and number > self.waits_after:
            return Outcome.BLOCKED
        if key is not None and key in self.keys and number > self.keys[key]:
            return Outcome.BLOCKED
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """The rules of a batch: the rules of its shards, by shard, and what a failure blocks.

    `several`: the rows belong to several streams, whose shards may have equal ids. A shard is then
    named `stream/shardId`, as in message ids.
    """

    of_shards: Mapping[str, ShardRules] = field(default_factory=dict)
    on_failure: OnFailure = OnFailure.CONTINUE
    several: bool = False

    @property
    def in_order(self) -> bool:
        return self.on_failure is not OnFailure.CONTINUE


def plan_rules(
    plan: Plan, states: Mapping[str, ShardState], on_failure: OnFailure
) -> dict[str, ShardRules]:
    """Return the rules of a plan, by shard.

    They withhold the plan's exhausted retries and blocked rows. A row is blocked by a queued record
    of its shard that is not in the plan, or by an unresolved record of an ancestor. An ancestor's
    record blocks even if its retry is in the plan, because the tasks of a plan run concurrently.
    """
    rules: dict[str, ShardRules] = {}
    in_order = on_failure is not OnFailure.CONTINUE
    ancestors = unresolved_ancestors(states) if in_order else {}
    for one in plan.slices.values():
        planned = [(number_of(retry.first), number_of(retry.end)) for retry in one.retries]
        own = states[one.shard_id].unresolved if in_order and one.shard_id in states else ()
        blocking = [
            (number, record.key)
            for number, record in ((number_of(record.first), record) for record in own)
            if not any(first <= number <= last for first, last in planned)
        ]
        for ancestor in ancestors.get(one.shard_id, ()):
            blocking += [(BEFORE_ALL, record.key) for record in states[ancestor].unresolved]
        if one.retries or blocking:
            exhausted = [retry.exhausted for retry in one.retries]
            rules[one.shard_id] = replace(
                _blocked_by(blocking, on_failure),
                last_retry=planned[-1][1] if planned else None,
                exhausted=tuple(compress(planned, exhausted)),
            )
    return rules


def failure_rules(failed: Iterable[FailedRecord], on_failure: OnFailure) -> dict[str, ShardRules]:
    """Return rules that block later records of the failed records' keys or shards."""
    if on_failure is OnFailure.CONTINUE:
        return {}
    waiting: dict[str, list[tuple[Number, str | None]]] = {}
    for record in failed:
        if record.outcome in _WAITING:
            blocking = waiting.setdefault(record.shard_id, [])
            blocking.append((number_of(record.sequence), record.key))
    return {shard: _blocked_by(blocking, on_failure) for shard, blocking in waiting.items()}


def _blocked_by(blocking: Iterable[tuple[Number, str | None]], on_failure: OnFailure) -> ShardRules:
    """Return rules that block the rows after these numbers, by key or for all keys."""
    keys: dict[str, Number] = {}
    waits_after: Number | None = None
    for number, key in blocking:
        # A range that was queued in an outage has no key, and blocks all later rows.
        if key is None or on_failure is OnFailure.BLOCK_SHARD:
            waits_after = number if waits_after is None else min(number, waits_after)
        else:
            keys[key] = min(number, keys.get(key, number))
    return ShardRules(keys=keys, waits_after=waits_after)


@dataclass(frozen=True, slots=True)
class WithheldRowFinder:
    """A function for `mapInArrow` over the source's columns. It returns one row for each withheld
    record, with the columns of `WITHHELD_DDL`.
    """

    rules: Mapping[str, ShardRules]
    with_keys: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows_before: Counter[str] = Counter()  # of each shard in this partition
        names = ("shardId", "sequenceNumber", "subSequenceNumber", "partitionKey", "messageId")
        for batch in batches:
            withheld: list[dict[str, object]] = []
            for shard, sequence, sub, key, message_id in zip(
                *(batch.column(name).to_pylist() for name in names), strict=True
            ):
                ordinal = rows_before[shard]
                rows_before[shard] += 1
                rules = self.rules.get(shard)
                if rules is None or not rules.withholds:
                    continue
                number = int(sequence), sub
                hashed = order_key(key, shard, number) if self.with_keys else None
                if (outcome := rules.outcome(number, hashed)) is not None:
                    row = (message_id, int(outcome), hashed, ordinal)
                    withheld.append(dict(zip(_SCHEMA.names, row, strict=True)))
            yield pa.RecordBatch.from_pylist(withheld, schema=_SCHEMA)
