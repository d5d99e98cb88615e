"""Records of the largest size that the service takes."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 1024 * 1024
LARGEST = 10 * MIB  # data and key
KEY = "k" * 8


def largest(number: int) -> bytes:
    """Random bytes that are as many as a record with key `KEY` may have. No two numbers have the
    same ones.
    """
    return Random(number).randbytes(LARGEST - len(KEY))  # noqa: S311  # not a secret


def digests(payloads: Iterable[Any]) -> list[str]:
    """Of the payloads, sorted: a failing comparison of the payloads themselves would print them."""
    return sorted(sha256(payload).hexdigest() for payload in payloads)


def take_large_records(client: Any, stream: str) -> None:
    """Raise the stream's maximum record size to the largest."""
    summary = client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
    client.update_max_record_size(StreamARN=summary["StreamARN"], MaxRecordSizeInKiB=10_240)
