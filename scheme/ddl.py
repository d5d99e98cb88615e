"""The DDL of a schema as Arrow types. Spark's own parser needs a running JVM.

    schema  := field ("," field)*
    field   := name [":"] type ["NOT" "NULL"]
    type    := simple
             | DECIMAL [ "(" precision ["," scale] ")" ]
             | ARRAY "<" type ">"
             | MAP "<" STRING "," type ">"         (a type in the place of STRING: `arrow_struct`)
             | STRUCT "<" field ("," field)* ">"
    name    := letters, digits and underscores, not beginning with a digit; or anything in backticks

Keywords are case-insensitive, names are not. Other parts of Spark's DDL (intervals, VARIANT,
COMMENT, DEFAULT) are errors. Arrow's types stand for those of the DDL one to one.
"""

from __future__ import annotations

import re
from functools import cache

import pyarrow as pa

from scheme.errors import SchemeDefinitionError

SIMPLE: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_NAMES = {data_type: name for name, data_type in SIMPLE.items()}
_TOKEN = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|([<>(),:])|(\S))", re.ASCII
)
_SYNONYMS = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}
_MAX_PRECISION = 38


def parse_ddl(ddl: str) -> pa.StructType:
    """The struct of a JSON record. A field that the DDL says NOT NULL of is not nullable. Raises
    `SchemeDefinitionError`, which names what was found and what is expected there.
    """
    return _Parser(ddl, is_json=True).schema()


@cache
def arrow_struct(ddl: str) -> pa.StructType:
    """The struct of a schema's fields, all of them nullable. Maps may have keys that JSON does not
    have. Raises `SchemeDefinitionError`.
    """
    return _Parser(ddl, is_json=False).schema()


def array_of(element: pa.DataType) -> pa.ListType:
    """The type of an ARRAY, with Spark's name for its elements."""
    return pa.list_(pa.field("element", element))


def ddl_of(data_type: pa.DataType) -> str:
    """The DDL of a type, without NOT NULL: the value column is null if the record is malformed."""
    if pa.types.is_struct(data_type):
        inner = ", ".join(f"{quoted(field.name)}: {ddl_of(field.type)}" for field in data_type)
        return f"STRUCT<{inner}>"
    if pa.types.is_map(data_type):
        return f"MAP<{ddl_of(data_type.key_type)}, {ddl_of(data_type.item_type)}>"
    if pa.types.is_list(data_type):
        return f"ARRAY<{ddl_of(data_type.value_type)}>"
    if pa.types.is_decimal(data_type):
        return f"DECIMAL({data_type.precision},{data_type.scale})"
    return _NAMES[data_type]


def members_ddl(struct: pa.StructType) -> str:
    """The fields of a struct as the DDL of a schema."""
    return ", ".join(f"{quoted(field.name)} {ddl_of(field.type)}" for field in struct)


def quoted(name: str) -> str:
    """A field name in the quoted form of DDL, which allows any character."""
    return "`" + name.replace("`", "``") + "`"


class _Parser:
    """A recursive-descent parser. The token of a quoted name keeps its leading backtick, so that it
    is never taken for a keyword.
    """

    def __init__(self, ddl: str, *, is_json: bool) -> None:
        self._ddl = ddl
        self._is_json = is_json
        self._tokens = [
            "`" + match[1].replace("``", "`")
            if match[1]
            else match[2] or match[3] or match[4] or match[5]
            for match in _TOKEN.finditer(ddl)
        ]
        self._at = 0

    def schema(self) -> pa.StructType:
        struct = self._members(end="")
        if self._peek():
            raise self._error("the end or ','")
        return struct

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _error(self, expected: str) -> SchemeDefinitionError:
        found = repr(self._peek().lstrip("`")) if self._peek() else "the end"
        return SchemeDefinitionError(
            f"schema {self._ddl!r}: found {found} where {expected} is expected"
        )

    def _members(self, end: str) -> pa.StructType:
        fields = [self._field()]
        while self._accept(","):
            fields.append(self._field())
        if self._peek() != end:
            raise self._error(f"',' or {end!r}" if end else "',' or the end")
        seen: dict[str, str] = {}
        for name in (field.name for field in fields):
            # Spark resolves names case-insensitively, so it could not distinguish two names that
            # differ in case only.
            if name.lower() in seen:
                raise SchemeDefinitionError(
                    f"schema {self._ddl!r}: {seen[name.lower()]!r} and {name!r} are the same name "
                    "in Spark",
                    f"rename the field {name}",
                )
            seen[name.lower()] = name
        return pa.struct(fields)

    def _field(self) -> pa.Field:
        token = self._peek()
        if not (token.startswith("`") or token.isidentifier()):
            raise self._error("a field name")
        self._at += 1
        self._accept(":")
        data_type = self._type()
        required = self._accept("NOT")
        if required:
            self._expect("NULL")
        return pa.field(token.removeprefix("`"), data_type, not (required and self._is_json))

    def _type(self) -> pa.DataType:
        word = self._peek().upper()
        name = _SYNONYMS.get(word, word)
        if name not in (*SIMPLE, "DECIMAL", "ARRAY", "MAP", "STRUCT"):
            raise self._error(f"a type ({', '.join(SIMPLE)}, DECIMAL, ARRAY, MAP or STRUCT)")
        self._at += 1
        if name in SIMPLE:
            return SIMPLE[name]
        if name == "DECIMAL":
            return self._decimal()
        self._expect("<")
        if name == "STRUCT":
            nested = self._members(end=">")
        elif name == "ARRAY":
            nested = array_of(self._type())
        else:
            if self._is_json:
                self._expect("STRING")
            key = pa.string() if self._is_json else self._type()
            self._expect(",")
            nested = pa.map_(key, self._type())
        self._expect(">")
        return nested

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            rule = (
                f"use a precision from 1 to {_MAX_PRECISION}, and a scale that is at most the "
                "precision"
            )
            raise SchemeDefinitionError(
                f"schema {self._ddl!r}: DECIMAL({precision},{scale}) is not a type of Spark", rule
            )
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        if not self._peek().isdecimal():
            raise self._error("a number")
        self._at += 1
        # Four digits are enough to be out of range; `int` refuses texts of thousands of digits.
        return int(self._tokens[self._at - 1][:4])

    def _accept(self, token: str) -> bool:
        accepted = self._peek().upper() == token
        self._at += accepted
        return accepted

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._error(repr(token))
