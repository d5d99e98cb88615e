"""What to do about an error of the service."""

from __future__ import annotations

import pytest

from kinesis_spout.service.faults import missing_right

ARN = "arn:aws:kinesis:eu-west-1:1:stream/orders"
REFUSED = "User: u is not authorized to perform:"
WHO = "to the role or user of these credentials (IAM)"


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (
            f"{REFUSED} kinesis:GetRecords on resource: {ARN}, because no policy allows it",
            f"allow kinesis:GetRecords on {ARN} {WHO}",
        ),
        (f"{REFUSED} kms:Decrypt on resource: x.", f"allow kms:Decrypt {WHO}"),
        ("Rate exceeded for shard 1", None),
    ],
)
def test_the_right_that_iam_names_is_the_one_to_allow(message: str, remedy: str | None) -> None:
    """A resource that is no ARN is not repeated."""
    assert missing_right(message) == remedy
