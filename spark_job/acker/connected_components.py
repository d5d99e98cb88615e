"""Connected components of a graph, computed by joins in few rounds.

This is the alternating algorithm (large-star, small-star) of Kiveris et al., "Connected Components
in MapReduce and Beyond", 2014. The number of rounds hardly depends on the diameter of the
components.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

NODE, LABEL = "node", "label"


def component_labels(edges: DataFrame, cut: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """Label each node with the least node of its component: columns node and label, a row per node.

    `edges` has the columns a and b (BIGINT). The direction of an edge does not matter, and an edge
    may be there several times. `cut` must return the frame as one that is computed only once.
    Blocks on a Spark job for each round.
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
    """Link each greater neighbour of a node to the least of the node and its neighbours."""
    both = edges.select("a", "b").union(edges.select("b", "a"))
    least = both.groupBy("a").agg(F.least(F.min("b"), F.col("a")).alias("least"))
    return (
        both.where("b > a")
        .join(least, "a")
        .select(F.col("b").alias("a"), F.col("least").alias("b"))
        .distinct()
    )


def _small_star(edges: DataFrame) -> DataFrame:
    """Link a node and its lesser neighbours to the least of these.

    Every edge must lead from the greater to the lesser node, as those of `_large_star` do.
    """
    least = edges.groupBy("a").agg(F.min("b").alias("least"))
    neighbours = (
        edges.join(least, "a")
        .where("b != least")
        .select(F.col("b").alias("a"), F.col("least").alias("b"))
    )
    return least.select("a", F.col("least").alias("b")).union(neighbours).distinct()


def _fingerprint(edges: DataFrame) -> tuple[object, ...]:
    """A hash of the set of edges, to detect the round that changes nothing."""
    return tuple(edges.agg(F.count(F.lit(1)), F.bit_xor(F.xxhash64("a", "b"))).collect()[0])
