"""The types of a JSON scheme, as immutable values that can be compared, pickled and shared."""

from __future__ import annotations

from dataclasses import dataclass

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
