"""The names that a consumer has for its own limits and deeds: a Spark job's, or a spout's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look


class ConsumerWords(NamedTuple):
    """`it`: the consumer. `faster`: how it reads faster. `lossy`, `without`: how it goes on after a
    loss, with what is left of a shard or without the shard. The others are options, as that
    consumer spells them.
    """

    it: str
    faster: str
    lossy: str
    without: str
    refresh: str
    some_shards: str
    max_unresolved: str


SPARK = ConsumerWords(
    it="the job",
    faster="give the job more cores, or its function less to do; split the shard if it is read at "
    "2 MB a second; see the limits maxRecordsPerTrigger and readsPerSecond",
    lossy="set failOnDataLoss to false to go on with what is left: the job stops with that error "
    "otherwise",
    without="set failOnDataLoss to false to go on without them: the job stops with that error "
    "otherwise",
    refresh="shardRefreshInterval",
    some_shards="see whether the job is told to read some shards only",
    max_unresolved="maxUnresolvedPerShard",
)
SPOUT = ConsumerWords(
    it="the spout",
    faster="make its program, or the command of --exec, faster; raise max_pending; share the "
    "shards among more processes (total_tasks); split the shard if it is read at 2 MB a second",
    lossy="set the shard to the oldest record that is left, while no process runs: the spout stops "
    "with that error otherwise, unless fail_on_data_loss is False (consume: "
    "--no-fail-on-data-loss)",
    without="go on without them, while no process runs: the spout stops with that error "
    "otherwise, unless fail_on_data_loss is False (consume: --no-fail-on-data-loss)",
    refresh="shard_refresh_interval_s",
    some_shards="see whether it is told to read some shards only (shards, --shard)",
    max_unresolved="max_unresolved_per_shard",
)


def words_of(look: Look) -> ConsumerWords:
    """Those of the consumer that owns the application, or that has owned it last."""
    return SPOUT if look.now.was_spout else SPARK
