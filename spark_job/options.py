"""The options of the Spark source: those that it shares with the spout and the commands, its own,
those that are retired, and those of other Kinesis sources. Spark lower-cases option keys, so
options are matched without regard to case, and every error names them in camelCase.

A job that moves in may be configured by the options of another source. One that means the same as
one of ours is taken for it. Each other one is refused by its name, with what to use instead.
Sources: `KinesisOptions.scala` and the README of awslabs/spark-sql-kinesis-connector; the pages
"Connect to Amazon Kinesis" and "read_kinesis" of docs.databricks.com.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.config import parse_duration_ms
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import SHARED, Option, by_field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheme.record_scheme import RecordScheme

STREAM = by_field(
    Option(
        "streamName",
        "name of the stream, or names and ARNs of several streams, separated by commas. Set "
        "`streamName` or `streamArn`",
        field="stream",
    ),
    Option(
        "streamArn",
        "ARN of the stream, which also sets the region. Set `streamArn` or `streamName`",
    ),
)


HIDDEN_SCHEME = "schemeSecret"
"""Option `scheme` as `KinesisSource` writes an object, which may have secrets. Spark shows the
options of a source in its plans and its UI, without those that have such a word in their name
(`spark.redaction.regex`).
"""

ENDS_REPORTED = "endsReported"
"""Option that `KinesisSource.read_stream` sets: its process reports how the query ends
(`spark_job.query_failure`).
"""


def _scheme(option: str, text: str) -> RecordScheme:
    from spark_job.scheme_column import (  # noqa: PLC0415  # only where a scheme is asked for
        scheme_of_option,
    )

    return scheme_of_option(option, text)


_SPARKS = by_field(
    Option(
        "scheme",
        "scheme (decoder) of the payloads, for example `cloudwatch-logs`. The values are those "
        "of `consume --scheme`. The scheme adds the column `parsed`, which has the fields of "
        "each payload, or the reason why the payload cannot be decoded",
        parse=_scheme,
    ),
    Option.whole(
        "maxRecordsPerTrigger",
        "maximum number of records of one stream in a batch, over all its shards; default: no "
        "limit",
    ),
    Option.whole(
        "maxRecordsPerTriggerTotal",
        "maximum number of records in a batch, over all streams of a query. The streams with "
        "unread records share this number. Default: no limit",
    ),
    Option.whole(
        "maxRecordsPerShard", "maximum number of new records per shard in a batch", "100000"
    ),
    Option.size(
        "maxBytesPerTask",
        "maximum number of payload bytes that a task delivers in a batch",
        "64MiB",
        least="1B",
    ),
    Option.duration(
        "maxFetchTime",
        "maximum time that a task reads records, counted from its first record",
        "5s",
        least="1ms",
    ),
    Option.duration(
        "maxSearchTime",
        "maximum time that a task searches for the first record of a lagging shard. The option "
        "also limits an AvailableNow run's search for the end of a shard",
        "60s",
        least="1ms",
    ),
    Option.whole(
        "maxTasks",
        "maximum number of tasks in a batch; default: the number of tasks that the session runs "
        "at a time, or 64 with dynamic allocation or Spark Connect",
        "64",
    ),
    Option.switch(
        "wholeBatchAck",
        "`true` acks each finished batch as a whole. Set the option if earlier queries of the "
        "application used `tracked`, but this query does not",
        "false",
    ),
    Option.duration(
        "availableNowRetryWait",
        "maximum time that an AvailableNow run waits for retries after its last new record. "
        "Default: the sum of a record's backoffs plus 50s, or more if the first backoff is "
        "longer than 20s",
    ),
    Option.duration(
        "idleWait",
        "maximum time that the driver waits for new records before it returns control to Spark",
        "1s",
        most="60s",
    ),
    Option.duration(
        "probeInterval",
        "interval at which idle shards are checked for new records",
        "1s",
        least="200ms",
    ),
)

OPTIONS = {**STREAM, **SHARED, **_SPARKS}

# Options of earlier versions that nobody could choose a value for, with the reason. One that is
# given is warned of, and has no effect.
RETIRED = {
    "probeMaxShards": "the driver reads up to 100 idle shards, and tasks read all other idle "
    "shards",
    "idleInterval": "with more than 100 shards, tasks read the idle shards every 10 seconds",
    "statesPerWrite": "shard states are written in as few transactions as ZooKeeper allows",
}


def warn_retired(name: str) -> None:
    """Warn that this option has no effect any more."""
    said = f"option {name} no longer has an effect: {RETIRED[name]}. Omit the option"
    warnings.warn(said, stacklevel=3)


_SCHEME = re.compile(r"[A-Za-z]+://")


class Taken(NamedTuple):
    """An option that is taken for one of `ours`.

    - `value`: our text for its text, or a `ConfigError`; None where they are the same. Its first
      argument is the option's name.
    - `values`: how values are converted, for the reference.
    """

    ours: str
    value: Callable[[str, str], str] | None = None
    values: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Another source: the options of it that are taken, and what to use instead of the others."""

    name: str
    taken: Mapping[str, Taken]
    refused: Mapping[str, str]


