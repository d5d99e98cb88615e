"""The columns of Avro schemas, and the schemas that have none. Payloads are in the contract of
schemes.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from scheme import AvroScheme, SchemeDefinitionError


def record(*fields: Any, name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{index}", "type": field} for index, field in enumerate(fields)],
    }


def logical(base: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def enum(name: str) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": ["A"]}


@pytest.mark.parametrize(
    ("schema", "ddl"),
    [
        ("boolean", "BOOLEAN"),
        ("int", "INT"),
        ("long", "BIGINT"),
        ("float", "FLOAT"),
        ("double", "DOUBLE"),
        ("bytes", "BINARY"),
        ("string", "STRING"),
        ({"type": "fixed", "name": "F", "size": 3}, "BINARY"),
        (enum("E"), "STRING"),
        (logical("int", "date"), "DATE"),
        (logical("long", "timestamp-millis"), "TIMESTAMP"),
        (logical("long", "timestamp-micros"), "TIMESTAMP"),
        (logical("long", "local-timestamp-millis"), "TIMESTAMP_NTZ"),
        (logical("long", "local-timestamp-micros"), "TIMESTAMP_NTZ"),
        (logical("bytes", "decimal", precision=9, scale=2), "DECIMAL(9,2)"),
        (logical("string", "uuid"), "STRING"),
        # Others are ignored, as from_avro ignores them, and so are invalid ones.
        (logical("int", "time-millis"), "INT"),
        (logical("long", "time-micros"), "BIGINT"),
        (logical("long", "timestamp-nanos"), "BIGINT"),
        (logical("int", "timestamp-millis"), "INT"),
        (logical("bytes", "decimal", precision=39), "BINARY"),
        ({"type": "array", "items": ["null", "int"]}, "ARRAY<INT>"),
        ({"type": "map", "values": {"type": "array", "items": "int"}}, "MAP<STRING, ARRAY<INT>>"),
        (record("int", "string", name="In"), "STRUCT<`f0`: INT, `f1`: STRING>"),
        (["null", "string"], "STRING"),
        (["string"], "STRING"),
        (["long", "null", "int"], "BIGINT"),
        (["float", "double"], "DOUBLE"),
        (["null", "string", "long"], "STRUCT<`member0`: STRING, `member1`: BIGINT>"),
    ],
)
def test_a_field_has_the_type_that_from_avro_gives_it(schema: Any, ddl: str) -> None:
    """Of a record's field, and of a payload that is no record: its column is `value`."""
    assert AvroScheme(record(schema)).schema_ddl == f"`f0` {ddl}"
    if not (isinstance(schema, dict) and schema["type"] == "record"):
        assert AvroScheme(schema).schema_ddl == f"`value` {ddl}"


def test_a_named_type_is_used_again_by_its_name() -> None:
    """Also in a namespace, and with the reader's schema deciding the columns."""
    inner = record("int", name="In") | {"namespace": "shop"}
    scheme = AvroScheme(record(inner, "shop.In", {"type": "array", "items": "shop.In"}))
    struct = "STRUCT<`f0`: INT>"
    assert scheme.schema_ddl == f"`f0` {struct}, `f1` {struct}, `f2` ARRAY<{struct}>"
    assert AvroScheme(record(inner, "string"), record(inner)).schema_ddl == f"`f0` {struct}"


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("{", "the Avro schema is not valid: JSONDecodeError"),
        ({"type": "array"}, "the Avro schema is not valid: KeyError"),
        ("unknown", "the Avro schema is not valid: UnknownType"),
        (record(["null", "R"]), "recursive: R contains itself at 'f0'"),
        (record({"type": "array", "items": record({"type": "map", "values": "R"}, name="X")}),
         "recursive: R contains itself at 'f0[].f0{}'"),
        (record({"type": "array", "items": "null"}), "items without bytes at 'f0'"),
        (record({"type": "array", "items": record("null", name="X")}), "items without bytes"),
        (record("null"), "the Avro field 'f0' has no type but null"),
        (record(), "the Avro record R has no fields"),
        (record(["int", "long", "string"]), "the Avro union at 'f0' has two types of numbers"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"},
          {"name": "A", "type": "int"}]}, "'a' and 'A' are the same name in Spark"),
    ],
)  # fmt: skip
def test_a_schema_without_columns_is_refused_in_one_sentence(schema: Any, complaint: str) -> None:
    """When the scheme is made, not at the first record. A recursive one could make a payload
    overflow the stack, and items without bytes could fill the memory.
    """
    with pytest.raises(SchemeDefinitionError) as caught:
        AvroScheme(schema)
    assert complaint in str(caught.value)


def test_a_schema_is_the_same_as_text_and_as_a_dict() -> None:
    """Equal schemes are interchangeable as keys of caches."""
    assert AvroScheme('{"type": "array", "items": "int"}') == AvroScheme(
        {"type": "array", "items": "int"}
    )


def test_without_fastavro_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SchemeDefinitionError, match="with its extra avro"):
        AvroScheme(record("int", name="NotReadBefore"))
