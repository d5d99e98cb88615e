"""The columns of the source, and those of dead letters."""

from __future__ import annotations

from scripts.reference.markdown import code, page, table
from scripts.reference.words import COLUMNS, LETTER_COLUMNS
from spark_job.data_source import SCHEMA_DDL
from spark_job.dead_letter import LETTER_DDL


def columns_of(ddl: str) -> dict[str, str]:
    """Names and SQL types of a flat DDL text."""
    return dict(column.split(maxsplit=1) for column in ddl.split(", "))


def columns_page() -> str:
    return page(
        "## The source",
        _table(SCHEMA_DDL, COLUMNS),
        "## Dead letters",
        _table(LETTER_DDL, LETTER_COLUMNS),
    )


def _table(ddl: str, words: dict[str, str]) -> str:
    return table(
        ("column", "type", "meaning"),
        [(code(name), code(kind), words.get(name, "")) for name, kind in columns_of(ddl).items()],
    )
