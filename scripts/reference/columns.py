"""The columns of the source, and those of dead letters."""

from __future__ import annotations

from kinesis_spout.dead_letter.letter import COLUMNS as LETTER_COLUMNS
from kinesis_spout.dead_letter.letter import LINE_MEMBERS, SCHEMA_VERSION
from scripts.reference.markdown import code, page, table
from scripts.reference.words import COLUMNS
from spark_job.data_source import SCHEMA_DDL


def columns_of(ddl: str) -> dict[str, str]:
    """Names and SQL types of a flat DDL text."""
    return dict(column.split(maxsplit=1) for column in ddl.split(", "))


def columns_page() -> str:
    source = [(name, kind, COLUMNS.get(name, "")) for name, kind in columns_of(SCHEMA_DDL).items()]
    return page(
        "## The source",
        _table(source),
        "## Dead letters",
        f"This table shows version {SCHEMA_VERSION} of the schema of dead letters, which Spark, "
        "`consume --dead-letter` and the spout's `DeadLetter.to_json()` write.",
        _table([column[:3] for column in LETTER_COLUMNS]),
        "A dead letter that is a line of JSON may also have these members:",
        _table([column[:3] for column in LINE_MEMBERS]),
    )


def _table(columns: list[tuple[str, str, str]]) -> str:
    return table(
        ("column", "type", "meaning"),
        [(code(name), code(kind), meaning) for name, kind, meaning in columns],
    )
