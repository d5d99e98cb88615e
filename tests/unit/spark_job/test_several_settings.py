"""Which stream of a query of several streams gets which option, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kinesis_spout.errors import ConfigError
from spark_job.kinesis_source import KinesisSource, KinesisStreams
from spark_job.settings import QuerySettings

EU = "arn:aws:kinesis:eu-west-1:111122223333:stream/orders"
US = "arn:aws:kinesis:us-east-1:444455556666:stream/orders"
CLICKS = "arn:aws:kinesis:us-east-1:444455556666:stream/clicks"
BASE = {"applicationName": "etl", "zookeeper": "zk:2181", "region": "eu-west-1"}
ROLE = "arn:aws:iam::444455556666:role/reader"


def query(names: str, **own: str) -> QuerySettings:
    return QuerySettings.from_options(BASE | {"streamName": names} | own)


def source(**fields: Any) -> KinesisSource:
    return KinesisSource(**({"application": "etl", "zookeeper": "zk:2181"} | fields))


def test_names_and_arns_are_listed_with_commas() -> None:
    found = query(f"orders, {CLICKS}").streams
    assert [one.label for one in found] == ["orders", "clicks"]
    assert [one.aws.region or one.stream.region for one in found] == ["eu-west-1", "us-east-1"]
    assert [one.id_prefix for one in found] == ["orders/", "clicks/"]
    alone = query("orders")
    assert alone.is_of_one
    assert (alone.streams[0].label, alone.streams[0].id_prefix) == ("orders", "")


def test_a_numbered_option_is_of_one_stream() -> None:
    """A consumer of one stream replaces that of all; one of them may be polled."""
    arn = f"{CLICKS}/consumer/mine:1"
    given = {
        "stream.2.roleArn": ROLE,
        "STREAM.1.startingposition": "TRIM_HORIZON",
        "readMode": "efo",
        "consumerName": "all",
        "stream.2.consumerArn": arn,
        "stream.3.readMode": "polling",
    }
    first, second, third = query(f"orders,{CLICKS},payments", **given).streams
    assert (first.aws.role_arn, second.aws.role_arn) == (None, ROLE)
    assert first.starting_position.text == "TRIM_HORIZON"
    assert second.starting_position.text == "LATEST"
    assert (first.read_mode, first.consumer_name, first.consumer_arn) == ("efo", "all", None)
    assert (second.read_mode, second.consumer_name, second.consumer_arn) == ("efo", None, arn)
    assert (third.read_mode, third.consumer_name, third.consumer_arn) == ("polling", None, None)


def test_each_source_of_several_keeps_its_settings() -> None:
    """Also as options, which are all that Spark passes on."""
    several = KinesisSource.several(
        [
            source(
                stream="orders",
                region="eu-west-1",
                starting_position="-2h",
                read_mode="efo",
                consumer_name="a",
            ),
            source(
                stream_arn=CLICKS,
                access_key_id="AKIAXXXXXXXXXXXXXXXX",
                secret_access_key="hush-hush",  # no secret of anybody
                role_arn=ROLE,
            ),
        ],
        max_records_per_trigger_total=9,
    )
    orders, clicks = several.query().streams
    assert (orders.aws.region, orders.starting_position.text) == ("eu-west-1", "-2h")
    assert (orders.aws.role_arn, orders.read_mode, orders.consumer_name) == (None, "efo", "a")
    assert (clicks.stream.arn, clicks.aws.role_arn) == (CLICKS, ROLE)
    assert (clicks.consumer_name, clicks.read_mode) == (None, "polling")
    assert several.query().max_records == 9
    lowered = {name.lower(): text for name, text in several.options().items()}
    assert QuerySettings.from_options(lowered) == several.query()
    assert several.options()["stream.2.awsSecretAccessKey"] == "hush-hush"
    assert "hush-hush" not in repr(several) + repr(several.query())


def test_streams_of_one_name_are_told_apart_by_their_arns() -> None:
    """Their states lie under applications of their own."""
    both = [
        source(stream_arn=EU, application="etl-eu"),
        source(stream_arn=US, application="etl-us"),
    ]
    first, second = KinesisSource.several(both).query().streams
    assert (first.label, second.label) == (EU, US)
    assert (first.state_name, second.state_name) == ("etl-eu/orders", "etl-us/orders")


@pytest.mark.parametrize(
    ("names", "own", "error"),
    [
        ("orders,orders", {}, "two streams orders; name each stream once"),
        (f"{EU},{US}", {}, "give each of them its own applicationName"),
        ("orders", {"stream.1.region": "eu-west-1"}, "is for a query of several streams"),
        ("orders,clicks", {"stream.3.region": "eu-west-1"}, "but streamName lists 2"),
        ("orders,clicks", {"stream.1.streamName": "x"}, "list the streams in streamName"),
        ("orders,clicks", {"stream.1.rolArn": "x"}, "did you mean roleArn"),
    ],
)
def test_what_cannot_be_told_apart_or_placed_is_refused(
    names: str, own: dict[str, str], error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        query(names, **own)


def test_several_needs_two_streams_and_counts_those_of_a_list() -> None:
    listed = source(stream="a,b", region="eu-west-1")
    found = KinesisSource.several([listed, source(stream_arn=CLICKS)])
    assert [one.label for one in found.query().streams] == ["a", "b", "clicks"]
    for too_few in ((), (source(stream="orders", region="eu-west-1"),)):
        with pytest.raises(ConfigError, match="less than two streams"):
            KinesisStreams(too_few)
