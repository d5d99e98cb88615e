"""Finds the records of a batch that must fail, after the sums of the whole batch did not match.

A root is a record or a merged row. The shares that were merged into a row are links from their
roots to the root of that row. There are three steps:

1. Compare each root: the shares that were issued for it against the shares that arrived (at a sink,
   dropped on purpose, or in links). The comparison starts from the issued side, so that a root of
   which nothing arrived is found too.
2. If a merged row is at fault, so are the roots that were merged into it. This goes level by level,
   from the last merge to the first.
3. If a record is at fault, no row at a sink may be written that it is a part of, and then all
   other records of such a row must fail too. These are the connected components of the links to
   those merged rows that arrived at a sink.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job.acker.run import AckerError
from spark_job.acker.shares import (
    ANCHOR,
    ROOT,
    S,
    X,
    anchors,
    differ,
    group_anchor,
    negated,
    totals,
)
from spark_job.tracking.spark_sql import only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.acker.run import AckerRun, Merge
    from spark_job.tracking.tracked_batch import TrackedBatch


_NODE, _LABEL, _STATUS, _GROUP = "node", "label", "status", "merged"
_ARRIVED, _FOREIGN = "arrived", "foreign"
# In this order: a root that has failed for several reasons shows the greatest (`_gravest`).
_MERGED_WITH, _MISSING, _DOUBLED = range(3)
REASONS = {
    _MERGED_WITH: "rows of the record were merged with rows of another record that failed",
    _MISSING: (
        "rows of the record are missing. Either an operator that does not belong to the acker "
        "lost rows, or a sink was not passed to acker.settle"
    ),
    _DOUBLED: (
        "rows of the record exist more than once. The reason is a join with keys that are not "
        "unique, or a union of equal rows"
    ),
}


def fail_at_fault(run: AckerRun, arrived: Sequence[DataFrame], batch: TrackedBatch) -> DataFrame:
    """Fail the records at fault, and return the roots (records and merged rows) of which no row may
    be written, for `without_roots`.

    Blocks on several Spark jobs for each level of merges. Raises `AckerError` if rows arrived that
    were derived from no record of the batch.
    """
    # Failing a record may block others (on_failure=block_key). Their rows must not be written
    # either, and with them others may be at fault: repeat until nothing is added.
    graph = _Graph(run, arrived, batch)
    while True:
        before = set(batch.failures)
        failed = graph.failed_nodes(before)
        new = {status: ids - before for status, ids in graph.message_ids(failed).items()}
        for status, ids in new.items():
            if ids:
                batch.fail(sorted(ids), REASONS[status])
        if len(batch.failures) == len(before) + sum(map(len, new.values())):
            return failed


def without_roots(frame: DataFrame, roots: DataFrame) -> DataFrame:
    """The rows of an anchored frame that are derived from none of these roots."""
    return frame.join(roots, frame[ANCHOR][ROOT] == roots[_NODE], "left_anti")


class _Graph:
    """The roots of a batch, and the links from merged roots to the roots of the merged rows."""

    def __init__(self, run: AckerRun, arrived: Sequence[DataFrame], batch: TrackedBatch) -> None:
        self._cut = run.cut
        self._sources = _union(run.sources(batch)).select("messageId", f"{ANCHOR}.*")
        self._links = [_links(merge) for merge in run.merges]
        for links in self._links:
            run.keep(links)  # used in several jobs, and a window over all rows each time
        self._at_sinks = [anchors(frame) for frame in arrived]
        shares = [*self._at_sinks, *run.drops, *(links.drop(_GROUP) for links in self._links)]
        issued = [
            self._sources.drop("messageId"),
            *(links.drop(ROOT).withColumnRenamed(_GROUP, ROOT) for links in self._links),
        ]
        differing = run.cut(_differing(_union(issued), _union(shares)))
        foreign = differing.where(_FOREIGN).count()
        if foreign:
            raise AckerError(
                f"the rows passed to acker.settle contain {foreign} anchors that belong to no "
                "record of this batch",
                "pass only frames of this batch; persist each frame whose rows change when Spark "
                "computes it again",
            )
        self._at_fault = self._upwards(differing.drop(_FOREIGN))
        self._labels = component_labels(self._edges()) if self._links else None

    def failed_nodes(self, failed_ids: set[str]) -> DataFrame:
        """All roots that must fail, and why: columns node and status. The records of `failed_ids`
        have failed already.
        """
        failed = only(self._sources, failed_ids).select(
            F.col(ROOT).alias(_NODE), F.lit(_MERGED_WITH).alias(_STATUS)
        )
        nodes = self._at_fault.unionByName(failed)
        if self._labels is not None:
            labels = self._labels.join(nodes, _NODE, "left_semi").select(_LABEL).distinct()
            merged = self._labels.join(labels, _LABEL, "left_semi").select(
                _NODE, F.lit(_MERGED_WITH).alias(_STATUS)
            )
            nodes = nodes.unionByName(merged)
        found = self._cut(_gravest(nodes))
        if found.isEmpty():
            raise AckerError(
                "the rows passed to acker.settle changed when Spark computed the rows again, so "
                "the acker cannot check the rows",
                "persist each frame whose function returns a different result each time, or mark "
                "the function asNondeterministic()",
            )
        return found

    def message_ids(self, failed: DataFrame) -> dict[int, set[str]]:
        """The message ids of the records among the failed roots, by status."""
        found = (
            self._sources.join(failed, self._sources[ROOT] == failed[_NODE])
            .groupBy("messageId")
            .agg(F.max(_STATUS).alias(_STATUS))
        )
        ids: dict[int, set[str]] = {}
        for row in found.toArrow().to_pylist():
            ids.setdefault(row[_STATUS], set()).add(row["messageId"])
        return ids

    def _upwards(self, at_fault: DataFrame) -> DataFrame:
        """Add the roots that were merged into a row at fault. One pass over the merges in reverse
        order is enough: a merge comes after those that made the rows it merges.
        """
        for links in reversed(self._links):
            parts = links.join(at_fault, links[_GROUP] == at_fault[_NODE]).select(
                F.col(ROOT).alias(_NODE), _STATUS
            )
            at_fault = self._cut(_gravest(at_fault.unionByName(parts)))
        return at_fault

    def _edges(self) -> DataFrame:
        """The links to merged rows that arrived at a sink, directly or in other rows."""
        live = _union([shares.select(F.col(ROOT).alias(_NODE)) for shares in self._at_sinks])
        edges = []
        for links in reversed(self._links):
            edges.append(
                links.join(live, links[_GROUP] == live[_NODE], "left_semi").select(ROOT, _GROUP)
            )
            live = live.unionByName(edges[-1].select(F.col(ROOT).alias(_NODE)))
        return _union(edges).toDF("a", "b")


def _links(merge: Merge) -> DataFrame:
    """The shares that were merged, each with the root of the row that it was merged into.

    That root is computed from the sums of the group, as `merge` computes it.
    """
    rows = merge.frame.select(ANCHOR, *totals(f"{ANCHOR}.", Window.partitionBy(*merge.keys)))
    return rows.select(f"{ANCHOR}.*", group_anchor(merge.site)[ROOT].alias(_GROUP)).where(
        F.col(ROOT).isNotNull()
    )


def _differing(issued: DataFrame, arrived: DataFrame) -> DataFrame:
    """The roots whose issued and arrived shares differ, and why: columns node, status and foreign
    (nothing was issued for it).
    """
    # The arrived shares are taken from the issued ones: of a root that has lost nothing, 0 is left.
    shares = issued.withColumn(_ARRIVED, F.lit(False)).unionByName(  # noqa: FBT003  # Spark's
        negated(arrived).withColumn(_ARRIVED, F.lit(True))  # noqa: FBT003  # Spark's
    )
    share = F.when(F.col(_ARRIVED), F.struct(X, S))
    # Two rows have equal shares only if one row was doubled.
    is_doubled = F.count(share) > F.count_distinct(share)
    return (
        shares.where(F.col(ROOT).isNotNull())
        .groupBy(F.col(ROOT).alias(_NODE))
        .agg(
            *totals(),
            F.when(is_doubled, _DOUBLED).otherwise(_MISSING).alias(_STATUS),
            F.bool_and(_ARRIVED).alias(_FOREIGN),
        )
        .where(differ())
        .select(_NODE, _STATUS, _FOREIGN)
    )


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)


def _gravest(nodes: DataFrame) -> DataFrame:
    return nodes.groupBy(_NODE).agg(F.max(_STATUS).alias(_STATUS))


def component_labels(edges: DataFrame) -> DataFrame:
    """Label each node with the least node of its component: columns node and label, a row per node.

    `edges` has the columns a and b (BIGINT). The direction of an edge does not matter, and an edge
    may be there several times. Collects the edges on the driver, with 16 bytes each.
    """
    ends = edges.where("a != b").distinct().toArrow()
    nodes, places = np.unique(
        np.concatenate([ends.column(name).to_numpy() for name in ("a", "b")]), return_inverse=True
    )
    a, b = np.split(places, 2)
    labels = np.arange(len(nodes))
    # Each round links the labels of both ends of each edge, and then follows the links. So the
    # number of rounds hardly depends on the diameter of the components.
    while (labels[a] != labels[b]).any():
        of_a, of_b = labels[a], labels[b]
        np.minimum.at(labels, of_a, of_b)
        np.minimum.at(labels, of_b, of_a)
        labels = labels[labels]
    table = pa.table({_NODE: nodes, _LABEL: nodes[labels]})
    return edges.sparkSession.createDataFrame(table)
