"""Connected components of a graph, by joins only, in a handful of rounds whatever the components'
diameters.

The alternating large-star and small-star of Kiveris and others ("Connected Components in MapReduce
and Beyond", 2014).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

NODE, LABEL = "node", "label"


def component_labels(edges: DataFrame, cut: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """For each node of an edge (columns a and b, BIGINT, in any direction, also several times): its
    component's least node.

    Columns node and label, one row a node. `cut` gives a frame that is computed once. Blocks on a
    job for each round.
    """
    edges = cut(edges.where("a != b").distinct())
    before = _fingerprint(edges)
    while True:
        edges = cut(_small_star(_large_star(edges)))
        after = _fingerprint(edges)
        if after == before:
            break
        before = after
    ends = edges.select(F.col("b").alias(NODE), F.col("b").alias(LABEL)).distinct()
    return edges.select(F.col("a").alias(NODE), F.col("b").alias(LABEL)).unionByName(ends)


def _large_star(edges: DataFrame) -> DataFrame:
    """Every greater neighbour of a node is joined to the least of the node and its neighbours."""
    both = edges.select("a", "b").union(edges.select("b", "a"))
    least = both.groupBy("a").agg(F.least(F.min("b"), F.col("a")).alias("least"))
    return (
        both.where("b > a")
        .join(least, "a")
        .select(F.col("b").alias("a"), F.col("least").alias("b"))
        .distinct()
    )


def _small_star(edges: DataFrame) -> DataFrame:
    """A node and its lesser neighbours are joined to the least of them. Every edge leads from the
    greater to the lesser node.
    """
    least = edges.groupBy("a").agg(F.min("b").alias("least"))
    neighbours = (
        edges.join(least, "a")
        .where("b != least")
        .select(F.col("b").alias("a"), F.col("least").alias("b"))
    )
    return least.select("a", F.col("least").alias("b")).union(neighbours).distinct()


def _fingerprint(edges: DataFrame) -> tuple[object, ...]:
    """The same for the same set of edges, as good as only then."""
    return tuple(edges.agg(F.count(F.lit(1)), F.bit_xor(F.xxhash64("a", "b"))).collect()[0])
