"""The columns of Protobuf messages, and the messages that have none. Payloads are in the contract
of schemes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import empty_pb2, struct_pb2, wrappers_pb2

from scheme import MalformedRecordError, ProtobufScheme, SchemeDefinitionError
from scheme.protobuf_scheme import TOO_MANY_MESSAGES, check_memory
from tests.support.outcomes.protobuf_cases import FIELDS, FULL, Old, Order, files, message_class
from tests.support.outcomes.scheme_agreement import record_of


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
        (("shop.Order",), "ProtobufScheme got a str"),
        ((b"\xff", "shop.Order"), "the descriptor set has no usable message shop.Order"),
        ((files(FIELDS).SerializeToString(), "shop.Ordre"), "no usable message shop.Ordre"),
    ],
)
def test_a_message_without_columns_is_refused(arguments: tuple[Any, ...], complaint: str) -> None:
    """When the scheme is made, in one sentence."""
    with pytest.raises(SchemeDefinitionError) as caught:
        ProtobufScheme(*arguments)
    assert complaint in str(caught.value)


WIDE = message_class(
    files(
        'name: "wide.proto" package: "wide" syntax: "proto2" '
        'message_type { name: "Wide" '
        'field { name: "n" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL } '
        'field { name: "more" number: 2 type: TYPE_MESSAGE type_name: ".wide.Item" '
        "label: LABEL_REPEATED } "
        'field { name: "group" number: 3 type: TYPE_GROUP type_name: ".wide.Item" '
        "label: LABEL_REPEATED } } "
        'message_type { name: "Item" '
        + "".join(
            f'field {{ name: "f{n}" number: {n} type: TYPE_INT64 label: LABEL_OPTIONAL }} '
            for n in range(1, 200)
        )
        + "}"
    ),
    "wide.Wide",
)
MOST = 256 * 1024 * 1024 // (200 + 199 * 40)


@pytest.mark.parametrize("message", [b"\x12\x00", b"\x1b\x1c"], ids=["with a length", "as a group"])
def test_messages_that_would_take_gigabytes_make_a_record_malformed(message: bytes) -> None:
    """Two bytes for each, of which one more is too many. The records beside it are read, also one
    that is as long and has other things in it.
    """
    scheme = ProtobufScheme(WIDE)
    unknown = b"\xa2\x06\x02\x12\x00" + b"\xa3\x06\x12\x00\xa4\x06"
    good = b"\x08\x07" * MOST + unknown + message
    hostile = message * (MOST + 1)
    (found,) = scheme.outcomes(pa.array([good, hostile]))
    assert found.field("malformed").to_pylist() == [None, TOO_MANY_MESSAGES]
    assert found.field("value")[0]["n"].as_py() == 7
    with pytest.raises(MalformedRecordError) as caught:
        scheme.decode(record_of(hostile))
    assert caught.value.reason == TOO_MANY_MESSAGES


def test_the_count_of_messages_leaves_damaged_bytes_to_the_parser() -> None:
    """Cut off or changed anywhere."""
    for at in range(len(FULL)):
        check_memory(FULL[:at], Order.DESCRIPTOR)
        for byte in (b"\x00", b"\x0b", b"\x0c", b"\xff"):
            check_memory(FULL[:at] + byte + FULL[at + 1 :], Order.DESCRIPTOR)
