"""The options of redrive: their meaning, and which values are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import typer

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import ConfigError
from spark_job.commands.redrive import connection_of, selection_of
from spark_job.dead_letter.redrive import Selection

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"


def selected(**given: Any) -> Selection:
    defaults = {
        "reasons": (),
        "since": None,
        "until": None,
        "stream": None,
        "region": None,
        "now_ms": int(NOW.timestamp()) * 1000,
    }
    return selection_of(**(defaults | given))


def test_without_options_all_letters_are_selected_for_their_own_streams() -> None:
    assert selected() == Selection()


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("-2h", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("-1d", datetime(2026, 1, 30, 12, tzinfo=UTC)),
        ("2026-01-30", datetime(2026, 1, 30, tzinfo=UTC)),
        ("2026-01-30T10:00:00.250+02:00", datetime(2026, 1, 30, 8, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_times_are_written_as_in_other_options(text: str, time: datetime) -> None:
    """A time without a zone is UTC."""
    assert selected(since=text) == Selection(since=time)
    assert selected(until=text) == Selection(until=time)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"since": "LATEST"}, "--since"),
        ({"until": "TRIM_HORIZON"}, "--until"),
        ({"since": "AT:123"}, "--since"),
        ({"since": "yesterday"}, "--since"),
        ({"since": "-1h", "until": "-2h"}, "--until"),
        ({"since": "-1h", "until": "-1h"}, "--until"),
        ({"reasons": ("",)}, "--reason"),
    ],
)
def test_a_bad_selection_is_wrong_usage_of_the_named_option(
    given: dict[str, Any], hint: str
) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        selected(**given)
    assert caught.value.param_hint == hint


def test_a_stream_is_named_or_given_by_its_arn() -> None:
    assert selected(stream="orders").target == StreamRef("orders")
    assert selected(stream=ARN, region="eu-central-1").target == StreamRef("orders", ARN)
    with pytest.raises(ConfigError, match="region"):
        selected(stream=ARN, region="us-east-1")
    with pytest.raises(ConfigError, match="not a stream name"):
        selected(stream="no such name")


def test_reader_options_set_the_connection() -> None:
    """In upper or lower case, and they win over the command's own options."""
    named = {"region": "eu-central-1", "endpoint_url": None}
    found = connection_of(
        named, {"REGION": "us-east-1", "awsAccessKeyId": "AK", "awsSecretAccessKey": "secret"}
    )
    assert found == AwsConfig(region="us-east-1", access_key_id="AK", secret_access_key="secret")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"maxRecordsPerShard": "5"},
            "maxRecordsPerShard is for reading; the options for putting are region, endpointUrl",
        ),
        ({"streamName": "orders"}, "streamName is for reading"),
        ({"regoin": "eu-central-1"}, "did you mean region"),
        ({"awsAccessKeyId": "AK"}, "awsSecretAccessKey|secret_access_key"),
        ({"region": "Frankfurt"}, "option region"),
        ({"endpointUrl": "nowhere"}, "option endpointUrl"),
    ],
)
def test_another_option_is_refused_by_its_name(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        connection_of({}, options)
