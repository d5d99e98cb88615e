"""A drill's verdict and history as the page's JSON."""

from __future__ import annotations

import json
from typing import Any

from kinesis_spout.drills.history.events import encode_history
from kinesis_spout.drills.history.verdict import judge, verdict_json
from kinesis_spout.page.page_json import drill_json
from tests.support.drills.made_up_history import SECONDS, MadeUp

NAMES = ("job", "amount", "key")  # a line of a history has no spaces in its names


def made(**fields: Any) -> dict[str, Any]:
    history = MadeUp(names=NAMES, **fields).history()
    verdict = judge(history, drill="driver-killed")
    return drill_json(verdict_json(verdict), encode_history(history), [], ["today"])


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
    verdict = verdict_json(judge(MadeUp(records=0, faults=0).history(), drill="none"))

    def size(records: int) -> int:
        history = MadeUp(shards=1, records=records, faults=0, names=NAMES).history()
        return len(json.dumps(drill_json(verdict, encode_history(history))))

    assert size(30_000) < size(10_000) * 1.2


def test_an_empty_history_has_a_page() -> None:
    history = MadeUp(shards=1, records=0, faults=0, samples=0, names=NAMES).history()
    found = drill_json(verdict_json(judge(history, drill="none")), encode_history(history))
    assert found["letters"] == []
    assert sum(one["totals"]["put"] for one in found["lanes"]) == 0
