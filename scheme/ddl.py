"""The DDL of a schema: its types, as immutable values that can be compared, pickled and shared, and
its parser. Spark's own parser needs a running JVM.

    schema  := field ("," field)*
    field   := name [":"] type ["NOT" "NULL"]
    type    := simple
             | DECIMAL [ "(" precision ["," scale] ")" ]
             | ARRAY "<" type ">"
             | MAP "<" STRING "," type ">"      (of `any_keys`, a type in the place of STRING)
             | STRUCT "<" field ("," field)* ">"
    name    := letters, digits and underscores, not beginning with a digit; or anything in backticks

Keywords are case-insensitive, names are not. Other parts of Spark's DDL (intervals, VARIANT,
COMMENT, DEFAULT) are errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scheme.errors import SchemeDefinitionError

INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
FLOATING = ("FLOAT", "DOUBLE")
SIMPLE = (
    "BOOLEAN",
    *INTEGER_BITS,
    *FLOATING,
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
)


def quoted(name: str) -> str:
    """A field name in the quoted form of DDL, which allows any character."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class SimpleType:
    """One of `SIMPLE`."""

    name: str

    @property
    def ddl(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    precision: int
    scale: int

    @property
    def ddl(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType:
    element: JsonType

    @property
    def ddl(self) -> str:
        return f"ARRAY<{self.element.ddl}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """In JSON, an object whose names are data: its keys are strings."""

    value: JsonType
    key: JsonType = SimpleType("STRING")

    @property
    def ddl(self) -> str:
        return f"MAP<{self.key.ddl}, {self.value.ddl}>"


@dataclass(frozen=True, slots=True)
class Field:
    """`required` is the DDL's NOT NULL: a record in which the field is missing or null is
    malformed.
    """

    name: str
    type: JsonType
    required: bool

    @property
    def ddl(self) -> str:
        return f"{quoted(self.name)} {self.type.ddl}"


@dataclass(frozen=True, slots=True)
class StructType:
    fields: tuple[Field, ...]

    @property
    def members(self) -> str:
        """The fields as DDL, without NOT NULL: the value column is null if the record is
        malformed.
        """
        return ", ".join(field.ddl for field in self.fields)

    @property
    def ddl(self) -> str:
        inner = ", ".join(f"{quoted(field.name)}: {field.type.ddl}" for field in self.fields)
        return f"STRUCT<{inner}>"


JsonType = SimpleType | DecimalType | ArrayType | MapType | StructType


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


def parse_ddl(ddl: str, *, any_keys: bool = False) -> StructType:
    """The schema of a record. `any_keys`: maps may have keys that JSON does not have. Raises
    `SchemeDefinitionError`, which names what was found and what is expected there.
    """
    parser = _Parser(ddl, any_keys=any_keys)
    struct = parser.members(end="")
    if parser.peek():
        raise parser.error("the end or ','")
    return struct


class _Parser:
    """A recursive-descent parser. The token of a quoted name keeps its leading backtick, so that it
    is never taken for a keyword.
    """

    def __init__(self, ddl: str, *, any_keys: bool) -> None:
        self._ddl = ddl
        self._any_keys = any_keys
        self._tokens = [
            "`" + match[1].replace("``", "`")
            if match[1]
            else match[2] or match[3] or match[4] or match[5]
            for match in _TOKEN.finditer(ddl)
        ]
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def error(self, expected: str) -> SchemeDefinitionError:
        found = repr(self.peek().lstrip("`")) if self.peek() else "the end"
        return SchemeDefinitionError(
            f"schema {self._ddl!r}: found {found} where {expected} is expected"
        )

    def members(self, end: str) -> StructType:
        fields = [self._field()]
        while self._accept(","):
            fields.append(self._field())
        if self.peek() != end:
            raise self.error(f"',' or {end!r}" if end else "',' or the end")
        seen: dict[str, str] = {}
        for name in (field.name for field in fields):
            # Spark resolves names case-insensitively, so it could not distinguish two names that
            # differ in case only.
            if name.lower() in seen:
                raise SchemeDefinitionError(
                    f"schema {self._ddl!r}: {seen[name.lower()]!r} and {name!r} are the same name "
                    "in Spark",
                    "rename one of them",
                )
            seen[name.lower()] = name
        return StructType(tuple(fields))

    def _field(self) -> Field:
        token = self.peek()
        if not (token.startswith("`") or token.isidentifier()):
            raise self.error("a field name")
        self._at += 1
        self._accept(":")
        data_type = self._type()
        required = self._accept("NOT")
        if required:
            self._expect("NULL")
        return Field(token.removeprefix("`"), data_type, required)

    def _type(self) -> JsonType:
        word = self.peek().upper()
        name = _SYNONYMS.get(word, word)
        if name in SIMPLE:
            self._at += 1
            return SimpleType(name)
        if name == "DECIMAL":
            self._at += 1
            return self._decimal()
        if name in ("ARRAY", "MAP", "STRUCT"):
            self._at += 1
            self._expect("<")
            nested = self._nested(name)
            self._expect(">")
            return nested
        raise self.error(f"a type ({', '.join(SIMPLE)}, DECIMAL, ARRAY, MAP or STRUCT)")

    def _nested(self, name: str) -> JsonType:
        if name == "ARRAY":
            return ArrayType(self._type())
        if name == "MAP" and self._any_keys:
            key = self._type()
            self._expect(",")
            return MapType(self._type(), key)
        if name == "MAP":
            self._expect("STRING")
            self._expect(",")
            return MapType(self._type())
        return self.members(end=">")

    def _decimal(self) -> DecimalType:
        precision, scale = 10, 0
        if self._accept("("):
            precision = self._number()
            if self._accept(","):
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            rule = f"the precision is 1 to {_MAX_PRECISION} and the scale at most the precision"
            raise SchemeDefinitionError(
                f"schema {self._ddl!r}: DECIMAL({precision},{scale}) is not a type", rule
            )
        return DecimalType(precision, scale)

    def _number(self) -> int:
        if not self.peek().isdecimal():
            raise self.error("a number")
        self._at += 1
        # Four digits are enough to be out of range; `int` refuses texts of thousands of digits.
        return int(self._tokens[self._at - 1][:4])

    def _accept(self, token: str) -> bool:
        accepted = self.peek().upper() == token
        self._at += accepted
        return accepted

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self.error(repr(token))
