"""A drill's verdict and its history as the page's JSON. Pure.

The history is counted by column of the picture, so the size of the JSON depends on the number of
shards and not on the number of records.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

COLUMNS = 420
MAX_ROWS = 100  # of a table
_NS = 1_000_000  # of a millisecond
_SERIES = {"got": "read", "ack": "ack", "fail": "failed", "reject": "failed", "letter": "letter"}


def drill_json(
    verdict: bytes,
    history: bytes,
    unexplained: Iterable[Mapping[str, Any]] = (),
    about: Sequence[str] = (),
) -> dict[str, Any]:
    """`verdict`, `history`: JSON, as the drill stores them. `unexplained`: the repeats without a
    reason. `about`: lines for the end of the page.
    """
    drawn = _Drawn(json.loads(history), json.loads(verdict))
    return {
        "kind": "drill",
        "verdict": drawn.verdict,
        "spanMs": drawn.span_ns / _NS,
        "lanes": list(drawn.lanes()),
        "unexplained": [{**one} for one, _ in zip(unexplained, range(MAX_ROWS), strict=False)],
        "letters": drawn.letters(),
        "about": list(about),
    }


class _Drawn:
    """Times count from the first put."""

    def __init__(self, history: Mapping[str, Any], verdict: Mapping[str, Any]) -> None:
        self.verdict = verdict
        self._history = history
        self._puts = history.get("puts", [])
        # at, step, shard, sequence, key, number, attempt, reason
        lines = (line for each in history.get("told", {}).values() for line in each)
        self._told = sorted(
            ([int(one[0]), *one[1:]] for one in (line.split(" ", 7) for line in lines)),
            key=lambda one: int(one[0]),
        )
        self.began_ns = min((put[4] for put in self._puts), default=0)
        ends_ns = [put[4] for put in self._puts] + [one[0] for one in self._told[-1:]]
        ends_ns += [one["ended_ns"] for one in history.get("samples", [])[-1:]]
        faults_s = [one["at_s"] + one["lasted_s"] for one in verdict["faults"]]
        last_ns = max(ends_ns, default=self.began_ns) - self.began_ns
        self.span_ns = max(last_ns, round(max(faults_s, default=0) * 1e9), 1)

    def lanes(self) -> Iterator[dict[str, Any]]:
        """In the order of the shards' creation."""
        events, totals = self._events()
        column_ms = self.span_ns / _NS / COLUMNS
        shards = {one[0]: one for one in self._history.get("shards", [])}
        shards |= {one: (one, (), self.began_ns, None, "0", "0") for one in events.keys() - shards}
        for shard_id, parents, created_ns, closed_ns, first, last in sorted(
            shards.values(), key=lambda one: (one[2], one[0])
        ):
            total = totals[shard_id]
            yield {
                "shardId": shard_id,
                "parents": list(parents),
                "beganMs": (created_ns - self.began_ns) / _NS,
                "endedMs": None if closed_ns is None else (closed_ns - self.began_ns) / _NS,
                "first": int(first) / 2**128,
                "last": int(last) / 2**128,
                "events": {
                    series: [
                        (round((at + 0.5) * column_ms, 1), many)
                        for at, many in sorted(counts.items())
                    ]
                    for series, counts in events[shard_id].items()
                },
                "totals": {one: total[one] for one in ("put", "read", "again", "failed", "letter")}
                | {"left": total["put"] - total["done"]},
            }

    def _column(self, at_ns: int) -> int:
        return min(max((at_ns - self.began_ns) * COLUMNS // self.span_ns, 0), COLUMNS - 1)

    def _events(self) -> tuple[dict[str, dict[str, Counter[int]]], dict[str, Counter[str]]]:
        """By shard and series: how many in each column; and how many in all."""
        events: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
        totals: dict[str, Counter[str]] = defaultdict(Counter)

        def add(shard_id: str, series: str, at_ns: int, many: int = 1) -> None:
            events[shard_id][series][self._column(at_ns)] += many
            totals[shard_id][series] += many

        for put in self._puts:
            add(put[2], "put", put[4])
        resolved: set[tuple[str, str]] = set()
        for at_ns, step, shard_id, sequence, *_ in self._told:
            if (series := _SERIES.get(step)) is None:
                continue
            add(shard_id, series, at_ns)
            if step in {"ack", "letter"}:
                resolved.add((shard_id, sequence))
            elif step == "got" and (shard_id, sequence) in resolved:
                add(shard_id, "again", at_ns)
        for shard_id, at_ns, moved in self._checkpoints():
            add(shard_id, "done", at_ns, moved)
        return events, totals

    def _checkpoints(self) -> Iterator[tuple[str, int, int]]:
        """How many of a shard's records each move of its checkpoint has passed; negative where it
        moved back.
        """
        sequences: dict[str, list[int]] = defaultdict(list)
        for put in self._puts:
            sequences[put[2]].append(int(put[3]))
        for of_shard in sequences.values():
            of_shard.sort()
        passed: Counter[str] = Counter()
        for sample in self._history.get("samples", []):
            for shard_id, state in sample.get("changed", {}).items():
                number = (state.get("checkpoint") or "0").partition(".")[0]
                now = bisect_right(sequences[shard_id], int(number))
                if state.get("lifecycle") == "finished":
                    now = len(sequences[shard_id])
                if moved := now - passed[shard_id]:
                    passed[shard_id] = now
                    yield shard_id, sample["ended_ns"], moved

    def letters(self) -> list[dict[str, Any]]:
        """Dead letters by reason, the most records first."""
        found: dict[str, list[list[Any]]] = defaultdict(list)
        for one in self._told:
            if one[1] == "letter":
                found[one[7] if len(one) > 7 else ""].append(one)
        names = {
            (put[2], put[3] if put[5] is None else f"{put[3]}.{put[5]}"): f"{put[0]} {put[1]}"
            for put in self._puts
        }
        rows: list[dict[str, Any]] = [
            {
                "reason": reason,
                "records": len({(one[2], one[3]) for one in all_}),
                "least": min(int(one[6]) for one in all_),
                "most": max(int(one[6]) for one in all_),
                "example": names.get((all_[0][2], all_[0][3]), f"{all_[0][4]} {all_[0][5]}"),
            }
            for reason, all_ in found.items()
        ]
        return sorted(rows, key=lambda one: (-one["records"], one["reason"]))[:MAX_ROWS]
