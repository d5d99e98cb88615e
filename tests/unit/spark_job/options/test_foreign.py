"""Options of awslabs' connector and of Databricks' source, given to ours."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import ConfigError
from spark_job.settings import QuerySettings, texts_from_options

STATE = {"applicationName": "etl", "zookeeper": "zk1:2181"}


ROLE = "arn:aws:iam::123456789012:role/r"
URL = "https://kinesis.eu-west-1.amazonaws.com"
NOON = "2026-01-31T12:00:00Z"
AWSLABS = (
    ("kinesis.streamName", "orders", "streamName", "orders"),
    ("kinesis.endpointUrl", URL, "endpointUrl", URL),
    ("kinesis.kinesisRegion", "eu-west-1", "region", "eu-west-1"),
    ("kinesis.consumerType", "SubscribeToShard", "readMode", "efo"),
    ("kinesis.consumerName", "reader", "consumerName", "reader"),
    ("kinesis.startingPosition", f"AT_TIMESTAMP {NOON}", "startingPosition", NOON),
    ("kinesis.failOnDataLoss", "true", "failOnDataLoss", "true"),
    ("kinesis.maxFetchRecordsPerShard", "500", "maxRecordsPerShard", "500"),
    ("kinesis.describeShardInterval", "50s", "shardRefreshInterval", "50s"),
    ("kinesis.getRecords.fetchIntervalMs", "250", "readsPerSecond", "4"),
    ("kinesis.stsRoleArn", ROLE, "roleArn", ROLE),
    ("kinesis.stsSessionName", "etl", "roleSessionName", "etl"),
    ("kinesis.awsAccessKeyId", "id", "awsAccessKeyId", "id"),
    ("kinesis.awsSecretKey", "secret", "awsSecretAccessKey", "secret"),
    ("kinesis.sessionToken", "token", "awsSessionToken", "token"),
)
DATABRICKS = (
    ("streamName", "orders", "streamName", "orders"),
    ("region", "eu-west-1", "region", "eu-west-1"),
    ("endpoint", "kinesis.eu-west-1.amazonaws.com", "endpointUrl", URL),
    ("initialPosition", "earliest", "startingPosition", "TRIM_HORIZON"),
    ("consumerMode", "polling", "readMode", "polling"),
    ("awsAccessKey", "id", "awsAccessKeyId", "id"),
    ("awsSecretKey", "secret", "awsSecretAccessKey", "secret"),
    ("roleArn", ROLE, "roleArn", ROLE),
    ("roleExternalId", "x", "roleExternalId", "x"),
    ("roleSessionName", "etl", "roleSessionName", "etl"),
    ("shardFetchInterval", "2m", "shardRefreshInterval", "2m"),
    ("minFetchPeriod", "400ms", "readsPerSecond", "2.5"),
)


@pytest.mark.parametrize("table", [AWSLABS, DATABRICKS], ids=["awslabs", "databricks"])
def test_options_that_mean_the_same_give_the_same_settings(
    table: tuple[tuple[str, str, str, str], ...],
) -> None:
    """In any case, as Spark has them."""
    foreign = {name: text for name, text, *_ in table}
    expected = QuerySettings.from_options({name: text for *_, name, text in table} | STATE)
    assert QuerySettings.from_options(foreign | STATE) == expected
    lower = {name.lower(): text for name, text in foreign.items()}
    assert QuerySettings.from_options(lower | STATE) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"streamName": "a", "kinesis.streamName": "b"},
            "option kinesis.streamName means streamName, which is given too; give one of them",
        ),
        ({"kinesis.consumerType": "Push"}, "is not taken; use GetRecords or SubscribeToShard"),
        ({"consumerMode": "push"}, "is not taken; use polling or efo"),
        ({"consumerNamePrefix": "a"}, "option consumerNamePrefix is of Databricks"),
        ({"kinesis.getRecords.fetchIntervalMs": "0"}, "is not taken; give readsPerSecond"),
        ({"kinesis.startingPosition": '{"shardId-0": {}}'}, "kinesis-spout import"),
        ({"kinesis.startingPosition": "AT_TIMESTAMP"}, "kinesis-spout import"),
        ({"initialPosition": '{"at_timestamp": "1"}'}, "give startingPosition with the time"),
        ({"kinesis.sink.recordTtl": "1"}, "option of the sink"),
        ({"kinesis.nothing": "1"}, "option kinesis.nothing is not known"),
    ],
)
def test_what_is_not_taken_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match="option ") as refused:
        texts_from_options(options)
    assert said in str(refused.value)
