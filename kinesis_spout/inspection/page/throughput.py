"""What successive looks say of an application's speed. Pure: the caller keeps the series.

Looks do not count records: ZooKeeper holds positions. So the measure that is always there is the
stream's own time: how many seconds of it are read in a second. Of a Spark job, the rows that the
tasks of its plans have published are counted too. What a plan read after the last look at it is
missed, so these are lower bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.inspection.health import READ_PHASES

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look
    from kinesis_spout.inspection.snapshot import Snapshot


class Sample(NamedTuple):
    """One look.

    - `lag_ms`: the largest lag of all shards; None where no lag is known.
    - `pace`: seconds of the stream's time that were read in a second of the window, the mean of the
      shards that are read: 1 keeps pace with the clock. None where it is not known.
    - `rows_per_s`: rows that a Spark job's tasks have published since the look before; None for
      spouts, and for a first look.
    """

    at_ms: int
    lag_ms: int | None
    pace: float | None
    rows_per_s: float | None


def sample_of(look: Look, previous: Snapshot | None) -> Sample:
    """`previous`: the snapshot of the look before."""
    lags = [lag for one in look.now.shard_ids if (lag := look.lag_ms(one)) is not None]
    return Sample(
        at_ms=look.now.now_ms,
        lag_ms=max(lags, default=None),
        pace=_pace(look),
        rows_per_s=None if previous is None else _rows_per_s(previous, look.now),
    )


def _pace(look: Look) -> float | None:
    if not look.window_ms:
        return None
    moved_ms: list[int] = []
    for shard_id in look.now.states:
        was, now = look.before.progress(shard_id), look.now.progress(shard_id)
        if look.phase(shard_id) not in READ_PHASES or was is None or now is None:
            continue
        if was.verified_ms is not None and now.verified_ms is not None:
            moved_ms.append(max(0, now.verified_ms - was.verified_ms))
    return sum(moved_ms) / len(moved_ms) / look.window_ms if moved_ms else None


def _rows_per_s(previous: Snapshot, now: Snapshot) -> float | None:
    passed_ms = now.now_ms - previous.now_ms
    if now.stored.plan is None or now.is_spout or passed_ms <= 0:
        return None
    plan, rows = _rows(now)
    was, before = _rows(previous)
    return max(0, rows - (before if plan == was else 0)) * 1000 / passed_ms


def _rows(seen: Snapshot) -> tuple[str | None, int]:
    plan = seen.stored.plan
    if plan is None:
        return None, 0
    return plan.plan_id, sum(task.log.rows for task in plan.tasks if task.log is not None)
