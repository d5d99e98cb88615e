"""Options are checked before anything is read, and errors name them as the user does. One query may
have several streams, and options of other connectors.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import ConfigError
from scheme import PayloadScheme, TextScheme
from spark_job.batch_read.batch_settings import BATCH_OPTIONS
from spark_job.data_source import SCHEMA_DDL
from spark_job.kinesis_source import KinesisSource, KinesisStreams
from spark_job.options import OPTIONS, RETIRED
from spark_job.registration import RegisteredSource
from spark_job.settings import QuerySettings, texts_from_options
from spark_job.sink.sink_settings import SINK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinesis_spout.options import Option
    from scheme import RecordScheme
    from spark_job.settings import SourceSettings


@dataclass(frozen=True)
class Scheme(PayloadScheme):
    """A user's own, with a secret perhaps."""

    times: int

    schema_ddl = "n INT"
    many = True

    def read(self, payload: bytes) -> list[tuple[int]]:
        return [(len(payload),)] * self.times


STATE = {"applicationName": "etl", "zookeeper": "zk:2181"}
BASE = STATE | {"streamName": "orders", "region": "eu-west-1"}
SECRETS = {"awsAccessKeyId": "AKIAEXAMPLE", "awsSecretAccessKey": "s3cr3t-key"}


def query(names: str, **own: str) -> QuerySettings:
    return QuerySettings.from_options(BASE | {"streamName": names} | own)


def settings(**options: str) -> SourceSettings:
    return query("orders", **options).streams[0]


def source_of(**fields: Any) -> KinesisSource:
    """A source of one stream, which is named unless it has an ARN."""
    stream = {} if "stream_arn" in fields else {"stream": "orders"}
    return KinesisSource(**(stream | {"application": "etl", "zookeeper": "zk:2181"} | fields))


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


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_retired_option_is_warned_of_and_has_no_effect(name: str) -> None:
    """As a reader's option, one stream's own among them, and as an argument."""
    reason = rf"option {name} no longer has an effect: {RETIRED[name]}"
    with pytest.warns(UserWarning, match=reason):
        assert settings(**{name.lower(): "any"}) == settings()
    with pytest.warns(UserWarning, match=reason):
        QuerySettings.from_options(BASE | {"streamName": "a,b", f"stream.2.{name}": "1"})
    field = re.sub("([A-Z])", r"_\1", name).lower()
    with pytest.warns(UserWarning, match=reason):
        assert source_of(**{field: 1}).options() == source_of().options()


CONSUMER = "arn:aws:kinesis:us-east-1:000000000000:stream/{}/consumer/reader:1"
OWN = CONSUMER.format("orders")
OTHERS = CONSUMER.format("clicks")