def _position(option: str, text: str) -> str:
    """A start as awslabs' connector has it."""
    word, _, rest = text.strip().partition(" ")
    if word.upper() in {"LATEST", "TRIM_HORIZON"}:
        return word.upper()
    if word.upper() == "EARLIEST":
        return "TRIM_HORIZON"
    if word.upper() == "AT_TIMESTAMP" and rest.strip():
        return rest.strip()
    raise ConfigError.of(
        option,
        f"{text[:60]!r} is not accepted",
        remedy="use LATEST, TRIM_HORIZON or AT_TIMESTAMP with an ISO time here, and "
        "`kinesis-spout import` for positions of shards",
    )


def _word_position(option: str, text: str) -> str:
    """A start as Databricks has it, other than a time: its times have formats of Java."""
    if text.strip().lower() in {"latest", "trim_horizon", "earliest"}:
        return _position(option, text)
    raise ConfigError.of(
        option,
        f"{text[:60]!r} is not accepted",
        remedy="set option startingPosition to the time in ISO 8601",
    )


def _reads_per_second(option: str, text: str) -> str:
    """Calls a second, for the time between two calls. A number without a unit is in ms."""
    given = f"{text.strip()}ms" if text.strip().isdigit() else text
    milliseconds = parse_duration_ms(given, option=option)
    if milliseconds < 1:
        raise ConfigError.of(
            option,
            f"{text!r} is not accepted",
            remedy="use option readsPerSecond; Kinesis allows at most 5 requests per second",
        )
    return f"{1000 / milliseconds:g}"


def _mode(**ours: str) -> Callable[[str, str], str]:
    """How new records are read; their words and ours."""

    def value(option: str, text: str) -> str:
        for theirs, mode in ours.items():
            if text.strip().lower() == theirs.lower():
                return mode
        raise ConfigError.of(
            option, f"{text[:60]!r} is not accepted", remedy=f"use {' or '.join(ours)}"
        )

    return value


def _url(option: str, text: str) -> str:
    del option
    return text if _SCHEME.match(text) else f"https://{text}"


_LEAVE_OUT = "omit this option"
_CREDENTIALS = (
    "use option profile or roleArn, or another source of credentials that botocore supports"
)
_FALLS_BACK = (
    f"{_LEAVE_OUT}: a task reads a shard with GetRecords when its subscription is refused or breaks"
)
_REMOVED = f"{_LEAVE_OUT}: only the command `kinesis-spout consumers remove` removes a consumer"
_CALLS = f"{_LEAVE_OUT}: kinesis-spout retries requests to Kinesis with backoff for a minute"
_IMPORT = (
    f"{_LEAVE_OUT}: kinesis-spout stores progress in ZooKeeper; `kinesis-spout import` takes "
    "over the progress that awslabs' connector stored"
)
_NO_PREFETCH = f"{_LEAVE_OUT}: kinesis-spout reads no records before their batch starts"
_BATCH = "to limit the size of a batch, use options maxRecordsPerShard and maxBytesPerTask"

