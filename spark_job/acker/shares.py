"""The arithmetic of the acker, as Spark expressions: tokens, the shares that they are split into,
and their sums.

A row's anchor is `struct<root, x, s>`: the root it stands for, and its share of the root's two
tokens, one taken apart by XOR and one by sum mod 2^64. The shares of all rows of a root, combined,
give its tokens again, whatever way they went. XOR alone would not see a row that is there three
times; a sum alone needs no luck to be right either, but both cost little.

A share is split into n by a chain of hashes h(1) .. h(n-1) of (share, site, place): child i gets
h(i) - h(i+1), the first one the share itself in the place of h(0), the last one 0 in that of h(n).
All but the ends cancels out, so the children add up to the share without any of them knowing the
others; and a sum over children that are there m(i) times adds up only if all m(i) are 1, as the
hashes are as good as random. Everything is derived, so a stage that Spark computes again gives the
same shares.

The sum is kept in halves of 32 bits: Spark's own sum and subtraction raise an error where they
overflow (ANSI mode). That is good for 2^31 rows a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ANCHOR = "_anchor"
ROOT, X, S = "root", "x", "s"
ANCHOR_DDL = f"struct<{ROOT}: bigint, {X}: bigint, {S}: bigint>"

_HALF = 32
_LOW = 0xFFFF_FFFF
_WORD = 2**64
_COUNT, _XOR, _LOWS, _HIGHS = "_acker_rows", "_acker_xor", "_acker_lows", "_acker_highs"
TOTALS = (_COUNT, _XOR, _LOWS, _HIGHS)
_MINUEND, _SUBTRAHEND = "_acker_minuend", "_acker_subtrahend"


@dataclass(frozen=True, slots=True)
class Total:
    """The combined shares of some rows, as unsigned numbers of 64 bits, and how many rows they
    were.
    """

    rows: int
    x: int
    s: int

    @classmethod
    def of(cls, row: Any) -> Total:
        """From a row with the columns of `sums`."""
        s = ((row[_HIGHS] or 0) << _HALF) + (row[_LOWS] or 0)
        return cls(row[_COUNT], (row[_XOR] or 0) % _WORD, s % _WORD)

    def __add__(self, other: Total) -> Total:
        return Total(self.rows + other.rows, self.x ^ other.x, (self.s + other.s) % _WORD)

    def same_shares(self, other: Total) -> bool:
        return (self.x, self.s) == (other.x, other.s)


NOTHING = Total(0, 0, 0)


def source_anchor(message_id: Column, seed: str, site: int) -> Column:
    """The whole tokens of a root, as its source row has them. The root is the same at every site;
    its tokens are not.
    """
    root = F.xxhash64(F.lit(seed), message_id)
    return _anchor(
        root, F.xxhash64(root, F.lit(site), F.lit(X)), F.xxhash64(root, F.lit(site), F.lit(S))
    )


def with_child_anchors(frame: DataFrame, site: int, place: Column, count: Column) -> DataFrame:
    """The frame with the anchor of each row replaced by that of child number `place` (from 0) of
    `count`. NULL stays NULL.
    """
    parent = F.col(ANCHOR)
    first, last = place == 0, place + 1 == count
    # The hashes for s are those of another site, or an x that equals its s would have the same. The
    # two numbers to be subtracted are columns of their own, as each is needed twice and Spark would
    # hash twice.
    staged = frame.withColumns(
        {
            _MINUEND: _end_or_hash(first, parent[S], parent[S], -site, place),
            _SUBTRAHEND: _end_or_hash(last, F.lit(0), parent[S], -site, place + 1),
        }
    )
    x = _end_or_hash(first, parent[X], parent[X], site, place).bitwiseXOR(
        _end_or_hash(last, F.lit(0), parent[X], site, place + 1)
    )
    child = F.when(
        parent.isNotNull(), _anchor(parent[ROOT], x, _minus(F.col(_MINUEND), F.col(_SUBTRAHEND)))
    )
    return staged.withColumn(ANCHOR, child).drop(_MINUEND, _SUBTRAHEND)


def no_anchor() -> Column:
    """The anchor of a row that is not tracked."""
    return F.lit(None).cast(ANCHOR_DDL)


def anchors(frame: DataFrame) -> DataFrame:
    """The frame's anchors, as the columns root, x and s; NULL where a row is not tracked."""
    return frame.select(f"{ANCHOR}.*")


def sums(x: str, s: str) -> dict[str, Column]:
    """Aggregates that combine shares, by name: what `Total.of` and `group_anchor` take. XOR and
    sums of no rows are NULL.
    """
    return {
        _COUNT: F.count(F.lit(1)),
        _XOR: F.bit_xor(x),
        _LOWS: F.sum(F.col(s).bitwiseAND(_LOW)),
        _HIGHS: F.sum(F.shiftrightunsigned(s, _HALF)),
    }


def totals(x: str, s: str) -> list[Column]:
    """`sums` as named columns."""
    return [column.alias(name) for name, column in sums(x, s).items()]


def total_x() -> Column:
    """The combined x of a row with the columns of `sums`."""
    return F.col(_XOR)


def total_s() -> Column:
    """The combined s of a row with the columns of `sums`."""
    high = F.col(_HIGHS) + F.shiftright(F.col(_LOWS), _HALF)
    return F.shiftleft(high, _HALF).bitwiseOR(F.col(_LOWS).bitwiseAND(_LOW))


def group_anchor(site: int) -> Column:
    """The anchor of a merged row with the columns of `sums`: it stands for a root of its own, whose
    tokens are the sums.
    """
    return F.when(
        total_x().isNotNull(),
        _anchor(F.xxhash64(F.lit(site), total_x(), total_s()), total_x(), total_s()),
    )


def _anchor(root: Column, x: Column, s: Column) -> Column:
    return F.struct(root.alias(ROOT), x.alias(X), s.alias(S))


def _end_or_hash(is_end: Column, end: Column, share: Column, site: int, place: Column) -> Column:
    return F.when(is_end, end).otherwise(F.xxhash64(share, F.lit(site), place))


def _minus(left: Column, right: Column) -> Column:
    """`left - right` mod 2^64, without overflow."""
    low = left.bitwiseAND(_LOW) - right.bitwiseAND(_LOW)
    high = (
        F.shiftrightunsigned(left, _HALF)
        - F.shiftrightunsigned(right, _HALF)
        + F.shiftright(low, _HALF)
    )
    return F.shiftleft(high, _HALF).bitwiseOR(low.bitwiseAND(_LOW))
