"""The options of redrive, which values are refused, and its report for people and for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import typer

from kinesis_spout.config import AwsConfig
from kinesis_spout.errors import ConfigError
from spark_job.commands.redrive import connection_of, report_of, selection_of
from spark_job.dead_letter.redrive import Found, ReasonCount, Selection

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def selected(**given: Any) -> Selection:
    names = ("since", "until", "stream", "region")
    defaults: dict[str, Any] = {
        "reasons": (),
        "now_ms": int(NOW.timestamp()) * 1000,
    } | dict.fromkeys(names)
    return selection_of(**(defaults | given))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("-2h", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("2026-01-30", datetime(2026, 1, 30, tzinfo=UTC)),
        ("2026-01-30T10:00:00.250+02:00", datetime(2026, 1, 30, 8, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_times_are_written_as_in_other_options(text: str, time: datetime) -> None:
    """A time without a zone is UTC. Without options all letters are selected."""
    assert selected() == Selection()
    assert selected(since=text, until=NOW.isoformat()) == Selection(since=time, until=NOW)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"since": "LATEST"}, "--since"),
        ({"until": "yesterday"}, "--until"),
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
            "for reading; use the options for putting: region, endpointUrl",
        ),
        ({"regoin": "eu-central-1"}, "did you mean region"),
        ({"awsAccessKeyId": "AK"}, "awsSecretAccessKey|secret_access_key"),
    ],
)
def test_another_option_is_refused_by_its_name(options: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        connection_of({}, options)


def test_programs_get_the_whole_report_as_json() -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    reason = ReasonCount(
        target="orders", reason="odd", letters=1234, first_failure=time, last_failure=time
    )
    found = Found(
        to_put=1240,
        put_before=7,
        without_payload=1,
        incomplete=4,
        unreadable=2,
        reasons=(reason,),
        more_reasons=3,
    )
    assert report_of("/dead", found, put=None) == {
        "path": "/dead",
        "dryRun": True,
        "toPut": 1240,
        "put": 0,
        "putBefore": 7,
        "withoutPayload": 1,
        "incomplete": 4,
        "unreadable": 2,
        "reasons": [
            {
                "stream": "orders",
                "reason": "odd",
                "letters": 1234,
                "firstFailure": "2026-01-02T03:04:05.678Z",
                "lastFailure": "2026-01-02T03:04:05.678Z",
            }
        ],
        "moreReasons": 3,
    }
