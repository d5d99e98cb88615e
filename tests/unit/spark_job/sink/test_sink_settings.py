"""The sink's options."""

from __future__ import annotations

import pytest

from kinesis_spout.errors import ConfigError
from spark_job.sink.sink_settings import SinkSettings


def test_options_are_matched_in_any_case_and_have_defaults() -> None:
    settings = SinkSettings.from_options({"streamname": "orders", "ENDPOINTURL": "http://e:1"})
    assert settings.stream is not None
    assert settings.stream.name == "orders"
    assert settings.aws.endpoint_url == "http://e:1"
    assert (settings.ordering, settings.requests_in_flight, settings.retry_for_ms) == (
        "none",
        4,
        300_000,
    )


def test_the_stream_may_be_left_to_the_rows() -> None:
    assert SinkSettings.from_options({}).stream is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingPosition": "LATEST"}, "option startingPosition is not known"),
        ({"retry_for": "5m"}, "did you mean retryFor"),
        ({"ordering": "total"}, "ordering is 'total'; give one of none, key"),
        ({"streamName": "a", "streamArn": "arn:aws:kinesis:eu-west-1:1:stream/a"}, "both given"),
        ({"requestsInFlight": "0"}, "at least 1"),
        ({"awsAccessKeyId": "a"}, "awsSecretAccessKey"),
    ],
)
def test_a_bad_option_is_one_sentence(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SinkSettings.from_options(options)
