"""Which records of a batch must fail, once the sums do not match: root by root, and over merged
rows.

A merged row is a root of its own, and its group's shares are links to it. So there are three steps:

1. Each root, of a record or of a merged row, is compared: what was given out in its name, and what
   has arrived of it (at sinks, dropped on purpose, or in links). From the side that was given out,
   so that none is forgotten.
2. A merged row that is at fault puts those at fault that are in it, level by level upwards.
3. Where a record is at fault, so is every row at the sinks that it is a part of, and every record
   that is a part of such a row: the connected components of the links to merged rows that have
   arrived at a sink.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job.acker.connected_components import LABEL, component_labels
from spark_job.acker.run import AckerError
from spark_job.acker.shares import (
    ANCHOR,
    ROOT,
    S,
    X,
    anchors,
    group_anchor,
    sums,
    total_s,
    total_x,
    totals,
)
from spark_job.tracking.spark_sql import only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_job.acker.run import AckerRun, Merge
    from spark_job.tracking.tracked_batch import TrackedBatch

_NODE, _STATUS, _GROUP, _DOUBLES, _FOREIGN = "node", "status", "merged", "doubles", "foreign"
_MERGED_WITH, _MISSING, _DOUBLED = range(3)
REASONS = {
    _MERGED_WITH: "rows made of it were merged with those of a record that failed",
    _MISSING: "rows made of it are missing: an operator other than the acker's lost them, or a sink was not given to settle",
    _DOUBLED: "rows made of it are there more than once: by a join with keys that are not unique, or a union of equal rows",
}


class Faults(NamedTuple):
    """The roots, of records and of merged rows, of which nothing may be written."""

    roots: DataFrame

    def without_failed(self, frame: DataFrame) -> DataFrame:
        """The rows of an anchored frame that may be written."""
        return frame.join(self.roots, frame[ANCHOR][ROOT] == self.roots[_NODE], "left_anti")


def find_faults(run: AckerRun, arrived: Sequence[DataFrame], batch: TrackedBatch) -> Faults:
    """Fail the records at fault, and say what must not be written for them. Blocks on some jobs for
    each level of merges.

    Failing a record may make others wait (`block_key`); their rows are not written either. Raises
    `AckerError` where rows arrived that are of no record of the batch.
    """
    graph = _Graph(run, arrived, batch)
    while True:
        before = set(batch.failures)
        failed = graph.failed_nodes(before)
        new = {status: ids - before for status, ids in graph.message_ids(failed).items()}
        for status, ids in new.items():
            if ids:
                batch.fail(sorted(ids), REASONS[status])
        if len(batch.failures) == len(before) + sum(map(len, new.values())):
            return Faults(failed)


class _Graph:
    """Roots, and the links of those that were merged to the roots of the merged rows."""

    def __init__(self, run: AckerRun, arrived: Sequence[DataFrame], batch: TrackedBatch) -> None:
        self._cut = run.cut
        self._sources = reduce(DataFrame.unionByName, run.sources(batch)).select(
            "messageId", f"{ANCHOR}.*"
        )
        self._links = [_links(merge) for merge in run.merges]
        for links in self._links:
            run.keep(links)
        self._at_sinks = [anchors(frame) for frame in arrived]
        shares = [*self._at_sinks, *run.drops, *(links.drop(_GROUP) for links in self._links)]
        given = [
            self._sources.drop("messageId"),
            *(links.drop(ROOT).withColumnRenamed(_GROUP, ROOT) for links in self._links),
        ]
        differing = run.cut(_differing(_rows(given), _rows(shares)))
        _refuse_foreign(differing)
        self._at_fault = self._upwards(run.cut(_judged(differing, _rows(shares))))
        self._labels = component_labels(self._edges(), run.cut) if self._links else None

    def failed_nodes(self, failed_ids: set[str]) -> DataFrame:
        """All roots that must fail, and why (columns node and status), where the records of
        `failed_ids` have failed already.
        """
        failed = only(self._sources, failed_ids).select(
            F.col(ROOT).alias(_NODE), F.lit(_MERGED_WITH).alias(_STATUS)
        )
        nodes = self._at_fault.unionByName(failed)
        if self._labels is not None:
            labels = self._labels.join(nodes, _NODE, "left_semi").select(LABEL).distinct()
            merged = self._labels.join(labels, LABEL, "left_semi").select(
                _NODE, F.lit(_MERGED_WITH).alias(_STATUS)
            )
            nodes = nodes.unionByName(merged)
        found = self._cut(_gravest(nodes))
        if found.isEmpty():
            raise AckerError(
                "the rows given to acker.settle were others when Spark computed them again, so "
                "nothing can be said of them; "
                "persist the frame in which a function answers differently each time, or mark that "
                "function asNondeterministic()"
            )
        return found

    def message_ids(self, failed: DataFrame) -> dict[int, set[str]]:
        """The records among the failed roots, by status."""
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
        """With the parts of what is at fault. A merge comes after those that made its parts, so one
        pass is enough.
        """
        for links in reversed(self._links):
            parts = links.join(at_fault, links[_GROUP] == at_fault[_NODE]).select(
                F.col(ROOT).alias(_NODE), _STATUS
            )
            at_fault = self._cut(_gravest(at_fault.unionByName(parts)))
        return at_fault

    def _edges(self) -> DataFrame:
        """The links to merged rows that have arrived at a sink, themselves or in rows that they
        were merged into.
        """
        live = reduce(
            DataFrame.unionByName, [one.select(F.col(ROOT).alias(_NODE)) for one in self._at_sinks]
        )
        edges = []
        for links in reversed(self._links):
            edges.append(
                links.join(live, links[_GROUP] == live[_NODE], "left_semi").select(ROOT, _GROUP)
            )
            live = live.unionByName(edges[-1].select(F.col(ROOT).alias(_NODE)))
        return reduce(DataFrame.unionByName, edges).toDF("a", "b")


def _links(merge: Merge) -> DataFrame:
    """The shares that were merged, and the root of the row that each was merged into, found by the
    sums as `merge` found it.
    """
    group = Window.partitionBy(*merge.keys)
    summed = [
        column.over(group).alias(name)
        for name, column in sums(f"{ANCHOR}.x", f"{ANCHOR}.s").items()
    ]
    rows = merge.frame.select(ANCHOR, *summed)
    return rows.select(f"{ANCHOR}.*", group_anchor(merge.site)[ROOT].alias(_GROUP)).where(
        F.col(ROOT).isNotNull()
    )


def _by_root(shares: DataFrame) -> DataFrame:
    """The combined shares of each root: columns node, x and s."""
    return (
        shares.groupBy(F.col(ROOT).alias(_NODE))
        .agg(*totals(X, S))
        .select(_NODE, total_x().alias(X), total_s().alias(S))
    )


def _differing(given: DataFrame, arrived: DataFrame) -> DataFrame:
    """The roots of which not that arrived that was given out: columns node and foreign (nothing was
    given out).
    """
    given, arrived = _by_root(given).alias("given"), _by_root(arrived).alias("arrived")
    same = (F.col(f"given.{X}") == F.col(f"arrived.{X}")) & (
        F.col(f"given.{S}") == F.col(f"arrived.{S}")
    )
    different = given.join(arrived, _NODE, "full").where(~F.coalesce(same, F.lit(False)))  # noqa: FBT003  # Spark's
    return different.select(_NODE, F.col(f"given.{X}").isNull().alias(_FOREIGN))


def _judged(differing: DataFrame, arrived: DataFrame) -> DataFrame:
    """What is wrong with these roots: columns node and status. No share is there twice, unless its
    row is.
    """
    doubled = F.count(F.lit(1)) > F.count_distinct(X, S)
    shares = (
        arrived.join(differing, arrived[ROOT] == differing[_NODE], "left_semi")
        .groupBy(ROOT)
        .agg(doubled.alias(_DOUBLES))
    )
    status = F.when(F.col(_DOUBLES), _DOUBLED).otherwise(_MISSING)
    return differing.join(shares, differing[_NODE] == shares[ROOT], "left").select(
        _NODE, status.alias(_STATUS)
    )


def _rows(parts: Sequence[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts).where(F.col(ROOT).isNotNull())


def _refuse_foreign(differing: DataFrame) -> None:
    strange = differing.where(_FOREIGN).count()
    if strange:
        raise AckerError(
            f"the rows given to acker.settle carry {strange} anchors that are of no record of this "
            "batch: of a frame kept "
            "from another batch, or of one with other rows each time it is computed: persist such "
            "a frame"
        )


def _gravest(nodes: DataFrame) -> DataFrame:
    return nodes.groupBy(_NODE).agg(F.max(_STATUS).alias(_STATUS))
