"""Random trees of rows with random faults: the acker fails the records that a fault has touched,
and no others.

Each record is a tree of its own. A checksum of a row's name decides its outcome, in Spark and in
the model alike, so one Spark job holds many different trees. The model follows every row with the
set of records that it is made of.
"""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from spark_job import acker
from tests.support.outcomes.acker import AckedBatch, Sink, run_batch, source_frame

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark

RECORDS = 60
COPIES = {
    "double": 2,
    "triple": 3,
    "merge": 2,
}  # how many copies of its input the plan of such a step holds
MOST_COPIES = 8
FEW_LARGE_RUNS = settings(
    max_examples=6, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


class Step(NamedTuple):
    """An operator. `salt` makes its checksums differ from those of other steps. One row in `rarity`
    is affected, or there are `rarity` groups.
    """

    kind: str
    salt: int
    rarity: int


legal = st.sampled_from(["split", "split", "filter", "branch", "merge", "let go"])
faults = st.sampled_from(["lose", "double", "triple", "forget"])
steps = st.lists(
    st.builds(Step, st.one_of(legal, legal, faults), st.integers(0, 999), st.integers(20, 60)),
    min_size=2,
    max_size=4,
).filter(lambda trees: prod(COPIES.get(step.kind, 1) for step in trees) <= MOST_COPIES)


def checksum(name: str, step: Step) -> int:
    return zlib.crc32(f"{name}#{step.salt}".encode())


def checksum_column(step: Step) -> Column:
    return F.crc32(F.concat(F.col("name"), F.lit(f"#{step.salt}")))


@dataclass
class Model:
    """Rows, and the records that a fault has touched. A row is a name and the records that it is
    made of; None: not followed.
    """

    rows: list[tuple[str, frozenset[int] | None]] = field(default_factory=list)
    sinks: list[list[tuple[str, frozenset[int] | None]]] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)

    def apply(self, step: Step) -> None:
        meant = [row for row in self.rows if checksum(row[0], step) % step.rarity == 0]
        others = [row for row in self.rows if checksum(row[0], step) % step.rarity]
        match step.kind:
            case "split":
                self.rows = [
                    (f"{name}/{i}", of)
                    for name, of in self.rows
                    for i in range(checksum(name, step) % 4)
                ]
            case "filter":
                self.rows = others
            case "branch":
                self.sinks.append(list(self.rows))
            case "let go":
                self.sinks.append([(name, None) for name, _ in self.rows])
            case "merge":
                groups: dict[int, set[int]] = {}
                for name, of in self.rows:
                    groups.setdefault(checksum(name, step) % step.rarity, set()).update(of or ())
                self.rows = [(f"{step.salt}:{key}", frozenset(of)) for key, of in groups.items()]
            case "lose":
                self._touch(meant)
                self.rows = others
            case "double" | "triple":
                self._touch(meant)
                self.rows = self.rows + meant * (1 if step.kind == "double" else 2)
            case "forget":
                self._touch(self.rows)

    def _touch(self, rows: list[tuple[str, frozenset[int] | None]]) -> None:
        for _, of in rows:
            self.touched |= of or set()

    def outcome(self) -> tuple[set[int], list[Counter[str]]]:
        """The records that must fail, and the rows that each sink must then have written."""
        sinks = [*self.sinks, self.rows]
        failed, before = set(self.touched), -1
        while len(failed) != before:
            before = len(failed)
            for sink in sinks:
                for _, of in sink:
                    if of is not None and not failed.isdisjoint(of):
                        failed |= of
        return failed, [
            Counter(name for name, of in sink if of is None or failed.isdisjoint(of))
            for sink in sinks
        ]


def apply_in_spark(df: DataFrame, step: Step, sinks: list[DataFrame]) -> DataFrame:
    """The same step on a frame; a branch that ends here goes to `sinks`."""
    number = checksum_column(step)
    meant = number % step.rarity == 0
    match step.kind:
        case "split":
            children = F.expr(
                "transform(if(n = 0, array(), sequence(1, n)), i -> concat(name, '/', cast(i - 1 "
                "as string)))"
            )
            return acker.split(df.withColumn("n", (number % 4).cast("int")), children, "name").drop(
                "n"
            )
        case "filter":
            return acker.filter(df, ~meant)
        case "branch":
            ending, going_on = acker.branch(df, 2)
            sinks.append(ending)
            return going_on
        case "let go":
            ending, going_on = acker.branch(df, 2)
            sinks.append(acker.unanchored(ending))
            return going_on
        case "merge":
            grouped = acker.merge(df.withColumn("key", number % step.rarity), "key")
            return grouped.select(
                F.concat(F.lit(f"{step.salt}:"), F.col("key").cast("string")).alias("name"),
                acker.ANCHOR,
            )
        case "lose":
            return df.where(~meant)
        case "double":
            return df.union(df.where(meant))
        case "triple":
            return df.union(df.where(meant)).union(df.where(meant))
        case _:
            return acker.branch(df, 2)[0]


@FEW_LARGE_RUNS
@given(steps)
def test_exactly_the_records_that_a_fault_has_touched_fail(
    spark: SparkSession, trees: list[Step]
) -> None:
    """Records that share a row at a sink with a failed one fail too, to a fixpoint. The sinks hold
    all rows of the others.
    """
    model = Model([(f"{n}", frozenset([n])) for n in range(RECORDS)])
    for step in trees:
        model.apply(step)
    failed, expected = model.outcome()
    sinks: list[Sink] = []

    def process(batch: AckedBatch) -> None:
        frames: list[DataFrame] = []
        df = acker.anchor(batch).select(F.col("data").cast("string").alias("name"), acker.ANCHOR)
        for step in trees:
            df = apply_in_spark(df, step, frames)
        pairs = [(frame, Sink()) for frame in [*frames, df]]
        sinks.extend(sink for _, sink in pairs)
        acker.settle(*pairs)

    batch = run_batch(source_frame(spark, [f"{n}" for n in range(RECORDS)]), process)
    assert batch.failed_numbers == failed
    assert [Counter(row["name"] for row in sink.rows) for sink in sinks] == expected
