"""The options of the Spark source: those that it shares with the spout and the commands, its own,
and those that are retired. Spark lower-cases option keys, so options are matched without regard to
case, and every error names them in camelCase.
"""

from __future__ import annotations

import warnings

from kinesis_spout.options import SHARED, Option, by_field

STREAM = by_field(
    Option(
        "streamName",
        "name of the stream, or names and ARNs of several streams, separated by commas; give "
        "this or `streamArn`",
        field="stream",
    ),
    Option(
        "streamArn", "ARN of the stream, which also gives the region; give this or `streamName`"
    ),
)

_SPARKS = by_field(
    Option.whole(
        "maxRecordsPerTrigger",
        "maximum records of a stream in a batch, over all its shards; default: no limit",
    ),
    Option.whole(
        "maxRecordsPerTriggerTotal",
        "maximum records in a batch over all streams of a query; the streams with unread records "
        "share it; default: no limit",
    ),
    Option.whole("maxRecordsPerShard", "maximum new records of one shard in a batch", "100000"),
    Option.size(
        "maxBytesPerTask",
        "maximum payload bytes that a task delivers in a batch",
        "64MiB",
        least="1B",
    ),
    Option.duration(
        "maxFetchTime",
        "maximum time that a task reads once it has found a record",
        "5s",
        least="1ms",
    ),
    Option.duration(
        "maxSearchTime",
        "maximum time that a task searches for the first record of a shard that is behind; also "
        "the maximum that an AvailableNow run searches for a shard's end",
        "60s",
        least="1ms",
    ),
    Option.whole(
        "maxTasks",
        "maximum tasks in a batch; default: as many as the session runs at a time, or 64 with "
        "dynamic allocation or Spark Connect",
        "64",
    ),
    Option.switch(
        "wholeBatchAck",
        "`true` acks finished batches as a whole in an application that has tracked its "
        "records before",
        "false",
    ),
    Option.duration(
        "availableNowRetryWait",
        "maximum time that an AvailableNow run waits for retries after its last new record; "
        "default: the sum of a record's backoffs plus 50s, and more if the first backoff is "
        "longer than 20s",
    ),
    Option.duration(
        "idleWait",
        "maximum time that the driver waits for new records before it returns to Spark",
        "1s",
        most="60s",
    ),
    Option.duration(
        "probeInterval",
        "time between two probes of an idle shard for new records",
        "1s",
        least="200ms",
    ),
)

OPTIONS = {**STREAM, **SHARED, **_SPARKS}

# Options of earlier versions that nobody could choose a value for, with the reason. One that is
# given is warned of, and has no effect.
RETIRED = {
    "probeMaxShards": "the driver probes up to 100 shards; with more, tasks read them",
    "idleInterval": "with more than 100 shards, tasks read the idle ones every 10 seconds",
    "statesPerWrite": "shard states are written in as few transactions as ZooKeeper takes",
}


def warn_retired(name: str) -> None:
    """Warn that this option has no effect any more."""
    warnings.warn(
        f"option {name} has no effect any more: {RETIRED[name]}. Leave it out", stacklevel=3
    )
