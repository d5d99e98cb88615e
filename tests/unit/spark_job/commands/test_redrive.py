"""The options of redrive, which values are refused, and its report for people and for programs."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from rich.console import Console

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import ConfigError
from spark_job.commands.redrive import connection_of, selection_of
from spark_job.commands.redrive_report import Report, show_found
from spark_job.dead_letter.redrive import Found, Selection
from spark_job.dead_letter.redrive_letters import ReasonCount

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
    """A time without a zone is UTC. Without options all letters are selected."""
    assert selected() == Selection()
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
            "for reading; the options for putting are region, endpointUrl",
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


# report -------------------------------------------------------------------------------------------
FOUND = Found(
    to_put=1240,
    put_before=7,
    without_payload=1,
    incomplete=4,
    unreadable=2,
    reasons=(
        ReasonCount(
            target="orders",
            reason="ValueError: [red]no such order",
            letters=1234,
            first_failure=datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
            last_failure=datetime(2026, 1, 3, tzinfo=UTC),
        ),
    ),
    more_reasons=3,
)


def shown(found: Found) -> list[str]:
    text = io.StringIO()
    show_found(Console(file=text, width=120), found)
    return [" ".join(line.split()) for line in text.getvalue().splitlines()]


def test_people_see_a_line_per_reason_and_the_letters_left_out() -> None:
    """Markup in a reason is printed as text."""
    assert shown(FOUND)[1:] == [
        "1,234 orders ValueError: [red]no such order 2026-01-02 03:04Z 2026-01-03 00:00Z",
        "and 3 more reasons",
        "1,240 dead letters to put",
        "7 were put before",
        "1 have no payload (their records were past the stream's retention) and cannot be put",
        "4 are in parts of which some are missing, and cannot be put",
        "2 rows in the files are not dead letters",
    ]
    assert shown(Found()) == ["no dead letters to put"]
    assert shown(Found(to_put=1))[-1] == "1 dead letter to put"
    assert shown(Found(put_before=7)) == ["no dead letters to put", "7 were put before"]


def test_programs_get_the_whole_report_as_json() -> None:
    reason = {
        "stream": "orders",
        "reason": "ValueError: [red]no such order",
        "letters": 1234,
        "firstFailure": "2026-01-02T03:04:05.678Z",
        "lastFailure": "2026-01-03T00:00:00.000Z",
    }
    assert Report(path="/dead", found=FOUND, put=1240).as_json() == {
        "path": "/dead",
        "dryRun": False,
        "toPut": 1240,
        "put": 1240,
        "putBefore": 7,
        "withoutPayload": 1,
        "incomplete": 4,
        "unreadable": 2,
        "reasons": [reason],
        "moreReasons": 3,
    }
    dry = Report(path="/dead", found=FOUND, put=None).as_json()
    assert (dry["dryRun"], dry["put"]) == (True, 0)
