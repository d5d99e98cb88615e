"""A drill's verdict and history as the page draws them: what is counted, and how large it gets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kinesis_spout.drills.history.checks import redeliveries
from kinesis_spout.drills.history.picture import drill_json
from kinesis_spout.drills.history.verdict import Drilled, judge
from tests.support.drills.made_up_history import SECONDS, MadeUp

if TYPE_CHECKING:
    from kinesis_spout.drills.history.events import History


def made(**fields: Any) -> dict[str, Any]:
    return _drawn(MadeUp(**fields).history())


def _drawn(history: History) -> dict[str, Any]:
    again = redeliveries(history)
    verdict = judge(Drilled(drill="driver-killed", history=history), again)
    return drill_json(history, verdict, again)


def test_each_step_is_counted_in_its_shard_and_column() -> None:
    found = made()
    verdict = found["verdict"]
    totals = [one["totals"] for one in found["lanes"]]
    for name, figure in (("put", "records"), ("read", "deliveries"), ("again", "duplicates")):
        assert sum(one[name] for one in totals) == verdict[figure]
    assert sum(one["letter"] for one in totals) == verdict["letters"]
    assert all(
        0 < ms < found["spanMs"]
        for lane in found["lanes"]
        for series in lane["events"].values()
        for ms, _ in series
    )
    assert found["spanMs"] >= SECONDS * 1000
    assert sum(one["records"] for one in found["letters"]) == verdict["letters"]
    split = found["lanes"][-1]
    assert split["parents"] == [found["lanes"][3]["shardId"]]
    assert split["beganMs"] == found["lanes"][3]["endedMs"]


def test_the_size_does_not_grow_with_the_records() -> None:
    def size(records: int) -> int:
        history = MadeUp(shards=1, records=records, faults=0).history()
        return len(json.dumps(_drawn(history) | {"verdict": None}))

    assert size(30_000) < size(10_000) * 1.2