AWSLABS = System(
    name="awslabs' connector",
    taken={
        "kinesis.streamName": Taken("streamName"),
        "kinesis.endpointUrl": Taken("endpointUrl"),
        "kinesis.kinesisRegion": Taken("region"),
        "kinesis.startingPosition": Taken(
            "startingPosition",
            _position,
            "`LATEST`, `TRIM_HORIZON`, `EARLIEST` (same as `TRIM_HORIZON`), `AT_TIMESTAMP <ISO "
            "time>`",
        ),
        "kinesis.failOnDataLoss": Taken("failOnDataLoss"),
        "kinesis.maxFetchRecordsPerShard": Taken("maxRecordsPerShard"),
        "kinesis.describeShardInterval": Taken("shardRefreshInterval"),
        "kinesis.getRecords.fetchIntervalMs": Taken(
            "readsPerSecond",
            _reads_per_second,
            "the option's value is 1000 divided by the number of milliseconds",
        ),
        "kinesis.stsRoleArn": Taken("roleArn"),
        "kinesis.stsSessionName": Taken("roleSessionName"),
        "kinesis.awsAccessKeyId": Taken("awsAccessKeyId"),
        "kinesis.awsSecretKey": Taken("awsSecretAccessKey"),
        "kinesis.sessionToken": Taken("awsSessionToken"),
        "kinesis.consumerType": Taken(
            "readMode",
            _mode(GetRecords="polling", SubscribeToShard="efo"),
            "`GetRecords` (same as `polling`), `SubscribeToShard` (same as `efo`)",
        ),
        "kinesis.consumerName": Taken("consumerName"),
    },
    refused={
        "kinesis.region": (
            "use option region for the region of the stream; kinesis.region is the region of the "
            "metadata table of awslabs' connector"
        ),
        "kinesis.subscribeToShard.timeoutSec": _FALLS_BACK,
        "kinesis.subscribeToShard.maxRetries": _FALLS_BACK,
        "kinesis.maxFetchTimePerShardSec": (
            "use option maxFetchTime, which counts the time from a task's first record"
        ),
        "kinesis.getRecords.numberOfRecordsPerFetch": (
            f"{_LEAVE_OUT}: each GetRecords request asks for the maximum number of records; to "
            "limit the rate, use option readBytesPerSecond"
        ),
        "kinesis.minBatchesToRetain": _IMPORT,
        "kinesis.metadataCommitterType": _IMPORT,
        "kinesis.metadataPath": _IMPORT,
        "kinesis.metadataNumRetries": _IMPORT,
        "kinesis.metadataRetryIntervalsMs": _IMPORT,
        "kinesis.metadataMaxRetryIntervalMs": _IMPORT,
        "kinesis.dynamodb.tableName": _IMPORT,
        "kinesis.checkNewRecordThreads": "use probeInterval",
        "kinesis.clientNumRetries": _CALLS,
        "kinesis.clientRetryIntervalsMs": _CALLS,
        "kinesis.clientMaxRetryIntervalMs": _CALLS,
        "kinesis.stsEndpointUrl": "set the environment variable AWS_ENDPOINT_URL_STS",
        "kinesis.credentialProviderClass": _CREDENTIALS,
        "kinesis.credentialProviderParam": _CREDENTIALS,
        "kinesis.internal.avoidEmptyBatches": (
            f"{_LEAVE_OUT}: a batch starts only when the stream has unread records"
        ),
        "kinesis.internal.maintenanceTaskIntervalSec": _IMPORT,
        "kinesis.internal.dataQueueCapacity": _NO_PREFETCH,
        "kinesis.internal.maxDataQueueEmptyCount": _NO_PREFETCH,
        "kinesis.internal.dataQueueWaitTimeoutSec": _NO_PREFETCH,
    },
)

