"""Converts what the user's function returned into Arrow columns.

An output that does not fit the schema fails its own record, never the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row

from kinesis_spout.errors import ConfigError, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_ACCEPTED = "a dict, Row, tuple or dataclass with the schema's columns, a list of these, or None"


class WrongOutputError(Exception):
    """An output does not fit the schema.

    The text becomes the record's reason. It holds no value, since values may be secret.
    """


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the user's schema. `ddl` is its type in Spark's words, for messages."""

    name: str
    type: pa.DataType
    ddl: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """The schema of a function's rows. It is made on the driver and used on the executors."""

    columns: tuple[OutputColumn, ...]

    def __post_init__(self) -> None:
        names = [column.name.lower() for column in self.columns]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if not names or doubled is not None:
            raise ConfigError(
                f"the schema given to batch.map_records has column {doubled} twice; keep one"
                if doubled
                else "the schema given to batch.map_records has no column; give at least one"
            )

    def rows(self, output: object) -> list[dict[str, Any]]:
        """The output of one call as rows.

        Raises `WrongOutputError`, or what the user's iterator raises.
        """
        if output is None:
            return []
        row = self._row(output)
        if row is not None:
            return [row]
        if isinstance(output, str | bytes | bytearray) or not isinstance(output, Iterable):
            raise WrongOutputError(
                f"the function returned {_kind(output)}; it may return {_ACCEPTED}"
            )
        return [self._item(item) for item in output]

    def _item(self, item: object) -> dict[str, Any]:
        row = self._row(item)
        if row is None:
            raise WrongOutputError(
                f"the function returned {_kind(item)} among its rows; it may return {_ACCEPTED}"
            )
        return row

    def _row(self, item: object) -> dict[str, Any] | None:
        if type(item) is dict:
            return item
        if isinstance(item, Row) and hasattr(item, "__fields__"):
            return item.asDict()
        if isinstance(item, tuple):
            if len(item) != len(self.columns):
                raise WrongOutputError(
                    f"the function returned a tuple of {len(item)}; the schema has "
                    f"{len(self.columns)} columns"
                )
            return {column.name: value for column, value in zip(self.columns, item, strict=True)}
        if isinstance(item, Mapping):
            return dict(item)
        if is_dataclass(item) and not isinstance(item, type):
            return {field.name: getattr(item, field.name) for field in fields(item)}
        return None

    def check(self, rows: Sequence[dict[str, Any]]) -> None:
        """Raise `WrongOutputError` unless all rows fit the schema."""
        _, bad = self.build(rows, [0] * len(rows))
        if bad:
            raise WrongOutputError(bad[0])

    def build(
        self, rows: Sequence[dict[str, Any]], owners: Sequence[int]
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """The rows as columns, and the reasons, by owner, why its rows are left out.

        `owners[i]` is the record that row i came from. One wrong row leaves out all rows of its
        owner.
        """
        arrays = self._arrays(rows)
        if arrays is not None:
            return arrays, {}
        bad = self._wrong_names(rows, owners)
        rows, owners = _without(rows, owners, bad)
        for column in self.columns:
            values = [row[column.name] for row in rows]
            if _array(column, values) is None:
                bad |= {
                    owner: _mismatch(column, value)
                    for owner, value in zip(owners, values, strict=True)
                    if _array(column, [value]) is None and owner not in bad
                }
        rows, _ = _without(rows, owners, bad)
        return [
            pa.array([row[column.name] for row in rows], column.type) for column in self.columns
        ], bad

    def _arrays(self, rows: Sequence[dict[str, Any]]) -> list[pa.Array] | None:
        """The columns if all rows fit the schema, else None.

        This is the usual case, so it runs no Python code per value except the look-up.
        """
        if any(length != len(self.columns) for length in set(map(len, rows))):
            return None
        arrays = []
        for column in self.columns:
            name = column.name
            try:
                array = _array(column, [row[name] for row in rows])
            except KeyError:
                return None
            if array is None:
                return None
            arrays.append(array)
        return arrays

    def _wrong_names(self, rows: Sequence[dict[str, Any]], owners: Sequence[int]) -> dict[int, str]:
        names = [column.name for column in self.columns]
        known = set(names)
        return {
            owner: _names_mismatch(row, names)
            for row, owner in zip(rows, owners, strict=True)
            if row.keys() != known
        }  # fmt: skip


def _array(column: OutputColumn, values: list[Any]) -> pa.Array | None:
    """The values as a column, or None if one of them does not fit."""
    try:
        array = pa.array(values, column.type)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # a value's own conversion may raise anything
        return None
    return None if column.required and array.null_count else array


def _without(
    rows: Sequence[dict[str, Any]], owners: Sequence[int], bad: Mapping[int, str]
) -> tuple[Sequence[dict[str, Any]], Sequence[int]]:
    if not bad:
        return rows, owners
    kept = [(row, owner) for row, owner in zip(rows, owners, strict=True) if owner not in bad]
    return [row for row, _ in kept], [owner for _, owner in kept]


def _names_mismatch(row: Mapping[str, Any], names: Sequence[str]) -> str:
    missing = next((name for name in names if name not in row), None)
    if missing is not None:
        return f"the function's output has no column {missing}; return None for a missing value"
    unknown = next(name for name in row if name not in names)
    return f"the function's output has a column {text_of(unknown, 60)} that its schema lacks"


def _mismatch(column: OutputColumn, value: object) -> str:
    if value is None:
        return (
            f"column {column.name} of the function's output is None, and the schema says NOT NULL"
        )
    return (
        f"column {column.name} of the function's output is {_kind(value)} that does not fit "
        f"{column.ddl}"
    )


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1] in {*'aeio'} else 'a'} {name}"
