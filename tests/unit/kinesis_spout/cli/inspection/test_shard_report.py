"""The report on each shard, with and without an application: its fields, its JSON, its tree."""

from __future__ import annotations

import json

from kinesis_spout.cli.inspection.shard_report import ShardLine, shard_lines
from kinesis_spout.shards.lineage import HASH_KEYS, ShardLineage
from tests.support.state.shard_values import LEFT, lineage, shard, state

NAMES = [
    *("shardId", "state", "parents", "waitsFor", "hashKeys", "hashPercent"),
    *("readPosition", "checkpoint", "unresolved", "lagMs", "lagMeasured"),
]


def report(
    lineage: ShardLineage,
    *,
    has_application: bool = True,
    is_active: bool = True,
    **measured_ms: int,
) -> list[ShardLine]:
    return shard_lines(
        lineage,
        has_application=has_application,
        is_active=is_active,
        now_ms=10_000,
        measured_ms=measured_ms,
    )


def test_every_object_has_the_documented_names() -> None:
    """Hash keys are strings, because most JSON readers cannot hold such numbers."""
    lines = report(lineage([shard("b", "a", keys=LEFT)], state("b"), state("lost")))
    objects = json.loads(json.dumps([line.as_json() for line in lines]))
    assert [one["state"] for one in objects] == ["past", "readable", "vanished", "hole"]
    assert [list(one) for one in objects] == [NAMES] * 4
    assert objects[1]["hashKeys"] == ["0", str(HASH_KEYS // 2 - 1)]
    assert (objects[2]["hashKeys"], objects[2]["hashPercent"]) == (None, None)


# the tree -----------------------------------------------------------------------------------------
