"""The source's options: one table that ties a field's name, its option's name, its reader and its
meaning together.

Spark lower-cases option keys, so options are matched without regard to case and named in camelCase
in every error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_job.option_values import (
    Reader,
    choice,
    duration,
    read_address,
    read_boolean,
    read_name,
    read_rate,
    read_start,
    read_text,
    size,
    whole_number,
)


@dataclass(frozen=True, slots=True)
class Option:
    """One reader option: its name, how its text is read, its default as text (None: not set),
    whether it is a secret.

    `meaning` is for people, as Markdown: one line, with the bounds.
    """

    name: str
    read: Reader
    default: str | None = None
    secret: bool = False
    meaning: str = field(kw_only=True)


# field of KinesisSource -> option. The documentation's page of options is made from this table
# (scripts/reference/options.py).
OPTIONS: dict[str, Option] = {
    "stream": Option(
        "streamName", read_text, meaning="the stream, by its name; or give `streamArn`"
    ),
    "stream_arn": Option(
        "streamArn", read_text, meaning="the stream, by its ARN, which also names the region"
    ),
    "application": Option(
        "applicationName",
        read_name,
        meaning="the name under which the checkpoints are kept; required",
    ),
    "zookeeper": Option(
        "zookeeper",
        read_address,
        meaning="connect string, like `zk1:2181,zk2:2181/chroot`, or `embedded:<directory>` on one machine; required",
    ),
    "zookeeper_root": Option(
        "zookeeperRoot",
        read_name,
        "kinesis-spout",
        meaning="the folder in ZooKeeper that holds all applications",
    ),
    "zookeeper_session_timeout": Option(
        "zookeeperSessionTimeout",
        duration(1_000, 120_000),
        "10s",
        meaning="how long ZooKeeper holds the ownership of a job that has died; 1s to 2m",
    ),
    "region": Option(
        "region", read_text, meaning="the AWS region; without it, that of the AWS configuration"
    ),
    "endpoint_url": Option(
        "endpointUrl",
        read_text,
        meaning="another Kinesis endpoint: a VPC endpoint, or a local emulator",
    ),
    "profile": Option("profile", read_text, meaning="a profile of the AWS configuration files"),
    "access_key_id": Option(
        "awsAccessKeyId",
        read_text,
        secret=True,
        meaning="an access key; without it, botocore's own chain of credentials",
    ),
    "secret_access_key": Option(
        "awsSecretAccessKey",
        read_text,
        secret=True,
        meaning="its secret; shown in no log or error",
    ),
    "session_token": Option(
        "awsSessionToken",
        read_text,
        secret=True,
        meaning="its session token, if it is a temporary one",
    ),
    "role_arn": Option(
        "roleArn",
        read_text,
        meaning="a role to assume by STS; renewed before it expires, on executors too",
    ),
    "role_external_id": Option(
        "roleExternalId",
        read_text,
        secret=True,
        meaning="the external id that the role asks for",
    ),
    "role_session_name": Option(
        "roleSessionName",
        read_text,
        "kinesis-spout",
        meaning="the name of the role's session, as CloudTrail shows it",
    ),
    "starting_position": Option(
        "startingPosition",
        read_start,
        "LATEST",
        meaning="where a new application starts: `LATEST`, `TRIM_HORIZON`, an ISO time, `-2h`, `AT:<sequence>`, "
        "`AFTER:<sequence>`, or JSON of these by shard id and `default`",
    ),
    "max_records_per_trigger": Option(
        "maxRecordsPerTrigger",
        whole_number(1),
        meaning="at most so many records a batch, over all shards; 1 or more",
    ),
    "max_records_per_shard": Option(
        "maxRecordsPerShard",
        whole_number(1),
        "100000",
        meaning="at most so many records of a shard a batch; 1 or more",
    ),
    "max_bytes_per_task": Option(
        "maxBytesPerTask",
        size(1),
        "64MiB",
        meaning="how many bytes of payload a task gives, and about what it holds in memory",
    ),
    "max_fetch_time": Option(
        "maxFetchTime",
        duration(1),
        "5s",
        meaning="how long a task reads at most, once it has found something; up to 24h",
    ),
    "max_search_time": Option(
        "maxSearchTime",
        duration(1),
        "60s",
        meaning="how long a task looks for the first record of a shard that is behind, "
        "and an AvailableNow run for a shard's end; up to 24h",
    ),
    "max_tasks": Option(
        "maxTasks",
        whole_number(1),
        "64",
        meaning="tasks a batch at most; `KinesisSource` sets the number of cores; 1 or more",
    ),
    "reads_per_second": Option(
        "readsPerSecond",
        read_rate,
        "5",
        meaning="calls a second and shard; the service allows 5 for all readers together; 0.1 to 1000",
    ),
    "read_bytes_per_second": Option(
        "readBytesPerSecond",
        size(1024),
        "2MiB",
        meaning="bytes a second and shard; the service allows 2 MB; 1KiB or more",
    ),
    "fail_on_data_loss": Option(
        "failOnDataLoss",
        read_boolean,
        "true",
        meaning="whether to stop when records may have expired unread; `false` says so in the log and goes on",
    ),
    "aggregated_records": Option(
        "aggregatedRecords",
        choice("fail", "raw"),
        "fail",
        meaning="`fail` stops at a record that the Kinesis Producer Library has aggregated, `raw` hands over its bytes",
    ),
    "max_unresolved_per_shard": Option(
        "maxUnresolvedPerShard",
        whole_number(1),
        "100000",
        meaning="how many records of a shard may wait for their retry before no new ones of it are read; 1 or more",
    ),
    "whole_batch_ack": Option(
        "wholeBatchAck",
        read_boolean,
        "false",
        meaning="`true` acks a finished batch as a whole in an application that has tracked its records before",
    ),
    "available_now_retry_wait": Option(
        "availableNowRetryWait",
        duration(0),
        meaning="how long an AvailableNow run waits for retries in all, after its last new record; up to 24h; "
        "unset, as long as a record's waits add up to, and 30s",
    ),
    "idle_wait": Option(
        "idleWait",
        duration(0, 60_000),
        "1s",
        meaning="how long the driver waits for something new before it returns to Spark; up to 60s",
    ),
    "probe_interval": Option(
        "probeInterval",
        duration(200),
        "1s",
        meaning="how often an idle shard is asked for something new; 200ms to 24h",
    ),
    "probe_max_shards": Option(
        "probeMaxShards",
        whole_number(0),
        "100",
        meaning="with more shards than that, tasks look for new records every `idleInterval` instead; 0 or more",
    ),
    "idle_interval": Option(
        "idleInterval",
        duration(200),
        "10s",
        meaning="the time between two batches that find nothing, where shards are too many to be asked; 200ms to 24h",
    ),
    "shard_refresh_interval": Option(
        "shardRefreshInterval",
        duration(100),
        "10s",
        meaning="how often the list of shards is read; 100ms to 24h",
    ),
    "owner_wait": Option(
        "ownerWait",
        duration(0),
        "30s",
        meaning="how long a new job waits for an earlier one of its name to be gone; up to 24h",
    ),
    "states_per_write": Option(
        "statesPerWrite",
        whole_number(1),
        "500",
        meaning="how many shard states one write to ZooKeeper holds; 1 or more, above 500 as 500",
    ),
}
