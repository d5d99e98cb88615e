"""How PutRecords travels: the hooks on botocore's client that write the records of a request, and
read the outcomes of an answer, in place of botocore's serializer, validator and parser.

These walk the service's description for every member of every record, which takes more CPU than all
the rest of a put. The request and the answer are the same. botocore still signs and sends, and gets
all answers that are errors.
"""

from __future__ import annotations

from typing import Any

import msgspec

_RECORDS = "KinesisSpoutRecords"  # in the context of a request
_ANY = [{"Data": b"", "PartitionKey": "-"}]


def hook(client: Any) -> None:
    """Register the hooks on a client of botocore. The caller of `put_records` checks its records:
    only the service does so after it.
    """
    events = client.meta.events
    events.register("provide-client-params.kinesis.PutRecords", _set_aside)
    events.register("before-call.kinesis.PutRecords", _write)
    events.register("before-parse.kinesis.PutRecords", _read)


def _set_aside(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Let botocore see one record, of no size."""
    context[_RECORDS] = params["Records"]
    return params | {"Records": _ANY}


def _write(params: dict[str, Any], **_: Any) -> None:
    """Before the request is signed. msgspec writes bytes in base64, as the protocol has them."""
    members = msgspec.json.decode(params["body"]) | {"Records": params["context"][_RECORDS]}
    params["body"] = msgspec.json.encode(members)


def _read(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any
) -> None:
    """Hide the outcomes from botocore's parser, which gets errors, and what cannot be read."""
    if response_dict["status_code"] >= 300:
        return
    try:
        answer = msgspec.json.decode(response_dict["body"])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if isinstance(answer, dict):
        customized_response_dict |= answer
        response_dict["body"] = b"{}"
