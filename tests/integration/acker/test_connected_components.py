"""Connected components of random graphs are those that a plain search finds."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from spark_job.acker.connected_components import component_labels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def labels_by_search(edges: list[tuple[int, int]]) -> dict[int, int]:
    neighbours: dict[int, set[int]] = {}
    for a, b in edges:
        if a != b:
            neighbours.setdefault(a, set()).add(b)
            neighbours.setdefault(b, set()).add(a)
    labels: dict[int, int] = {}
    for start in sorted(neighbours):
        waiting = [start]
        while waiting:
            node = waiting.pop()
            if node not in labels:
                labels[node] = start
                waiting += neighbours[node]
    return labels


def test_every_node_is_labelled_with_the_least_of_its_component(spark: SparkSession) -> None:
    """One graph has trees, cycles, cliques, double edges, a self-loop and negative numbers."""
    random = Random(5)  # noqa: S311  # the same graph in every run
    edges = [(3, 3), (-5, -(2**63)), (2**63 - 1, -5), (2**63 - 1, -5), (-5, 2**63 - 1)]
    for first in range(0, 2000, 100):  # islands of up to 100 nodes
        size = random.randrange(2, 100)
        edges += [
            (first + random.randrange(size), first + random.randrange(size)) for _ in range(size)
        ]
    random.shuffle(edges)
    found = component_labels(
        spark.createDataFrame(edges, "a BIGINT, b BIGINT"), lambda frame: frame.localCheckpoint()
    ).collect()
    assert {row["node"]: row["label"] for row in found} == labels_by_search(edges)
    assert len(found) == len({row["node"] for row in found})
