"""A drill's verdict and history as the JSON that the page draws. Pure.

The history is counted by column of the picture, so the size of the JSON depends on the number of
shards and not on the number of records. Times count from the first put.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from kinesis_spout.drills.history.checks import states_by_shard
from kinesis_spout.drills.history.events import ShardLife, Step
from kinesis_spout.service.shard_info import HASH_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.drills.history.checks import Place, Redelivery
    from kinesis_spout.drills.history.events import History, Told
    from kinesis_spout.drills.history.verdict import Verdict

COLUMNS = 420
MAX_ROWS = 100  # of a table
_NS = 1_000_000  # of a millisecond
_SERIES = {
    Step.GOT: "read",
    Step.ACK: "ack",
    Step.FAIL: "failed",
    Step.REJECT: "failed",
    Step.LETTER: "letter",
}


def drill_json(
    history: History, verdict: Verdict, again: Sequence[Redelivery], about: Sequence[str] = ()
) -> dict[str, Any]:
    """`again`: the history's redeliveries. `about`: lines for the end of the page."""
    began_ns = min((put.at_ns for put in history.puts), default=0)
    ends_ns = [put.at_ns for put in history.puts] + [told.at_ns for told in history.told[-1:]]
    ends_ns += [sample.ended_ns for sample in history.samples[-1:]]
    ends_ns += [fault.ended_ns for fault in history.faults]
    span_ns = max(max(ends_ns, default=began_ns) - began_ns, 1)
    return {
        "kind": "drill",
        "verdict": msgspec.to_builtins(verdict),
        "spanMs": span_ns / _NS,
        "lanes": list(_lanes(history, again, began_ns, span_ns)),
        "unexplained": list(islice(_unexplained(again, began_ns), MAX_ROWS)),
        "letters": _letters(history),
        "about": list(about),
    }


def _lanes(
    history: History, again: Sequence[Redelivery], began_ns: int, span_ns: int
) -> Iterator[dict[str, Any]]:
    """In the order of the shards' creation."""
    columns: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    for shard_id, series, at_ns, many in _events(history, again):
        column = min(max((at_ns - began_ns) * COLUMNS // span_ns, 0), COLUMNS - 1)
        columns[shard_id][series][column] += many
        totals[shard_id][series] += many
    column_ms, total_keys = span_ns / _NS / COLUMNS, ("put", "read", "again", "failed", "letter")
    unlisted = {one: ShardLife(one, (), began_ns, None, 0, 0) for one in columns}
    lives = (unlisted | history.shards).values()
    for one in sorted(lives, key=lambda one: (one.created_ns, one.shard_id)):
        total = totals[one.shard_id]
        yield {
            "shardId": one.shard_id,
            "parents": list(one.parents),
            "beganMs": (one.created_ns - began_ns) / _NS,
            "endedMs": None if one.closed_ns is None else (one.closed_ns - began_ns) / _NS,
            "first": one.hash_start / HASH_KEYS,
            "last": one.hash_end / HASH_KEYS,
            "events": {
                series: [
                    (round((at + 0.5) * column_ms, 1), many) for at, many in sorted(counts.items())
                ]
                for series, counts in columns[one.shard_id].items()
            },
            "totals": {name: total[name] for name in total_keys}
            | {"left": total["put"] - total["done"]},
        }


def _events(history: History, again: Sequence[Redelivery]) -> Iterator[tuple[str, str, int, int]]:
    """What is counted: the shard, the series, the time, how many. A checkpoint that moves has done
    the records that it passes; negative where it moves back.
    """
    places: dict[str, list[Place]] = defaultdict(list)
    for put in history.puts:
        places[put.shard_id].append((put.sequence, 0))
        yield put.shard_id, "put", put.at_ns, 1
    for told in history.told:
        if told.step in _SERIES:
            yield told.shard_id, _SERIES[told.step], told.at_ns, 1
    for one in again:
        if one.is_duplicate:
            yield one.told.shard_id, "again", one.told.at_ns, 1
    for shard_id, states in states_by_shard(history.samples).items():
        of_shard, passed = sorted(places[shard_id]), 0
        for sample, view in states:
            now = passed if view is None else bisect_right(of_shard, view.acked_to)
            if now != passed:
                yield shard_id, "done", sample.ended_ns, now - passed
            passed = now


def _unexplained(again: Sequence[Redelivery], began_ns: int) -> Iterator[dict[str, Any]]:
    """The repeats without a reason."""
    for now, since in ((one.told, one.since) for one in again if not one.explained):
        yield {
            "key": now.key,
            "number": now.number,
            "shardId": now.shard_id,
            "sequence": str(now.sequence),
            "step": now.step,
            "atMs": (now.at_ns - began_ns) / _NS,
            "run": now.run,
            "earlierStep": since.step,
            "earlierMs": (since.at_ns - began_ns) / _NS,
            "earlierRun": since.run,
        }


def _letters(history: History) -> list[dict[str, Any]]:
    """Dead letters by reason, the most records first."""
    found: dict[str, list[Told]] = defaultdict(list)
    for told in history.told:
        if told.step is Step.LETTER:
            found[told.reason].append(told)
    puts = {put.record: put for put in history.puts}
    rows: list[dict[str, Any]] = []
    for reason, letters in found.items():
        example, attempts = letters[0], [one.attempt for one in letters]
        named = puts.get(example.record, example)
        rows.append(
            {
                "reason": reason,
                "records": len({one.record for one in letters}),
                "least": min(attempts),
                "most": max(attempts),
                "example": f"{named.key} {named.number}",
            }
        )
    return sorted(rows, key=lambda one: (-one["records"], one["reason"]))[:MAX_ROWS]
