"""The maths of the acker, as Spark expressions.

Storm's acker keeps a ledger: one number per root tuple, which is 0 when all tuples are acked. Here
the rows carry the numbers themselves, and the check is a sum over all rows.

Tokens and shares. A root is a record, or a merged row. It has two random-looking numbers of 64
bits, its tokens X and S. Each row that is derived from the root carries a share (x, s) of them, in
its anchor `struct<root, x, s>`. For every root, over the rows that arrive somewhere,

    XOR of all x = X        and        sum of all s = S  (mod 2^64)

holds if every row arrives exactly once. If a row is lost or doubled it fails, up to a chance of
about 2^-64. XOR alone would not detect a row that is there three times. The sum alone would do, but
both cost little.

Splitting. A row that becomes n rows splits its share t into shares t(0) .. t(n-1) by a telescoping
chain:

    h(0) = t        h(i) = hash(t, site, i) for 0 < i < n        h(n) = 0
    t(i) = h(i) - h(i+1)        (for x: XOR in place of the difference)

All inner terms cancel, so the shares add up to t. A child needs only t, n and its own index i, not
its siblings. If child i is there m(i) times, the sum is right only if all m(i) are 1, as the hashes
are as good as random. `site` numbers the operators of a batch, so two splits of one row differ.
Nothing is drawn at random, so a stage that Spark computes again yields the same shares.

Sums are kept as two halves of 32 bits, because Spark's own sum and difference raise an error on
overflow (ANSI mode). This is good for 2^31 rows per batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

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
    """The combined shares of some rows, as unsigned 64-bit numbers, and the number of rows."""

    rows: int
    x: int
    s: int

    @classmethod
    def of(cls, row: Any) -> Total:
        """From a row with the columns of `totals`."""
        s = ((row[_HIGHS] or 0) << _HALF) + (row[_LOWS] or 0)
        return cls(row[_COUNT], (row[_XOR] or 0) % _WORD, s % _WORD)

    def __add__(self, other: Total) -> Total:
        return Total(self.rows + other.rows, self.x ^ other.x, (self.s + other.s) % _WORD)

    def same_shares(self, other: Total) -> bool:
        return (self.x, self.s) == (other.x, other.s)


NOTHING = Total(0, 0, 0)


def source_anchor(message_id: Column, seed: str, site: int) -> Column:
    """The anchor of a source row, which holds the whole tokens of its root: the same root at every
    site, with other tokens.
    """
    root = F.xxhash64(F.lit(seed), message_id)
    return _anchor(root, *(F.xxhash64(root, F.lit(site), F.lit(name)) for name in (X, S)))


def with_child_anchors(frame: DataFrame, site: int, place: Column, count: Column) -> DataFrame:
    """Replace each row's anchor by that of its child number `place` (from 0) of `count`. NULL stays
    NULL.
    """
    parent = F.col(ANCHOR)
    first, last = place == 0, place + 1 == count
    # The hashes for s use -site, or a share with x equal to s would get the same hashes for both.
    # The two numbers of the difference are columns of their own, because `_minus` uses each of them
    # twice and Spark would compute each hash twice.
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


def anchors(frame: DataFrame) -> DataFrame:
    """The frame's anchors, as the columns root, x and s; NULL where a row is not tracked."""
    return frame.select(f"{ANCHOR}.*")


def negated(shares: DataFrame) -> DataFrame:
    """Shares (columns x and s) that add up to nothing with these."""
    return shares.withColumn(S, _minus(F.lit(0).cast("bigint"), F.col(S)))


def totals(of: str = "", over: WindowSpec | None = None) -> list[Column]:
    """Aggregates that combine shares, or windows of them. `Total.of` and `group_anchor` read these
    columns. `of`: stands before the names x and s.

    The XOR and the sums of no rows are NULL.
    """
    found = {
        _COUNT: F.count(F.lit(1)),
        _XOR: F.bit_xor(f"{of}{X}"),
        _LOWS: F.sum(F.col(f"{of}{S}").bitwiseAND(_LOW)),
        _HIGHS: F.sum(F.shiftrightunsigned(f"{of}{S}", _HALF)),
    }
    return [
        (column if over is None else column.over(over)).alias(name)
        for name, column in found.items()
    ]


def differ() -> Column:
    """Whether the combined shares of a row with the columns of `totals` are not 0."""
    x, s = _combined()
    return (x != 0) | (s != 0)


def group_anchor(site: int) -> Column:
    """The anchor of a merged row that has the columns of `totals`: a root of its own, whose tokens
    are the combined shares of its group. NULL for a group in which no row is tracked.
    """
    x, s = _combined()
    return F.when(x.isNotNull(), _anchor(F.xxhash64(F.lit(site), x, s), x, s))


def _combined() -> tuple[Column, Column]:
    high = F.col(_HIGHS) + F.shiftright(F.col(_LOWS), _HALF)
    return F.col(_XOR), F.shiftleft(high, _HALF).bitwiseOR(F.col(_LOWS).bitwiseAND(_LOW))


def _anchor(root: Column, x: Column, s: Column) -> Column:
    return F.struct(root.alias(ROOT), x.alias(X), s.alias(S))


def _end_or_hash(is_end: Column, end: Column, share: Column, site: int, place: Column) -> Column:
    return F.when(is_end, end).otherwise(F.xxhash64(share, F.lit(site), place))


def _minus(left: Column, right: Column) -> Column:
    """`left - right` mod 2^64, without an overflow error."""
    low = left.bitwiseAND(_LOW) - right.bitwiseAND(_LOW)
    high = (
        F.shiftrightunsigned(left, _HALF)
        - F.shiftrightunsigned(right, _HALF)
        + F.shiftright(low, _HALF)
    )
    return F.shiftleft(high, _HALF).bitwiseOR(low.bitwiseAND(_LOW))