DATABRICKS = System(
    name="Databricks' source",
    taken={
        "streamName": Taken("streamName"),
        "region": Taken("region"),
        "roleArn": Taken("roleArn"),
        "roleExternalId": Taken("roleExternalId"),
        "roleSessionName": Taken("roleSessionName"),
        "consumerName": Taken("consumerName"),
        "endpoint": Taken("endpointUrl", _url, "a host name, before which `https://` is added"),
        "initialPosition": Taken(
            "startingPosition",
            _word_position,
            "`latest`, `trim_horizon`, `earliest` (same as `TRIM_HORIZON`)",
        ),
        "awsAccessKey": Taken("awsAccessKeyId"),
        "awsSecretKey": Taken("awsSecretAccessKey"),
        "shardFetchInterval": Taken("shardRefreshInterval"),
        "minFetchPeriod": Taken(
            "readsPerSecond",
            _reads_per_second,
            "the option's value is 1 second divided by the duration",
        ),
        "consumerMode": Taken("readMode", _mode(polling="polling", efo="efo"), "`polling`, `efo`"),
    },
    refused={
        "serviceCredential": _CREDENTIALS,
        "stsEndpoint": "set the environment variable AWS_ENDPOINT_URL_STS",
        "maxRecordsPerFetch": (
            f"{_LEAVE_OUT}: each GetRecords request asks for the maximum number of records; "
            f"{_BATCH}"
        ),
        "maxFetchRate": "use option readBytesPerSecond, for example with the value 2MiB",
        "maxFetchDuration": _NO_PREFETCH,
        "fetchBufferSize": _NO_PREFETCH,
        "shardsPerTask": "use maxTasks",
        "coalesceThresholdBlockSize": _NO_PREFETCH,
        "coalesce": _NO_PREFETCH,
        "coalesceBinSize": _NO_PREFETCH,
        "reuseKinesisClient": f"{_LEAVE_OUT}: each process reuses its connection to Kinesis",
        "clientRetries": _CALLS,
        "maxShardsPerDescribe": f"{_LEAVE_OUT}: kinesis-spout lists all shards of the stream",
        "consumerNamePrefix": "use option consumerName, which sets the consumer's whole name",
        "consumerRefreshInterval": (
            f"{_LEAVE_OUT}: a task without an enhanced fan-out subscription reads with GetRecords"
        ),
        "registeredConsumerId": "use option consumerName or consumerArn",
        "registeredConsumerIdType": "use option consumerName or consumerArn",
        "registerConsumerTimeoutInterval": (
            f"{_LEAVE_OUT}: tasks read shards with GetRecords until the consumer is ACTIVE"
        ),
        "requireConsumerDeregistration": _REMOVED,
        "deregisterConsumerTimeoutInterval": _REMOVED,
    },
)


def translated(key: str, text: str) -> tuple[str, str] | None:
    """The option of ours that another source's option means, and its text; None for a key of no
    other source.

    Raises `ConfigError` for an option, or a value of it, that is not accepted.
    """
    if key.lower() == HIDDEN_SCHEME.lower():
        return OPTIONS["scheme"].name, text
    if key.lower().startswith("kinesis.sink."):
        problem = f" belongs to the sink of {AWSLABS.name} and is not supported here"
        remedy = "use the options of df.write: aggregate, ordering, requestsInFlight and retryFor"
        raise ConfigError.about(key, problem, remedy)
    for system in (AWSLABS, DATABRICKS):
        for name, taken in system.taken.items():
            if name.lower() == key.lower():
                return taken.ours, text if taken.value is None else taken.value(name, text)
        for name, instead in system.refused.items():
            if name.lower() == key.lower():
                problem = f" belongs to {system.name}, and kinesis-spout does not support it"
                raise ConfigError.about(name, problem, instead)
    return None
