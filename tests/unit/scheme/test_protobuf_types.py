"""The columns of Protobuf messages, and the messages that have none. Payloads are in the contract
of schemes.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import empty_pb2, struct_pb2, wrappers_pb2

from scheme import JsonScheme, ProtobufScheme, SchemeDefinitionError
from tests.support.outcomes.protobuf_cases import FIELDS, Old, Order, files


def test_each_field_has_the_type_that_holds_its_values() -> None:
    """A recursive message is followed as deep as asked; one without fields is left out."""
    assert ProtobufScheme(Order, recursion_depth=2).schema_ddl == (
        "`big` DECIMAL(20,0), `u32` BIGINT, `i32` INT, `weight` FLOAT, `kind` STRING, "
        "`at` TIMESTAMP, `names` ARRAY<STRING>, `counts` MAP<INT, BIGINT>, `note` STRING, "
        "`card` BINARY, `cash` BOOLEAN, `tree` STRUCT<`n`: BIGINT, `more`: ARRAY<STRUCT<"
        "`n`: BIGINT, `more`: ARRAY<STRUCT<`n`: BIGINT>>>>>"
    )
    assert ProtobufScheme(wrappers_pb2.UInt64Value).schema_ddl == "`value` DECIMAL(20,0)"
    assert ProtobufScheme(Old).schema_ddl == "`id` BIGINT, `size` DOUBLE, `text` STRING"


def test_a_class_its_descriptor_and_a_descriptor_set_are_the_same_scheme() -> None:
    """The first two are equal; a set may have more files, but it gives the same columns."""
    assert ProtobufScheme(Old) == ProtobufScheme(Old.DESCRIPTOR)
    written = ProtobufScheme(files(FIELDS).SerializeToString(), "shop.Order", recursion_depth=1)
    assert written.schema_ddl == ProtobufScheme(Order, recursion_depth=1).schema_ddl


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((Order,), "shop.Tree contains itself at shop.Order.tree.more"),
        ((struct_pb2.Struct,), "google.protobuf.Struct contains itself"),
        ((empty_pb2.Empty,), "google.protobuf.Empty has no fields"),
        (("shop.Order",), "ProtobufScheme was given a str"),
        ((b"\xff", "shop.Order"), "the descriptor set has no usable message shop.Order"),
        ((files(FIELDS).SerializeToString(), "shop.Ordre"), "no usable message shop.Ordre"),
    ],
)
def test_a_message_without_columns_is_refused(arguments: tuple[Any, ...], complaint: str) -> None:
    """When the scheme is made, in one sentence."""
    with pytest.raises(SchemeDefinitionError) as caught:
        ProtobufScheme(*arguments)
    assert complaint in str(caught.value)


def test_json_has_no_maps_with_other_keys_than_strings() -> None:
    """Those of Protobuf may be numbers, which names of JSON cannot be."""
    with pytest.raises(SchemeDefinitionError, match="'STRING' is expected"):
        JsonScheme("m MAP<INT, INT>")
