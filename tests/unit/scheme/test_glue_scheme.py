"""What the contract of schemes does not show: which way the columns are made, the index of a
Protobuf message, and a registry that does not answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from aws_schema_registry.codec import encode

from scheme import (
    AvroScheme,
    GlueScheme,
    SchemaVersion,
    SchemeDefinitionError,
    SchemeUnavailableError,
)
from scheme.glue_scheme import message_paths
from tests.support.outcomes.glue_cases import (
    FIRST,
    OLD_PROTO,
    ORDER_1,
    REGISTRY,
    V1,
)
from tests.support.outcomes.scheme_agreement import record_of


@dataclass(frozen=True)
class Unreachable:
    def schema_version(self, version_id: str) -> SchemaVersion | None:
        raise SchemeUnavailableError("the registry does not answer", "try again")


def test_a_registry_that_does_not_answer_makes_no_record_malformed() -> None:
    """The error passes through both halves. A record without a frame needs no registry."""
    scheme = GlueScheme(AvroScheme(ORDER_1), Unreachable(), unframed="raw")
    assert scheme.decode(record_of(FIRST)) == (7, "secret")
    with pytest.raises(SchemeUnavailableError):
        scheme.decode(record_of(encode(FIRST, V1)))
    with pytest.raises(SchemeUnavailableError):
        list(scheme.outcomes(pa.array([FIRST, encode(FIRST, V1)], pa.binary())))


def test_a_rule_for_unframed_records_is_one_of_two() -> None:
    with pytest.raises(SchemeDefinitionError, match="unframed is 'drop'"):
        GlueScheme(AvroScheme(ORDER_1), REGISTRY, unframed="drop")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    ("definition", "paths"),
    [
        (OLD_PROTO, ["Aardvark", "Old", "Old.Alone", "Old.Alone.ByNameEntry"]),
        # The example of AWS's MessageIndexFinder.
        ("message B { message C {} message A { message D {} } }", ["B", "B.A", "B.A.D", "B.C"]),
        ("message A { optional group G = 1 { optional int32 n = 2; } }", ["A", "A.G"]),
        ("/* message X {} */ service S { rpc message (A) returns (B) {} } message A {}", ["A"]),
        ("enum E { message = 0; } message M { oneof o { string message = 1; } }", ["M"]),
        ("}}{{{ message", []),
        ("", []),
    ],
)
def test_the_messages_of_a_file_are_numbered_by_their_sorted_names(
    definition: str, paths: list[str]
) -> None:
    """Those of maps and groups count. Comments, texts and names that are keywords elsewhere do
    not.
    """
    assert list(message_paths(definition)) == paths
