"""The columns of Avro schemas, and the schemas that have none. Payloads are in the contract of
schemes.
"""

from __future__ import annotations

import sys
import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from scheme import AvroScheme, MalformedRecordError, SchemeDefinitionError
from scheme.avro_scheme import TOO_MANY_VALUES, avro_reader
from tests.support.outcomes.avro_cases import written
from tests.support.outcomes.scheme_agreement import record_of


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
        ({"type": "fixed", "name": "F", "size": -1}, "the Avro type fixed at 'value' has size -1"),
        (record({"type": "fixed", "name": "F", "size": "x"}), "type fixed at 'f0' has size 'x'"),
        (record(["null", "R"]), "recursive: R contains itself at 'f0'"),
        (record({"type": "array", "items": record({"type": "map", "values": "R"}, name="X")}),
         "recursive: R contains itself at 'f0[].f0{}'"),
        (record({"type": "array", "items": "null"}), "an array at 'f0' whose items take no bytes"),
        (record({"type": "array", "items": record("null", name="X")}), "whose items take no bytes"),
        (record("null"), "the Avro field 'f0' has only the type null"),
        (record(), "the Avro record R has no fields"),
        (record(["int", "long", "string"]), "the Avro union at 'f0' has two number types"),
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


def array(items: Any) -> dict[str, Any]:
    return record({"type": "array", "items": items})


def map_of(values: Any) -> dict[str, Any]:
    return record({"type": "map", "values": values})


ONE = record(["null", "int"], name="Item")
THIRTY = record(*[["null", "int"]] * 30, name="Item")
NEWER = ONE | {
    "fields": ONE["fields"]
    + [{"name": f"new{index}", "type": "long", "default": 1000} for index in range(30)]
}
RENAMED = ONE | {"fields": [{"name": "f", "aliases": ["f0"], "type": ["null", "int"]}]}
NESTED = record(ONE, name="Outer")


@pytest.mark.parametrize(
    ("schema", "reader_schema", "items", "values"),
    [
        (array(ONE), None, [{"f0": None}] * 20_000, 1),
        (array(THIRTY), None, [dict.fromkeys(f"f{n}" for n in range(30))] * 2000, 30),
        (array(ONE), array(NEWER), [{"f0": None}] * 2000, 1),
        (array(ONE), array(RENAMED), [{"f0": None}] * 20_000, 1),
        (array(NESTED), None, [{"f0": {"f0": None}}] * 20_000, 1),
        (array(["null", ONE]), None, [{"f0": None}] * 20_000, 2),
        (array({"type": "array", "items": "int"}), None, [[]] * 20_000, 1),
        (array({"type": "map", "values": "int"}), None, [{}] * 20_000, 1),
        (map_of(ONE), None, {f"{n:05}": {"f0": None} for n in range(20_000)}, 3),
    ],
)
def test_small_items_take_the_memory_that_they_are_reckoned_to_take(
    schema: Any, reader_schema: Any, items: Any, values: int
) -> None:
    """Not much more, for hostile records, and a quarter at least, for good ones. `values`: of an
    item, which has the smallest ones.
    """
    scheme = AvroScheme(schema, reader_schema)
    reader = avro_reader(scheme.schema, scheme.reader_schema)
    payload = written(schema, {"f0": items})
    tracemalloc.start()
    value = reader.value(payload)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert value
    reckoned = values * len(items) / reader.max_values * 256 * 1024 * 1024
    assert reckoned / 4 < taken < reckoned * 1.2


def test_items_that_would_take_gigabytes_make_a_record_malformed() -> None:
    """A byte for each, of which one more is too many. The records beside it are read. Scalars take
    little, so an array of ten million is good.
    """
    scheme = AvroScheme(array(ONE), array(NEWER))
    most = avro_reader(scheme.schema, scheme.reader_schema).max_values
    good = written(array(ONE), {"f0": [{"f0": None}]})
    hostile = written(array("int"), {"f0": [0] * most})
    with pytest.raises(MalformedRecordError) as caught:
        scheme.decode(record_of(hostile))
    assert caught.value.reason == TOO_MANY_VALUES
    (found,) = scheme.outcomes(pa.array([good, hostile, good]))
    assert found.field("malformed").to_pylist() == [None, TOO_MANY_VALUES, None]
    scalars = AvroScheme(array(["null", "int"]))
    assert avro_reader(scalars.schema, None).max_values > 10 * 1024 * 1024


@pytest.mark.parametrize("wrap", ["plain", "list", "map", "nullable"])
def test_a_default_of_a_record_is_completed_by_the_defaults_of_its_fields(wrap: str) -> None:
    """Record by record, side by side, and where fastavro reads a batch."""
    inner = {
        "type": "record",
        "name": "Inner",
        "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 5}],
    }
    schema, default, expected = {
        "plain": (inner, {"x": 1}, {"x": 1, "y": 5}),
        "list": ({"type": "array", "items": inner}, [{"x": 1}], [{"x": 1, "y": 5}]),
        "map": ({"type": "map", "values": inner}, {"k": {"x": 1}}, [("k", {"x": 1, "y": 5})]),
        "nullable": ([inner, "null"], {"x": 1}, {"x": 1, "y": 5}),
    }[wrap]
    added = {"name": "added", "type": schema, "default": default}
    own = {"name": "f0", "type": "int"}
    for field in (own, own | {"name": "renamed", "aliases": ["f0"]}):  # of which fastavro reads one
        reader = {"type": "record", "name": "R", "fields": [field, added]}
        scheme = AvroScheme(record("int"), reader)
        payload = written(record("int"), {"f0": 7})
        (outcome,) = scheme.outcomes(pa.array([payload], pa.binary()))
        assert outcome[0].as_py()["value"]["added"] == expected
        assert outcome[0].as_py()["malformed"] is None
        alone = scheme.decode(record_of(payload))[1]
        assert (list(alone.items()) if wrap == "map" else alone) == expected


def test_a_schema_is_the_same_as_text_and_as_a_dict() -> None:
    """Equal schemes are interchangeable as keys of caches."""
    assert AvroScheme('{"type": "array", "items": "int"}') == AvroScheme(
        {"type": "array", "items": "int"}
    )


def test_without_fastavro_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SchemeDefinitionError, match="with its pip extra avro"):
        AvroScheme(record("int", name="NotReadBefore"))
