"""The shares of a row's children add up to its own share, unless a child is lost or doubled."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job.acker.shares import (
    ANCHOR,
    ANCHOR_DDL,
    Total,
    anchors,
    group_anchor,
    totals,
    with_child_anchors,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.spark

LEAST, GREATEST = -(2**63), 2**63 - 1
EDGES = [
    0,
    1,
    -1,
    LEAST,
    GREATEST,
    0xFFFF_FFFF,
    0x1_0000_0000,
    -0x1_0000_0000,
    0x0123_4567_89AB_CDEF,
]
MAX_CHILDREN = 5


@pytest.fixture(scope="module")
def families(spark: SparkSession) -> dict[tuple[int, int, int], list[Row]]:
    """The anchors of children, by their parent's x and s and by the number of children."""
    parents = spark.createDataFrame(
        [((7, x, s),) for x, s in product(EDGES, EDGES)], f"{ANCHOR} {ANCHOR_DDL}"
    )
    counts = spark.range(1, MAX_CHILDREN + 1).select(F.col("id").alias("n"))
    placed = (
        parents.crossJoin(counts)
        .withColumn("parent", F.col(ANCHOR))
        .withColumn("place", F.explode(F.expr("sequence(0, n - 1)")))
    )
    rows = with_child_anchors(placed, 3, F.col("place"), F.col("n")).collect()
    found: dict[tuple[int, int, int], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["place"]):
        found.setdefault((row["parent"]["x"], row["parent"]["s"], row["n"]), []).append(row[ANCHOR])
    return found


def combined(children: Iterable[Row], times: Iterable[int]) -> tuple[int, int]:
    """XOR and sum mod 2^64, computed in Python."""
    x = s = 0
    for child, count in zip(children, times, strict=True):
        x ^= (child["x"] % 2**64) * (count % 2)
        s += child["s"] * count
    return x, s % 2**64


def test_children_add_up_to_their_parent(families: dict[tuple[int, int, int], list[Row]]) -> None:
    """Also at the limits of 64 bits, where Spark's own sums and differences overflow."""
    assert len(families) == len(EDGES) ** 2 * MAX_CHILDREN
    for (x, s, n), children in families.items():
        assert len(children) == n
        assert combined(children, [1] * n) == (x % 2**64, s % 2**64)
        assert {child["root"] for child in children} == {7}


def test_children_that_are_not_there_exactly_once_do_not_add_up(
    families: dict[tuple[int, int, int], list[Row]],
) -> None:
    """Children are lost, doubled, or there three times, which XOR alone would not detect; also
    several of these at a time.

    Left out is one case that can add up: a parent with s = 0 or 2^63, all of whose children are
    there equally often. Hashes practically never have these values.
    """
    tried = 0
    for (x, s, n), children in families.items():
        for times in product(range(4), repeat=n):
            if set(times) != {1} and not (len(set(times)) == 1 and s in (0, LEAST)):
                assert combined(children, times) != (x % 2**64, s % 2**64), (x, s, times)
                tried += 1
    assert tried > 100_000


def test_sums_in_spark_are_sums_in_python(spark: SparkSession) -> None:
    """In groups, whole frames and frames without rows. A row that is not tracked adds nothing."""
    rows = [(n % 3, (n, x, s)) for n, (x, s) in enumerate(product(EDGES, EDGES))] + [
        (0, None),
        (9, None),
    ]
    frame = spark.createDataFrame(rows, f"k INT, {ANCHOR} {ANCHOR_DDL}")
    whole = Total.of(anchors(frame).agg(*totals("x", "s")).collect()[0])
    assert whole == python_total([anchor for _, anchor in rows])
    empty = Total.of(frame.where("false").agg(*totals(f"{ANCHOR}.x", f"{ANCHOR}.s")).collect()[0])
    assert empty == Total(0, 0, 0)
    groups = (
        frame.groupBy("k")
        .agg(*totals(f"{ANCHOR}.x", f"{ANCHOR}.s"))
        .select("k", group_anchor(5).alias("merged"))
    )
    merged = {row["k"]: row["merged"] for row in groups.collect()}
    assert merged.pop(9) is None
    for key, anchor in merged.items():
        expected = python_total([given for k, given in rows if k == key])
        assert (anchor["x"] % 2**64, anchor["s"] % 2**64) == (expected.x, expected.s)
    assert len({anchor["root"] for anchor in merged.values()}) == 3


def python_total(given: list[tuple[int, int, int] | None]) -> Total:
    total = Total(0, 0, 0)
    for anchor in given:
        _, x, s = anchor or (0, 0, 0)
        total += Total(1, x % 2**64, s % 2**64)
    return total
