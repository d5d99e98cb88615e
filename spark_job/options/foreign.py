"""Options of other Kinesis sources for Spark, by which a job that moves in may be configured.

An option that means the same as one of ours is taken for it. Each other one is refused by its name,
with what to use instead. Names are matched without regard to case, as ours are. A name that both
have, with the same meaning, needs no entry: Databricks' `streamName`, `region`, `roleArn`,
`roleExternalId`, `roleSessionName` and `consumerName`.

Sources: `KinesisOptions.scala` and the README of awslabs/spark-sql-kinesis-connector; the pages
"Connect to Amazon Kinesis" and "read_kinesis" of docs.databricks.com. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.config import parse_duration_ms
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

AWSLABS, DATABRICKS = "awslabs", "databricks"
_SCHEME = re.compile(r"[A-Za-z]+://")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignOption:
    """One option of another source.

    - `system`: whose it is.
    - `ours`: the option of ours that it is taken for; None if it is refused or has no effect.
    - `value`: our text for its text, or a `ConfigError`; None where they are the same. Its first
      argument is the option's name.
    - `instead`: what to use instead, where it is refused.
    - `values`: how values are converted, for the documentation.
    """

    system: str
    ours: str | None = None
    value: Callable[[str, str], str] | None = None
    instead: str = ""
    values: str = ""


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
        "is not taken; use LATEST, TRIM_HORIZON or AT_TIMESTAMP with an ISO time here, and "
        "`kinesis-spout import` for positions of shards",
        text[:60],
    )


def _word_position(option: str, text: str) -> str:
    """A start as Databricks has it, other than a time: its times have formats of Java."""
    if text.strip().lower() in {"latest", "trim_horizon", "earliest"}:
        return _position(option, text)
    raise ConfigError.of(
        option, "is not taken; give startingPosition with the time in ISO 8601", text[:60]
    )


def _reads_per_second(option: str, text: str) -> str:
    """Calls a second, for the time between two calls. A number without a unit is in ms."""
    given = f"{text.strip()}ms" if text.strip().isdigit() else text
    milliseconds = parse_duration_ms(given, option=option)
    if milliseconds < 1:
        raise ConfigError.of(
            option, "is not taken; give readsPerSecond, which the service limits to 5", text
        )
    return f"{1000 / milliseconds:g}"


def _mode(**ours: str) -> Callable[[str, str], str]:
    """How new records are read; their words and ours."""

    def value(option: str, text: str) -> str:
        for theirs, mode in ours.items():
            if text.strip().lower() == theirs.lower():
                return mode
        raise ConfigError.of(option, f"is not taken; use {' or '.join(ours)}", text[:60])

    return value


def _url(option: str, text: str) -> str:
    del option
    return text if _SCHEME.match(text) else f"https://{text}"


def _awslabs(
    ours: str, value: Callable[[str, str], str] | None = None, values: str = ""
) -> ForeignOption:
    return ForeignOption(system=AWSLABS, ours=ours, value=value, values=values)


def _databricks(
    ours: str, value: Callable[[str, str], str] | None = None, values: str = ""
) -> ForeignOption:
    return ForeignOption(system=DATABRICKS, ours=ours, value=value, values=values)


def _refused(system: str, **instead: str) -> dict[str, ForeignOption]:
    return {
        name.replace("__", "."): ForeignOption(system=system, instead=said)
        for name, said in instead.items()
    }


_LEAVE_OUT = "leave it out"
_FALLS_BACK = f"{_LEAVE_OUT}: where a subscription is refused or breaks, the shard is polled"
_REMOVED = f"{_LEAVE_OUT}: only `kinesis-spout consumers remove` removes a consumer"
_CALLS = f"{_LEAVE_OUT}: calls are retried with backoff for a minute"
_IMPORT = f"{_LEAVE_OUT}: progress is in ZooKeeper; `kinesis-spout import` takes over what is there"
_NO_PREFETCH = f"{_LEAVE_OUT}: nothing is read before a batch needs it"
_BATCH = "use maxRecordsPerShard and maxBytesPerTask for the size of a batch"

FOREIGN_OPTIONS: dict[str, ForeignOption] = {
    "kinesis.streamName": _awslabs("streamName"),
    "kinesis.endpointUrl": _awslabs("endpointUrl"),
    "kinesis.kinesisRegion": _awslabs("region"),
    "kinesis.startingPosition": _awslabs(
        "startingPosition",
        _position,
        "`LATEST`, `TRIM_HORIZON`, `EARLIEST` (as `TRIM_HORIZON`), `AT_TIMESTAMP <ISO time>`",
    ),
    "kinesis.failOnDataLoss": _awslabs("failOnDataLoss"),
    "kinesis.maxFetchRecordsPerShard": _awslabs("maxRecordsPerShard"),
    "kinesis.describeShardInterval": _awslabs("shardRefreshInterval"),
    "kinesis.getRecords.fetchIntervalMs": _awslabs(
        "readsPerSecond", _reads_per_second, "1000 divided by the milliseconds"
    ),
    "kinesis.stsRoleArn": _awslabs("roleArn"),
    "kinesis.stsSessionName": _awslabs("roleSessionName"),
    "kinesis.awsAccessKeyId": _awslabs("awsAccessKeyId"),
    "kinesis.awsSecretKey": _awslabs("awsSecretAccessKey"),
    "kinesis.sessionToken": _awslabs("awsSessionToken"),
    "kinesis.consumerType": _awslabs(
        "readMode",
        _mode(GetRecords="polling", SubscribeToShard="efo"),
        "`GetRecords` (as `polling`), `SubscribeToShard` (as `efo`)",
    ),
    "kinesis.consumerName": _awslabs("consumerName"),
    **_refused(
        AWSLABS,
        kinesis__region="use region for the region of the stream: there, this is the region of the "
        "metadata's table",
        kinesis__subscribeToShard__timeoutSec=_FALLS_BACK,
        kinesis__subscribeToShard__maxRetries=_FALLS_BACK,
        kinesis__maxFetchTimePerShardSec="use maxFetchTime, which counts from the first record",
        kinesis__getRecords__numberOfRecordsPerFetch=f"{_LEAVE_OUT}: a call asks for all that the "
        "service gives; use readBytesPerSecond for the rate",
        kinesis__minBatchesToRetain=_IMPORT,
        kinesis__metadataCommitterType=_IMPORT,
        kinesis__metadataPath=_IMPORT,
        kinesis__metadataNumRetries=_IMPORT,
        kinesis__metadataRetryIntervalsMs=_IMPORT,
        kinesis__metadataMaxRetryIntervalMs=_IMPORT,
        kinesis__dynamodb__tableName=_IMPORT,
        kinesis__checkNewRecordThreads="use probeInterval",
        kinesis__clientNumRetries=_CALLS,
        kinesis__clientRetryIntervalsMs=_CALLS,
        kinesis__clientMaxRetryIntervalMs=_CALLS,
        kinesis__stsEndpointUrl="set AWS_ENDPOINT_URL_STS in the environment",
        kinesis__credentialProviderClass="use profile, roleArn, or botocore's other ways",
        kinesis__credentialProviderParam="use profile, roleArn, or botocore's other ways",
        kinesis__internal__avoidEmptyBatches=f"{_LEAVE_OUT}: a batch begins when records are there",
        kinesis__internal__maintenanceTaskIntervalSec=_IMPORT,
        kinesis__internal__dataQueueCapacity=_NO_PREFETCH,
        kinesis__internal__maxDataQueueEmptyCount=_NO_PREFETCH,
        kinesis__internal__dataQueueWaitTimeoutSec=_NO_PREFETCH,
    ),
    "endpoint": _databricks("endpointUrl", _url, "a host, with `https://` put before it"),
    "initialPosition": _databricks(
        "startingPosition",
        _word_position,
        "`latest`, `trim_horizon`, `earliest` (as `TRIM_HORIZON`)",
    ),
    "awsAccessKey": _databricks("awsAccessKeyId"),
    "awsSecretKey": _databricks("awsSecretAccessKey"),
    "shardFetchInterval": _databricks("shardRefreshInterval"),
    "minFetchPeriod": _databricks(
        "readsPerSecond", _reads_per_second, "1 second divided by the duration"
    ),
    "consumerMode": _databricks(
        "readMode", _mode(polling="polling", efo="efo"), "`polling`, `efo`"
    ),
    **_refused(
        DATABRICKS,
        serviceCredential="use profile, roleArn, or botocore's other ways",
        stsEndpoint="set AWS_ENDPOINT_URL_STS in the environment",
        maxRecordsPerFetch=f"{_LEAVE_OUT}: a call asks for all that the service gives; {_BATCH}",
        maxFetchRate="use readBytesPerSecond, as 2MiB",
        maxFetchDuration=_NO_PREFETCH,
        fetchBufferSize=_NO_PREFETCH,
        shardsPerTask="use maxTasks",
        coalesceThresholdBlockSize=_NO_PREFETCH,
        coalesce=_NO_PREFETCH,
        coalesceBinSize=_NO_PREFETCH,
        reuseKinesisClient=f"{_LEAVE_OUT}: a process has one connection",
        clientRetries=_CALLS,
        maxShardsPerDescribe=f"{_LEAVE_OUT}: all shards are listed",
        consumerNamePrefix="use consumerName, as the name of the consumer",
        consumerRefreshInterval=f"{_LEAVE_OUT}: a task that has no subscription polls",
        registeredConsumerId="use consumerName or consumerArn",
        registeredConsumerIdType="use consumerName or consumerArn",
        registerConsumerTimeoutInterval=f"{_LEAVE_OUT}: until the consumer is there, shards are "
        "polled",
        requireConsumerDeregistration=_REMOVED,
        deregisterConsumerTimeoutInterval=_REMOVED,
    ),
}
_BY_KEY = {name.lower(): name for name in FOREIGN_OPTIONS}
_PREFIXES = {"kinesis.sink.": "it is an option of the sink; see the options of df.write"}


def translated(key: str, text: str) -> tuple[str, str] | None:
    """The option of ours that another source's option means, and its text; None for a key of no
    other source.

    Raises `ConfigError` for an option, or a value of it, that is not taken.
    """
    name = _BY_KEY.get(key.lower())
    if name is None:
        for prefix, said in _PREFIXES.items():
            if key.lower().startswith(prefix):
                raise ConfigError(f"option {key} is not taken: {said}", option=key)
        return None
    one = FOREIGN_OPTIONS[name]
    if one.ours is not None:
        return one.ours, text if one.value is None else one.value(name, text)
    raise ConfigError(
        f"option {name} is of {_SYSTEMS[one.system]} and is not taken here; {one.instead}",
        option=name,
    )


SAME_NAMED = {
    DATABRICKS: (
        "streamName",
        "region",
        "roleArn",
        "roleExternalId",
        "roleSessionName",
        "consumerName",
    ),
}
"""Options that another source spells as ours, with the same meaning."""

_SYSTEMS = {AWSLABS: "awslabs' connector", DATABRICKS: "Databricks' source"}
