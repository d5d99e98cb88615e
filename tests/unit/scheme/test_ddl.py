"""The subset of DDL, and the errors that say what is expected and where."""

from __future__ import annotations

import pytest

from scheme import JsonScheme, SchemeDefinitionError


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("id BIGINT", "`id` BIGINT"),
        (" id:long ,\n s : string NOT NULL", "`id` BIGINT, `s` STRING"),
        ("a byte, b short, c integer, d real", "`a` TINYINT, `b` SMALLINT, `c` INT, `d` FLOAT"),
        (
            "n DECIMAL, m dec(12), k numeric(38, 10)",
            "`n` DECIMAL(10,0), `m` DECIMAL(12,0), `k` DECIMAL(38,10)",
        ),
        ("o STRUCT<total: DOUBLE, u STRING>", "`o` STRUCT<`total`: DOUBLE, `u`: STRING>"),
        (
            "a ARRAY<ARRAY<INT>>, m MAP<STRING, STRUCT<x: DATE>>",
            "`a` ARRAY<ARRAY<INT>>, `m` MAP<STRING, STRUCT<`x`: DATE>>",
        ),
        ("`a.b c` INT, `tick``ed` INT", "`a.b c` INT, `tick``ed` INT"),
        ("date DATE, string STRING, not BOOLEAN", "`date` DATE, `string` STRING, `not` BOOLEAN"),
    ],
)
def test_a_schema_is_read_as_spark_would(written: str, read: str) -> None:
    """Synonyms, both forms of a field, nested types and quoted names. NOT NULL is a rule of the
    scheme and not part of the type.
    """
    assert JsonScheme(written).schema_ddl == read


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("", "found the end where a field name is expected"),
        ("id", "found the end where a type"),
        ("id VARIANT", "found 'VARIANT' where a type"),
        ("id INT COMMENT", "found 'COMMENT' where ',' or the end is expected"),
        ("id INT NOT", "found the end where 'NULL' is expected"),
        ("id INT; s INT", "found ';' where ',' or the end is expected"),
        ("a ARRAY<INT", "found the end where '>' is expected"),
        ("m MAP<INT, INT>", "found 'INT' where 'STRING' is expected"),
        ("o STRUCT<>", "found '>' where a field name is expected"),
        ("n DECIMAL(39, 2)", "the precision is 1 to 38"),
        ("a INT, a INT", "'a' and 'a' are the same name"),
        ("o STRUCT<Id: INT, id: INT>", "'Id' and 'id' are the same name"),
    ],
)
def test_ddl_outside_the_subset_is_refused_in_one_sentence(written: str, complaint: str) -> None:
    """The error names the schema, the place and what is expected there."""
    with pytest.raises(SchemeDefinitionError) as caught:
        JsonScheme(written)
    assert complaint in str(caught.value)
    assert repr(written) in str(caught.value)
