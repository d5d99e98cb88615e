"""Every metric: its name, kind, labels and meaning, and who has it. The one place that names them.

A metric of both exporters means the same in both. `shard` metrics come twice: with the label
`shard`, for the shards that are read now, and as `kinesis_spout_stream_...` over all shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "kinesis_spout_"
APPLICATION = ("application", "stream")
PER_SHARD = (*APPLICATION, "shard")


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Exporter(StrEnum):
    """Who has a metric."""

    SPOUT = "spout"
    SPARK = "spark"


BOTH = frozenset(Exporter)
SPOUT = frozenset({Exporter.SPOUT})
SPARK = frozenset({Exporter.SPARK})


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One metric. `name`: of the family, without `_total`. `by`: who has it."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = APPLICATION
    by: frozenset[Exporter]

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series, as a query writes them."""
        match self.kind:
            case Kind.COUNTER:
                return (f"{self.name}_total",)
            case Kind.HISTOGRAM:
                return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


def _shard_and_stream(
    name: str,
    kind: Kind,
    meaning: str,
    *,
    by: frozenset[Exporter],
    per_shard_by: frozenset[Exporter] | None = None,
) -> list[Definition]:
    per_shard = by if per_shard_by is None else per_shard_by
    found = [Definition(name=f"{PREFIX}stream_{name}", kind=kind, meaning=meaning, by=by)]
    if per_shard:
        found.insert(
            0,
            Definition(
                name=PREFIX + name, kind=kind, meaning=meaning, labels=PER_SHARD, by=per_shard
            ),
        )
    return found


def _counter(
    name: str,
    meaning: str,
    *,
    by: frozenset[Exporter],
    per_shard_by: frozenset[Exporter] | None = None,
) -> list[Definition]:
    return _shard_and_stream(
        f"records_{name}", Kind.COUNTER, meaning, by=by, per_shard_by=per_shard_by
    )


def _gauge(
    name: str,
    meaning: str,
    *,
    by: frozenset[Exporter],
    per_shard_by: frozenset[Exporter] | None = None,
) -> list[Definition]:
    return _shard_and_stream(name, Kind.GAUGE, meaning, by=by, per_shard_by=per_shard_by)


def _of_application(
    name: str, kind: Kind, meaning: str, *extra: str, by: frozenset[Exporter]
) -> list[Definition]:
    labels = (*APPLICATION, *extra)
    return [Definition(name=PREFIX + name, kind=kind, meaning=meaning, labels=labels, by=by)]


DEFINITIONS: tuple[Definition, ...] = (
    *_counter("emitted", "Deliveries, retries included", by=BOTH),
    *_counter("acked", "Records that were acked", by=BOTH, per_shard_by=SPOUT),
    *_counter("failed", "Deliveries that failed, time-outs included", by=BOTH, per_shard_by=SPOUT),
    *_counter("retried", "Deliveries after the first of a record", by=BOTH),
    *_counter("timed_out", "Deliveries without an outcome by their deadline", by=SPOUT),
    *_counter("dead_lettered", "Records that were dead-lettered", by=BOTH, per_shard_by=SPOUT),
    *_counter(
        "dropped",
        "Records that were given up without a dead letter, as on_exhausted says",
        by=SPARK,
        per_shard_by=frozenset(),
    ),
    *_counter(
        "pushed",
        "Records that came by subscription, with enhanced fan-out",
        by=SPARK,
        per_shard_by=frozenset(),
    ),
    *_counter(
        "polled",
        "Records that were polled though the query has enhanced fan-out",
        by=SPARK,
        per_shard_by=frozenset(),
    ),
    *_counter("malformed", "Records that do not decode", by=SPOUT),
    *_counter("left_out", "User records of aggregates that belong to other shards", by=SPOUT),
    *_gauge("pending_records", "Records that were delivered and have no outcome", by=SPOUT),
    *_gauge("queued_records", "Records that wait for a retry or a dead letter", by=BOTH),
    *_gauge("refused_letters", "Dead letters that were refused several times in a row", by=SPOUT),
    *_gauge(
        "oldest_unresolved_seconds",
        "How long ago the oldest record that is not resolved failed first; 0 without one",
        by=SPARK,
        per_shard_by=frozenset(),
    ),
    *_gauge(
        "lag_seconds",
        "How far the reader is behind, in time of arrival: 0 at the tip; over all shards, of the "
        "one that is farthest behind. Of a Spark job, at most so far",
        by=BOTH,
    ),
    *_gauge(
        "retention_left_seconds",
        "Seconds until the oldest record that is not read expires, at the earliest; over all "
        "shards, of the one that is farthest behind",
        by=SPARK,
    ),
    *_shard_and_stream(
        "latency_seconds", Kind.HISTOGRAM, "From a record's arrival to its ack", by=SPOUT
    ),
    *_of_application(
        "wait_seconds", Kind.COUNTER, "Seconds that emissions() waited", "reason", by=SPOUT
    ),
    *_of_application(
        "failing_seconds",
        Kind.GAUGE,
        "How long a part of the spout's work has failed and been tried again; 0 when it does not",
        "part",
        by=SPOUT,
    ),
    *_of_application(
        "outages",
        Kind.COUNTER,
        "Outages of a part of the spout's work: fetch, retries, listing, commit, letters",
        "part",
        by=SPOUT,
    ),
    *_of_application(
        "subscriptions",
        Kind.COUNTER,
        "Subscriptions to shards that gave an event, with enhanced fan-out",
        by=SPOUT,
    ),
    *_of_application(
        "subscription_failures",
        Kind.COUNTER,
        "Subscriptions that could not be had or that broke, with enhanced fan-out",
        by=SPOUT,
    ),
    *_of_application(
        "subscription_fallbacks",
        Kind.COUNTER,
        "Reads of a shard that were polled in the end, as their subscription had failed, with "
        "enhanced fan-out: refused, in_use, missing, broken, silent, ended",
        "reason",
        by=SPARK,
    ),
    *_of_application(
        "polled_shards",
        Kind.GAUGE,
        "Shards that are polled because no subscription could be had, with enhanced fan-out",
        by=SPOUT,
    ),
    *_of_application(
        "reading_held",
        Kind.GAUGE,
        "1 while no new record is read because most records fail, else 0",
        by=SPARK,
    ),
    *_of_application("readable_shards", Kind.GAUGE, "Shards that are read now", by=SPARK),
    *_of_application("batches", Kind.COUNTER, "Batches that had a plan", by=SPARK),
    *_of_application(
        "last_batch_age_seconds",
        Kind.GAUGE,
        "How long ago the last batch with a plan ended",
        by=SPARK,
    ),
    *_of_application(
        "report_age_seconds",
        Kind.GAUGE,
        "How long ago the driver reported these figures: while a batch runs, they stand still",
        by=SPARK,
    ),
    *_of_application(
        "data_losses",
        Kind.COUNTER,
        "Reports that records may be lost, with which the query goes on or fails; kept after the "
        "query's end",
        by=SPARK,
    ),
    *_of_application(
        "query_failures",
        Kind.COUNTER,
        "Queries that ended with an error; kept after the query's end",
        by=SPARK,
    ),
)
BY_NAME = {one.name: one for one in DEFINITIONS}
