"""The summary of a stream as the service wrote it.

botocore's parser drops what its own description of the service does not have: of one from before
2026 the record distribution strategy, and before October 2025 the maximum record size.
"""

from __future__ import annotations

from typing import Any

import msgspec

_BODY = "kinesis_spout.summary"
_SUMMARY = "StreamDescriptionSummary"


def hook(client: Any) -> None:
    """Have a client of botocore keep the body of DescribeStreamSummary for `summary_in`."""
    client.meta.events.register("before-parse.kinesis.DescribeStreamSummary", _keep_body)


def summary_in(answer: dict[str, Any]) -> dict[str, Any]:
    """The summary in an answer: its times as botocore parses them, and all that the service said.
    Raises KeyError, TypeError or ValueError for an incomplete one.
    """
    parsed: dict[str, Any] = answer[_SUMMARY]
    body = answer.get(_BODY)
    return parsed if body is None else msgspec.json.decode(body)[_SUMMARY] | parsed


def _keep_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    if response_dict["status_code"] < 300:
        customized_response_dict[_BODY] = response_dict["body"]
