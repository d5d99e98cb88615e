"""Every metric: its name, kind, labels and meaning, and who has it. The one place that names them.

A metric of both exporters means the same in both. Metrics of shards come twice: with the label
`shard`, for the shards that are read now, and as `kinesis_spout_stream_...` over all shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "kinesis_spout_"
APPLICATION = ("application", "stream")
SPOUT, SPARK = "spout", "Spark"
BOTH = (SPOUT, SPARK)


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric. `name`: of the family, without `_total`. `by`: who has it."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...]
    by: tuple[str, ...]

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series, as a query writes them."""
        match self.kind:
            case Kind.COUNTER:
                return (f"{self.name}_total",)
            case Kind.HISTOGRAM:
                return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


def _metric(name: str, kind: Kind, meaning: str, *by: str, label: str | None = None) -> Definition:
    labels = APPLICATION if label is None else (*APPLICATION, label)
    return Definition(PREFIX + name, kind, meaning, labels, by)


def _of_shards(
    name: str, kind: Kind, meaning: str, *by: str, shards_by: tuple[str, ...] | None = None
) -> tuple[Definition, Definition]:
    """A metric of each shard, and over all shards. `shards_by`: who has it of each shard, unless
    both are had by the same.
    """
    return (
        _metric(name, kind, meaning, *(by if shards_by is None else shards_by), label="shard"),
        _metric(f"stream_{name}", kind, meaning, *by),
    )


DEFINITIONS: tuple[Definition, ...] = (
    *_of_shards("records_emitted", Kind.COUNTER, "Deliveries, retries included", *BOTH),
    *_of_shards(
        "records_acked", Kind.COUNTER, "Records that were acked", *BOTH, shards_by=(SPOUT,)
    ),
    *_of_shards(
        "records_failed",
        Kind.COUNTER,
        "Deliveries that failed, time-outs included",
        *BOTH,
        shards_by=(SPOUT,),
    ),
    *_of_shards("records_retried", Kind.COUNTER, "Deliveries after the first of a record", *BOTH),
    *_of_shards(
        "records_timed_out",
        Kind.COUNTER,
        "Deliveries without an outcome by their deadline",
        SPOUT,
    ),
    *_of_shards(
        "records_dead_lettered",
        Kind.COUNTER,
        "Records that were dead-lettered",
        *BOTH,
        shards_by=(SPOUT,),
    ),
    _metric(
        "stream_records_dropped",
        Kind.COUNTER,
        "Records that were given up without a dead letter, as on_exhausted says",
        SPARK,
    ),
    _metric(
        "stream_records_pushed",
        Kind.COUNTER,
        "Records that were read by subscription (enhanced fan-out)",
        SPARK,
    ),
    _metric(
        "stream_records_polled",
        Kind.COUNTER,
        "Records that were polled although the query uses enhanced fan-out",
        SPARK,
    ),
    *_of_shards("records_malformed", Kind.COUNTER, "Records that could not be decoded", SPOUT),
    *_of_shards(
        "records_left_out",
        Kind.COUNTER,
        "User records of aggregates that belong to other shards",
        SPOUT,
    ),
    *_of_shards(
        "pending_records",
        Kind.GAUGE,
        "Records that were delivered and have no outcome",
        SPOUT,
    ),
    *_of_shards(
        "queued_records", Kind.GAUGE, "Records that wait for a retry or a dead letter", *BOTH
    ),
    *_of_shards(
        "refused_letters",
        Kind.GAUGE,
        "Dead letters that their destination has refused several times in a row, and that are "
        "sent again",
        SPOUT,
    ),
    _metric(
        "stream_oldest_unresolved_seconds",
        Kind.GAUGE,
        "Seconds since the oldest unresolved record failed for the first time; 0 if no record is "
        "unresolved",
        SPARK,
    ),
    *_of_shards(
        "lag_seconds",
        Kind.GAUGE,
        "How far the reader is behind the tip, in seconds of arrival time; 0 at the tip. Over "
        "all shards: the largest of them. Of a Spark job: an upper bound",
        *BOTH,
    ),
    *_of_shards(
        "retention_left_seconds",
        Kind.GAUGE,
        "Seconds until the oldest unread record expires, at the earliest. Over all shards: the "
        "smallest of them",
        SPARK,
    ),
    *_of_shards("latency_seconds", Kind.HISTOGRAM, "From a record's arrival to its ack", SPOUT),
    _metric("wait_seconds", Kind.COUNTER, "Seconds that emissions() waited", SPOUT, label="reason"),
    _metric(
        "failing_seconds",
        Kind.GAUGE,
        "Seconds for which a part of the spout's work has been failing; 0 while it succeeds",
        SPOUT,
        label="part",
    ),
    _metric(
        "outages",
        Kind.COUNTER,
        "Outages of a part of the spout's work: fetch, retries, listing, commit, letters, scheme",
        SPOUT,
        label="part",
    ),
    _metric(
        "subscriptions",
        Kind.COUNTER,
        "Subscriptions to shards that delivered an event (enhanced fan-out)",
        SPOUT,
    ),
    _metric(
        "subscription_failures",
        Kind.COUNTER,
        "Subscriptions that were refused or broke (enhanced fan-out)",
        SPOUT,
    ),
    _metric(
        "subscription_fallbacks",
        Kind.COUNTER,
        "Reads of a shard that fell back to polling because its subscription had failed "
        "(enhanced fan-out). Reasons: refused, in_use, missing, broken, silent, ended",
        SPARK,
        label="reason",
    ),
    _metric(
        "polled_shards",
        Kind.GAUGE,
        "Shards that are polled because they have no subscription (enhanced fan-out)",
        SPOUT,
    ),
    _metric(
        "reading_held",
        Kind.GAUGE,
        "1 while no new record is read because most records fail, else 0",
        SPARK,
    ),
    _metric("readable_shards", Kind.GAUGE, "Shards that are read now", SPARK),
    _metric("batches", Kind.COUNTER, "Batches that had a plan", SPARK),
    _metric(
        "last_batch_age_seconds",
        Kind.GAUGE,
        "Seconds since the last batch with a plan ended",
        SPARK,
    ),
    _metric(
        "report_age_seconds",
        Kind.GAUGE,
        "Seconds since the driver reported these figures. They do not change while a batch runs",
        SPARK,
    ),
    _metric(
        "data_losses",
        Kind.COUNTER,
        "Reports that records may be lost, whether the query continued or failed; kept after the "
        "query's end",
        SPARK,
    ),
    _metric(
        "query_failures",
        Kind.COUNTER,
        "Queries that ended with an error; kept after the query's end",
        SPARK,
    ),
)
BY_NAME = {one.name: one for one in DEFINITIONS}
