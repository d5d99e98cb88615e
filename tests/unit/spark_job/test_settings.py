"""Options are checked before anything is read, and errors name them as the user does."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import ConfigError
from spark_job.kinesis_source import KinesisSource
from spark_job.options import RETIRED
from spark_job.registration import RegisteredSource
from spark_job.settings import QuerySettings

if TYPE_CHECKING:
    from spark_job.settings import SourceSettings

BASE = {
    "streamName": "orders",
    "applicationName": "etl",
    "zookeeper": "zk:2181",
    "region": "eu-west-1",
}
SECRETS = {"awsAccessKeyId": "AKIAEXAMPLE", "awsSecretAccessKey": "s3cr3t-key"}


def settings(**options: str) -> SourceSettings:
    return QuerySettings.from_options(BASE | options).streams[0]


@pytest.mark.parametrize(
    ("slots", "options", "tasks"),
    [(None, {}, 64), (2, {}, 2), (2, {"maxTasks": "5"}, 5), (2, {"maxtasks": "5"}, 5)],
)
def test_as_many_tasks_as_run_at_a_time_unless_told(
    slots: int | None, options: dict[str, str], tasks: int
) -> None:
    class Source(RegisteredSource):
        task_slots = slots

    (stream,) = Source(BASE | options).query().streams
    assert stream.max_tasks == tasks


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("startingPositon", "startingPosition"),
        ("maxrecordpershard", "maxRecordsPerShard"),
    ],
)
def test_a_misspelt_option_is_refused_with_the_nearest_name(wrong: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?i){wrong}.*did you mean {nearest}\?"):
        settings(**{wrong: "x"})


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_retired_option_is_warned_of_and_has_no_effect(name: str) -> None:
    """As a reader's option, one stream's own among them, and as an argument."""
    reason = rf"option {name} has no effect any more, leave it out: {RETIRED[name]}"
    with pytest.warns(UserWarning, match=reason):
        assert settings(**{name.lower(): "any"}) == settings()
    with pytest.warns(UserWarning, match=reason):
        QuerySettings.from_options(BASE | {"streamName": "a,b", f"stream.2.{name}": "1"})
    field = re.sub("([A-Z])", r"_\1", name).lower()
    with pytest.warns(UserWarning, match=reason):
        assert source_of(**{field: 1}).options() == source_of().options()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("maxRecordsPerShard", "many"),
        ("maxFetchTime", "soon"),
        ("maxBytesPerTask", "-1"),
        ("failOnDataLoss", "maybe"),
        ("startingPosition", "EARLIEST"),
        ("startingPosition", '{"default": 1}'),
        ("aggregatedRecords", "unpacked"),
        ("wireFormat", "xml"),
        ("readMode", "push"),
        ("readsPerSecond", "0"),
        ("readBytesPerSecond", "1"),
        ("probeInterval", "10ms"),
        ("applicationName", "team/etl"),
        ("applicationName", "rocket \U0001f680"),
        ("zookeeperRoot", "a/b"),
        ("zookeeper", "zk1 2181"),
        ("zookeeper", "embedded:"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_of_its_option(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=option):
        settings(**{option: value})


CONSUMER = "arn:aws:kinesis:us-east-1:000000000000:stream/{}/consumer/reader:1"
OWN = CONSUMER.format("orders")
OTHERS = CONSUMER.format("clicks")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"readMode": "efo"}, "consumerName: or consumerArn has to be given with readMode efo"),
        ({"readMode": "efo", "consumerName": "a", "consumerArn": OWN}, "and not both"),
        ({"consumerName": "a"}, "consumerName: is of use only with readMode efo"),
        ({"readMode": "efo", "consumerArn": OTHERS}, "not of stream orders"),
        ({"awsAccessKeyId": "A"}, "awsSecretAccessKey: is missing beside awsAccessKeyId;"),
        (SECRETS | {"profile": "etl"}, "profile: 'etl' is given beside awsAccessKeyId;"),
        (
            {"streamArn": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"},
            "streamName and streamArn",
        ),
        ({"startingPosition": '{"default": LATEST}'}, "startingPosition.*is not JSON.*as in"),
        ({"streamName": ""}, "streamName"),
        ({"applicationName": ""}, "applicationName"),
        ({"zookeeper": ""}, "zookeeper"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_their_names(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(**given)


def source_of(**fields: object) -> KinesisSource:
    given = {"stream": "orders", "application": "etl", "zookeeper": "zk:2181"}
    return KinesisSource(**(given | fields))  # type: ignore[arg-type]  # wrong ones are given too


def test_a_source_and_its_reader_options_give_the_same_settings() -> None:
    source = source_of(
        region="eu-west-1",
        starting_position={"default": "TRIM_HORIZON"},
        fail_on_data_loss=False,
        max_records_per_shard=5,
        max_fetch_time="2s",
    )
    (found,) = QuerySettings.from_options(source.options()).streams
    assert found == source.settings()
    assert {source.settings(): 1}[pickle.loads(pickle.dumps(found))] == 1  # noqa: S301  # our own bytes
    assert source.settings().fail_on_data_loss is False


def test_no_repr_and_no_error_shows_a_secret() -> None:
    source = source_of(
        access_key_id="AKIAEXAMPLE", secret_access_key="s3cr3t-key", session_token="t0ken-text"
    )
    shown = repr(source) + repr(source.settings()) + str(source) + str(source.settings())
    assert "s3cr3t-key" not in shown
    assert "t0ken-text" not in shown
    with pytest.raises(ConfigError) as caught:
        settings(awsSecretAccessKey="s3cr3t-key")
    assert "s3cr3t-key" not in str(caught.value)
