"""The source's options: one table of field name, option name, reader, default and meaning.

Spark lower-cases option keys. So options are matched without regard to case, and every error names
them in camelCase.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields

from spark_job.options.values import (
    Reader,
    choice,
    duration,
    read_address,
    read_boolean,
    read_consumer_arn,
    read_consumer_name,
    read_name,
    read_positions,
    read_rate,
    read_text,
    size,
    whole_number,
)
from state.zookeeper.security import ACLS, AUTHS, PASSWORD_VARIABLE, ZookeeperSecurity


@dataclass(frozen=True, slots=True)
class Option:
    """One reader option.

    - `read`: turns its text into a value, or raises `ConfigError`.
    - `default`: as text; None means that the option is not set.
    - `secret`: no error or repr shows its value.
    - `meaning`: one line of Markdown for the README, with the bounds.
    """

    name: str
    read: Reader
    default: str | None = None
    secret: bool = False
    meaning: str = field(kw_only=True)


# The fields that say how to reach the service, whatever is done there.
CONNECTION = (
    "region",
    "endpoint_url",
    "profile",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "role_arn",
    "role_external_id",
    "role_session_name",
)

# The fields that say how ZooKeeper is reached: those of `ZookeeperSecurity`, by this prefix.
ZOOKEEPER_PREFIX = "zookeeper_"
ZOOKEEPER_SECURITY = tuple(ZOOKEEPER_PREFIX + each.name for each in fields(ZookeeperSecurity))

# By field of KinesisSource. `scripts/reference/options.py` makes the page of options from it.
OPTIONS: dict[str, Option] = {
    "stream": Option(
        "streamName",
        read_text,
        meaning="name of the stream, or names and ARNs of several with commas between; give this "
        "or `streamArn`",
    ),
    "stream_arn": Option(
        "streamArn",
        read_text,
        meaning="ARN of the stream, which also gives the region; give this or `streamName`",
    ),
    "application": Option(
        "applicationName",
        read_name,
        meaning="name of the application, under which ZooKeeper keeps its checkpoints; required",
    ),
    "zookeeper": Option(
        "zookeeper",
        read_address,
        meaning="connect string, like `zk1:2181,zk2:2181/chroot`, or `embedded:<directory>` "
        "on a single machine; required",
    ),
    "zookeeper_root": Option(
        "zookeeperRoot",
        read_name,
        "kinesis-spout",
        meaning="name of the znode that holds all applications",
    ),
    "zookeeper_session_timeout": Option(
        "zookeeperSessionTimeout",
        duration(1_000, 120_000),
        "10s",
        meaning="time after which ZooKeeper releases the ownership of a job that died; 1s to 2m",
    ),
    "zookeeper_tls": Option(
        "zookeeperTls",
        read_boolean,
        "false",
        meaning="`true` connects to ZooKeeper with TLS, and verifies the server's certificate",
    ),
    "zookeeper_ca_file": Option(
        "zookeeperCaFile",
        read_text,
        meaning="PEM file of the authorities that may sign the server's certificate, on driver and "
        "executors; default: those that the machine trusts",
    ),
    "zookeeper_cert_file": Option(
        "zookeeperCertFile",
        read_text,
        meaning="PEM file of the client's certificate, on driver and executors",
    ),
    "zookeeper_key_file": Option(
        "zookeeperKeyFile",
        read_text,
        meaning="PEM file of the certificate's key, without a passphrase, on driver and executors",
    ),
    "zookeeper_verify_hostname": Option(
        "zookeeperVerifyHostname",
        read_boolean,
        "true",
        meaning="`false` accepts a trusted certificate that is for another host name",
    ),
    "zookeeper_auth": Option(
        "zookeeperAuth",
        choice(*AUTHS),
        "none",
        meaning="who the job is to ZooKeeper: `none`; `digest`, ZooKeeper's own user and password; "
        "`sasl`, DIGEST-MD5, which needs the extra `sasl`; `kerberos`, GSSAPI",
    ),
    "zookeeper_user": Option("zookeeperUser", read_text, meaning="user of `digest` and `sasl`"),
    "zookeeper_password": Option(
        "zookeeperPassword",
        read_text,
        secret=True,
        meaning="password of the user; prefer `zookeeperPasswordFile`",
    ),
    "zookeeper_password_file": Option(
        "zookeeperPasswordFile",
        read_text,
        meaning="file whose first line is the password, on the driver only; default: the "
        f"environment variable `{PASSWORD_VARIABLE}`",
    ),
    "zookeeper_acl": Option(
        "zookeeperAcl",
        choice(*ACLS),
        meaning="who may use the znodes that the job creates: `open`, all; `creator`, its identity "
        "alone; `creator-read`, and all may read; default: `creator` with a `zookeeperAuth`, else "
        "`open`",
    ),
    "region": Option(
        "region", read_text, meaning="AWS region; default: the region of the AWS configuration"
    ),
    "endpoint_url": Option(
        "endpointUrl",
        read_text,
        meaning="Kinesis endpoint, such as a VPC endpoint or a local emulator; default: the "
        "region's endpoint",
    ),
    "profile": Option(
        "profile",
        read_text,
        meaning="profile of the AWS configuration files; default: the one that botocore chooses",
    ),
    "access_key_id": Option(
        "awsAccessKeyId",
        read_text,
        secret=True,
        meaning="access key id; default: botocore's chain of credentials",
    ),
    "secret_access_key": Option(
        "awsSecretAccessKey",
        read_text,
        secret=True,
        meaning="secret of the access key; no log or error shows it",
    ),
    "session_token": Option(
        "awsSessionToken",
        read_text,
        secret=True,
        meaning="session token, if the access key is a temporary one",
    ),
    "role_arn": Option(
        "roleArn",
        read_text,
        meaning="role to assume with STS; its credentials are renewed before they expire, on "
        "executors too",
    ),
    "role_external_id": Option(
        "roleExternalId",
        read_text,
        secret=True,
        meaning="external id that the role requires",
    ),
    "role_session_name": Option(
        "roleSessionName",
        read_text,
        "kinesis-spout",
        meaning="session name of the role, as CloudTrail shows it",
    ),
    "wire_format": Option(
        "wireFormat",
        choice("auto", "json", "cbor"),
        "auto",
        meaning="encoding of the pages that are read: `json`, or `cbor`, which is cheaper and "
        "needs the extra `cbor`; `auto`: `cbor` where it is installed and the endpoint speaks it",
    ),
    "starting_position": Option(
        "startingPosition",
        read_positions("LATEST"),
        "LATEST",
        meaning="where a new application starts: `LATEST`, `TRIM_HORIZON`, an ISO time or `14:00` "
        "(UTC), `-2h`, `AT:<sequence>`, `AFTER:<sequence>`, or JSON that maps shard ids and "
        "`default` to these",
    ),
    "read_mode": Option(
        "readMode",
        choice("polling", "efo"),
        "polling",
        meaning="how new records are read: `polling`, by GetRecords; `efo`, by enhanced fan-out, "
        "with a registered consumer, where a subscription may be opened",
    ),
    "consumer_name": Option(
        "consumerName",
        read_consumer_name,
        meaning="with `readMode` `efo`: name of the consumer, which is registered when it is "
        "missing; give this or `consumerArn`",
    ),
    "consumer_arn": Option(
        "consumerArn",
        read_consumer_arn,
        meaning="with `readMode` `efo`: ARN of a consumer of the stream that exists",
    ),
    "max_records_per_trigger": Option(
        "maxRecordsPerTrigger",
        whole_number(1),
        meaning="maximum records of a stream in a batch, over all its shards; 1 or more; default: "
        "no limit",
    ),
    "max_records_per_trigger_total": Option(
        "maxRecordsPerTriggerTotal",
        whole_number(1),
        meaning="maximum records in a batch, over all streams that a query reads, shared "
        "between those that have something to read; 1 or more; default: no limit",
    ),
    "max_records_per_shard": Option(
        "maxRecordsPerShard",
        whole_number(1),
        "100000",
        meaning="maximum new records of one shard in a batch; 1 or more",
    ),
    "max_bytes_per_task": Option(
        "maxBytesPerTask",
        size(1),
        "64MiB",
        meaning="maximum payload bytes that a task delivers in a batch",
    ),
    "max_fetch_time": Option(
        "maxFetchTime",
        duration(1),
        "5s",
        meaning="maximum time that a task reads once it has found a record; up to 24h",
    ),
    "max_search_time": Option(
        "maxSearchTime",
        duration(1),
        "60s",
        meaning="maximum time that a task looks for the first record of a shard that is "
        "behind, and an AvailableNow run for a shard's end; up to 24h",
    ),
    "max_tasks": Option(
        "maxTasks",
        whole_number(1),
        "64",
        meaning="maximum tasks in a batch; 1 or more; default: as many as the session runs at a "
        "time, 64 with dynamic allocation and on Spark Connect",
    ),
    "reads_per_second": Option(
        "readsPerSecond",
        read_rate,
        "5",
        meaning="GetRecords calls a second and shard; the service allows 5 to all consumers "
        "together; 0.1 to 1000",
    ),
    "read_bytes_per_second": Option(
        "readBytesPerSecond",
        size(1024),
        "2MiB",
        meaning="bytes read a second and shard; the service allows 2 MB; 1KiB or more",
    ),
    "fail_on_data_loss": Option(
        "failOnDataLoss",
        read_boolean,
        "true",
        meaning="`true` stops the query when records may have expired unread; `false` logs "
        "them and goes on",
    ),
    "aggregated_records": Option(
        "aggregatedRecords",
        choice("unpack", "fail", "raw"),
        "unpack",
        meaning="a record that the Kinesis Producer Library has aggregated: `unpack` delivers each "
        "of its user records, `fail` stops at it, `raw` delivers its bytes",
    ),
    "max_unresolved_per_shard": Option(
        "maxUnresolvedPerShard",
        whole_number(1),
        "100000",
        meaning="maximum unresolved records of a shard; at this number no new records of it "
        "are read; 1 or more",
    ),
    "whole_batch_ack": Option(
        "wholeBatchAck",
        read_boolean,
        "false",
        meaning="`true` acks finished batches as a whole in an application that has tracked "
        "its records before",
    ),
    "available_now_retry_wait": Option(
        "availableNowRetryWait",
        duration(0),
        meaning="maximum time that an AvailableNow run waits for retries after its last new "
        "record; up to 24h; default: the sum of a record's backoffs, and 50s, or more with a first "
        "backoff of more than 20s",
    ),
    "idle_wait": Option(
        "idleWait",
        duration(0, 60_000),
        "1s",
        meaning="maximum time that the driver waits for new records before it returns to "
        "Spark; up to 60s",
    ),
    "probe_interval": Option(
        "probeInterval",
        duration(200),
        "1s",
        meaning="time between two probes of an idle shard for new records; 200ms to 24h",
    ),
    "shard_refresh_interval": Option(
        "shardRefreshInterval",
        duration(100),
        "10s",
        meaning="time between two listings of the shards; 100ms to 24h",
    ),
    "owner_wait": Option(
        "ownerWait",
        duration(0),
        "30s",
        meaning="maximum time that a new job waits until an earlier job of its name is gone; "
        "up to 24h",
    ),
}

# Options of earlier versions that nobody could choose a value for, by the reason. One that is given
# is warned of, and has no effect.
RETIRED = {
    "probeMaxShards": "up to 100 shards are probed by the driver, more are read by tasks",
    "idleInterval": "more than 100 shards that are idle are read every 10 seconds",
    "statesPerWrite": "shard states are written in as few transactions as ZooKeeper takes",
}


def warn_retired(name: str) -> None:
    """Warn that this option has no effect any more."""
    warnings.warn(
        f"option {name} has no effect any more, leave it out: {RETIRED[name]}", stacklevel=3
    )