BAD_VALUES = {
    "maxRecordsPerShard": ["many"],
    "maxFetchTime": ["soon"],
    "maxBytesPerTask": ["-1"],
    "failOnDataLoss": ["maybe"],
    "startingPosition": ["EARLIEST", '{"default": 1}'],
    "aggregatedRecords": ["unpacked"],
    "wireFormat": ["xml"],
    "readMode": ["push"],
    "readsPerSecond": ["0"],
    "readBytesPerSecond": ["1"],
    "probeInterval": ["10ms"],
    "streamName": [""],
    "applicationName": ["", "team/etl", "rocket \U0001f680"],
    "zookeeperRoot": ["a/b"],
    "zookeeper": ["", "zk1 2181", "embedded:"],
}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"readMode": "efo"}, "consumerName: readMode efo requires either"),
        (
            {"readMode": "efo", "consumerName": "a", "consumerArn": OWN},
            "consumerName or consumerArn",
        ),
        ({"consumerName": "a"}, "consumerName: has an effect only with readMode efo"),
        ({"readMode": "efo", "consumerArn": OTHERS}, "not belong to stream orders"),
        (
            {"awsAccessKeyId": "A"},
            "awsSecretAccessKey: the secret access key is missing although",
        ),
        (SECRETS | {"profile": "etl"}, "profile: 'etl' is set, but awsAccessKeyId is set too;"),
        (
            {"streamArn": "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"},
            "streamName and streamArn",
        ),
        (
            {"startingPosition": '{"default": LATEST}'},
            "startingPosition.*is not valid JSON.*positions in the form",
        ),
        ({"startingPositon": "x"}, r"startingPositon.*did you mean startingPosition\?"),
        ({"maxrecordpershard": "x"}, r"maxrecordpershard.*did you mean maxRecordsPerShard\?"),
        *(({name: bad}, name) for name, values in BAD_VALUES.items() for bad in values),
    ],
)
def test_options_that_do_not_fit_are_refused_by_their_names(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(**given)


def test_a_position_that_is_no_text_is_refused_in_a_mapping_too() -> None:
    moment: Any = datetime(2026, 1, 31, tzinfo=UTC)
    for start in (moment, {"default": moment}):
        with pytest.raises(ConfigError, match="option startingPosition"):
            source_of(starting_position=start)


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


@pytest.mark.parametrize(
    ("given", "scheme", "column"),
    [
        ("text", TextScheme(), "STRUCT<value: STRUCT<text STRING>, malformed: STRING>"),
        (Scheme(3), Scheme(3), "ARRAY<STRUCT<value: STRUCT<n INT>, malformed: STRING>>"),
    ],
)
def test_a_scheme_is_given_by_its_text_or_as_an_object(
    given: object, scheme: RecordScheme, column: str
) -> None:
    """The reader gets it by its options, and declares the column. The connections of a process do
    not go by it.
    """
    source = source_of(scheme=given)
    found = QuerySettings.from_options(source.options())
    assert found.scheme == source.query().scheme == scheme
    assert found == source_of().query()
    columns = SCHEMA_DDL.replace("TIMESTAMP", "TIMESTAMP_LTZ")
    assert RegisteredSource(source.options()).schema() == f"{columns}, parsed {column}"
    assert f"scheme={given!r}" in repr(source)
    # What Spark's plans and its UI show: all but what has such a word in its name.
    shown = [name for name in source.options() if not re.search("(?i)secret|password", name)]
    assert ("scheme" in shown) is isinstance(given, str)
    assert all("pickle" not in source.options()[name] for name in shown)
    several = KinesisSource.several([source, source_of(stream="clicks", scheme=given)])
    assert several.query().scheme == scheme


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("jsn", "option scheme: scheme .jsn. is not known; use text, raw"),
        ("json:id BIGNT", "option scheme: .*'BIGNT'"),
        (
            "pickle:s3cret",
            r"option scheme: the scheme cannot be created on this machine \(\w+: .*\); install",
        ),
        (5, "option scheme"),
    ],
)
def test_a_scheme_that_is_none_is_refused(given: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        source_of(scheme=given)
    assert "s3cret" not in str(caught.value)


def test_the_streams_of_a_query_have_one_scheme() -> None:
    with pytest.raises(ConfigError, match=r"option scheme differs .* batch\.parsed"):
        KinesisSource.several([source_of(scheme="text"), source_of(stream="clicks")])


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


EU = "arn:aws:kinesis:eu-west-1:111122223333:stream/orders"
US = "arn:aws:kinesis:us-east-1:444455556666:stream/orders"
CLICKS = "arn:aws:kinesis:us-east-1:444455556666:stream/clicks"
ROLE = "arn:aws:iam::444455556666:role/reader"


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
            source_of(
                stream="orders",
                region="eu-west-1",
                starting_position="-2h",
                read_mode="efo",
                consumer_name="a",
            ),
            source_of(
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


@pytest.mark.parametrize(
    ("names", "own", "error"),
    [
        ("orders,orders", {}, "two streams with the name orders; list each stream once"),
        (f"{EU},{US}", {}, "set a different applicationName for each"),
        ("orders", {"stream.1.region": "eu-west-1"}, "applies only to a query of several streams"),
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
    listed = source_of(stream="a,b", region="eu-west-1")
    found = KinesisSource.several([listed, source_of(stream_arn=CLICKS)])
    assert [one.label for one in found.query().streams] == ["a", "b", "clicks"]
    for too_few in ((), (source_of(stream="orders", region="eu-west-1"),)):
        with pytest.raises(ConfigError, match="fewer than two streams"):
            KinesisStreams(too_few)


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
            "streamName have the same meaning, but both are set",
        ),
        ({"kinesis.consumerType": "Push"}, "is not accepted; use GetRecords or SubscribeToShard"),
        ({"consumerMode": "push"}, "is not accepted; use polling or efo"),
        ({"consumerNamePrefix": "a"}, "option consumerNamePrefix belongs to Databricks"),
        ({"kinesis.getRecords.fetchIntervalMs": "0"}, "use option readsPerSecond"),
        ({"kinesis.startingPosition": '{"shardId-0": {}}'}, "kinesis-spout import"),
        ({"kinesis.startingPosition": "AT_TIMESTAMP"}, "kinesis-spout import"),
        ({"initialPosition": '{"at_timestamp": "1"}'}, "set option startingPosition to the time"),
        ({"kinesis.nothing": "1"}, "option kinesis.nothing is not known"),
    ],
)
def test_what_is_not_taken_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=r"options? ") as refused:
        texts_from_options(options)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "table", [OPTIONS, BATCH_OPTIONS, SINK_OPTIONS], ids=["source", "batch", "sink"]
)
def test_an_option_of_a_foreign_sink_is_refused_with_the_options_of_ours(
    table: Mapping[str, Option],
) -> None:
    """Also where it is passed to the sink."""
    with pytest.raises(ConfigError, match=r"option kinesis\.sink\.recordTtl ") as refused:
        texts_from_options({"kinesis.sink.recordTtl": "1"}, table)
    assert "belongs to the sink of awslabs' connector" in refused.value.message
    assert "aggregate, ordering, requestsInFlight" in refused.value.remedy


def test_a_foreign_option_that_means_one_of_another_use_names_what_to_do() -> None:
    with pytest.raises(ConfigError, match="option readMode, which does not apply here") as refused:
        texts_from_options({"consumerMode": "efo"}, SINK_OPTIONS)
    assert refused.value.remedy == "omit the option"
