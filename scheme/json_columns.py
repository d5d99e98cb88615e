r"""Decodes JSON texts by a schema in native Spark columns. `JsonScheme` has the rules, and
`scheme.json_scheme` does the same in Python.

Why not `from_json` with the record's own types. It hides faults that the scheme must detect (seen
on Spark 4.3, PERMISSIVE with a corrupt-record column): it ignores text after the first value, and
it makes 128 the TINYINT -128, 1.234 the DECIMAL(5,2) 1.23, 1e39 an infinite FLOAT, a number or an
object a STRING, "\ud800" a question mark, and the empty text a null. So `from_json` reads VARIANTs
here. They keep each value as it was written, and refuse duplicate keys and lone surrogates. Each
value is then checked against its type.

Text after the first value. The payload is parsed as the first element of an array whose second
element is the payload's own hash. Text after the payload's first value would add a third element or
be an error. To close the array early and open another, it would have to contain its own hash.

No expression twice. Columns have no local variables, and Spark may evaluate an expression that is
used twice two times. `_let` binds a column to a name by a transform over an array of one element.
So each JSON text is parsed once, and each value is looked up once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  # its documented short name; this module is imported inside a method only

from scheme.ddl import ddl_of, quoted
from scheme.json_rules import (
    FIRST_TIME_US,
    JACKSON_MAX_DEPTH,
    LAST_TIME_US,
    MAX_DEPTH,
    NOT_AN_OBJECT,
    NOT_JSON,
    TEXT_FORMS,
    decimal_form,
    mismatch,
    missing,
)
from scheme.record_scheme import outcome_column

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    _Pair = Callable[[Column, Column, Column], Column]

_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def json_column(text: Column, text_reason: Column, schema: pa.StructType) -> Column:
    """The scheme's `{value, malformed}` column of a text column. In rows where `text_reason` is
    set, the text is not parsed and `malformed` is that reason.
    """

    def of_text(reason: Column) -> Column:
        return _let(
            F.when(reason.isNull(), text), lambda checked: _json_outcome(checked, reason, schema)
        )

    return _let(text_reason, of_text)


def _json_outcome(text: Column, text_reason: Column, schema: pa.StructType) -> Column:
    digest = F.xxhash64(text)
    enclosed = F.concat(F.lit("["), text, F.lit(","), digest.cast("string"), F.lit("]"))

    def outcome(elements: Column) -> Column:
        is_one_value = (F.size(elements) == 2) & (
            F.try_variant_get(F.get(elements, 1), "$", "BIGINT") == digest
        )
        is_json = F.coalesce(is_one_value & ~_too_deep(text), _false())
        return _let(
            _node(F.get(elements, 0), schema, ""),
            lambda root: _root_outcome(root, text_reason, is_json),
        )

    return _let(F.from_json(enclosed, "ARRAY<VARIANT>", _STRICT), outcome)


def _root_outcome(root: Column, text_reason: Column, is_json: Column) -> Column:
    malformed = F.coalesce(text_reason, F.when(~is_json, F.lit(NOT_JSON)), root["malformed"])
    return _let(malformed, lambda reason: outcome_column(root["value"], reason))


def _too_deep(text: Column) -> Column:
    """Whether a valid JSON text has more levels than allowed."""
    # Spark has no function for the depth. With levels added around it, such a text exceeds
    # Jackson's own limit and is no longer parsed. The test is made only if there are enough
    # brackets for it.
    around = JACKSON_MAX_DEPTH - MAX_DEPTH
    padded = F.concat(F.lit("[" * around), text, F.lit("]" * around))
    bare_bytes = F.octet_length(
        F.replace(F.replace(text, F.lit("["), F.lit("")), F.lit("{"), F.lit(""))
    )
    may_be = F.octet_length(text) - bare_bytes > MAX_DEPTH
    return F.when(may_be, F.json_array_length(padded).isNull()).otherwise(_false())


def _no_reason() -> Column:
    return F.lit(None).cast("string")


def _false() -> Column:
    return F.lit(False)  # noqa: FBT003  # a column's literal


def _let(bound: Column, body: Callable[[Column], Column]) -> Column:
    return F.get(F.transform(F.array(bound), body), 0)


def _node(found: Column, data_type: pa.DataType, path: str, *, required: bool = False) -> Column:
    """The `{value, malformed}` column of one VARIANT, which is SQL NULL if the value is missing.

    `found` is used several times, so it must be cheap. In malformed rows the value is undefined.
    The root has the empty path, and must be an object.
    """
    absent = (
        F.lit(NOT_AN_OBJECT) if not path else F.lit(missing(path)) if required else _no_reason()
    )
    wrong = F.lit(mismatch(path, ddl_of(data_type)) if path else NOT_AN_OBJECT)

    def pair(fitted: Column, value: Column, inner: Column) -> Column:
        is_absent = found.isNull() | F.is_variant_null(found)
        malformed = F.when(fitted.isNotNull(), inner).when(is_absent, absent).otherwise(wrong)
        return F.struct(value.alias("value"), malformed.alias("malformed"))

    if pa.types.is_struct(data_type):
        variants = ", ".join(f"{quoted(field.name)}: VARIANT" for field in data_type)
        return _let(
            F.try_variant_get(found, "$", f"STRUCT<{variants}>"),
            lambda members: _struct(members, data_type, path, pair),
        )
    if pa.types.is_list(data_type):
        listed = F.try_variant_get(found, "$", "ARRAY<VARIANT>")
        return _let(
            F.transform(listed, lambda item: _node(item, data_type.value_type, path + "[]")),
            lambda nodes: pair(nodes, nodes["value"], _first(nodes["malformed"])),
        )
    if pa.types.is_map(data_type):
        mapped = F.try_variant_get(found, "$", "MAP<STRING, VARIANT>")
        return _let(
            F.transform_values(
                mapped, lambda _, item: _node(item, data_type.item_type, path + "{}")
            ),
            lambda nodes: pair(
                nodes,
                F.transform_values(nodes, lambda _, node: node["value"]),
                _first(F.map_values(nodes)["malformed"]),
            ),
        )
    return _let(_scalar(found, data_type), lambda scalar: pair(scalar, scalar, _no_reason()))


def _struct(members: Column, struct: pa.StructType, path: str, pair: _Pair) -> Column:
    prefix = path + "." if path else ""
    nodes = [
        _node(members[field.name], field.type, prefix + field.name, required=not field.nullable)
        for field in struct
    ]

    def of_nodes(fitted: Column) -> Column:
        value = F.struct(*(fitted[name]["value"].alias(name) for name in struct.names))
        return pair(
            members,
            F.when(members.isNotNull(), value),
            F.coalesce(*(fitted[name]["malformed"] for name in struct.names)),
        )

    named = (node.alias(name) for node, name in zip(nodes, struct.names, strict=True))
    return _let(F.struct(*named), of_nodes)


def _first(reasons: Column) -> Column:
    return F.get(F.filter(reasons, lambda reason: reason.isNotNull()), 0)


def _scalar(variant: Column, data_type: pa.DataType) -> Column:
    """The VARIANT's value in the type, or null if it does not fit. Every conversion is a `try_`
    function, so ANSI mode does not matter.
    """
    name = ddl_of(data_type)
    kind = F.schema_of_variant(variant)
    # The kind of a DECIMAL has its precision after the name; the first six letters are enough.
    number = F.substring(kind, 1, len("BIGINT"))
    if pa.types.is_decimal(data_type):
        plain = F.when(number.isin("BIGINT", "DECIMA"), F.try_variant_get(variant, "$", "STRING"))
        form = decimal_form(data_type.scale)
        return _let(plain, lambda text: F.when(_matches(text, form), text.try_cast(name)))
    if pa.types.is_boolean(data_type):
        return F.when(kind == "BOOLEAN", F.try_variant_get(variant, "$", "BOOLEAN"))
    if pa.types.is_integer(data_type):
        return F.when(kind == "BIGINT", F.try_variant_get(variant, "$", name))
    if pa.types.is_floating(data_type):
        # Adding zero removes the sign of a zero: a VARIANT drops that of -0.0 but keeps that of
        # -0e0.
        finite = F.when(
            number.isin("BIGINT", "DECIMA", "DOUBLE"),
            F.try_variant_get(variant, "$", "DOUBLE") + F.lit(0.0),
        )
        return _let(
            finite.cast(name),
            lambda rounded: F.when(F.abs(rounded) < F.lit(math.inf), rounded),
        )
    text = F.when(kind == "STRING", F.try_variant_get(variant, "$", "STRING"))
    return text if name == "STRING" else _let(text, lambda bound: _from_text(bound, name))


def _from_text(text: Column, name: str) -> Column:
    fits = _matches(text, TEXT_FORMS[name])
    if name == "BINARY":
        return F.when(fits & (F.length(text) % 4 == 0), F.try_to_binary(text, F.lit("base64")))
    if name != "TIMESTAMP":
        return F.when(fits, text.try_cast(name))
    return _let(
        # TIMESTAMP may mean TIMESTAMP_NTZ (spark.sql.timestampType), which drops the offset.
        F.when(fits, text.try_cast("TIMESTAMP_LTZ")),
        lambda moment: F.when(F.unix_micros(moment).between(FIRST_TIME_US, LAST_TIME_US), moment),
    )


def _matches(text: Column, form: str) -> Column:
    return text.rlike(f"\\A(?:{form})\\z")
