"""The simulation drives the product's own planner, reader and settling: it has none of its own."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from tests.architecture.source_tree import (
    PACKAGES,
    ROOT,
    Source,
    module_graph,
    reachable,
    sources,
    write_tree,
)
from tests.simulation.history import play

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

DRIVEN = {
    "spark_job.driver.query_driver": ("next_offset", "tasks", "prepare_available_now"),
    "spark_job.driver.coordinator": ("settle", "tasks", "pin_start"),
    "spark_job.driver.planner": ("make_plan",),
    "kinesis_spout.shards.start_position": ("new_shards",),
    "kinesis_spout.shards.lineage": (
        "readable",
        "vanished",
        "unfollowed",
        "out_of_sight",
        "lapsed_shards",
    ),
    "kinesis_spout.shards.data_loss": ("check_never_read", "check_holes", "children_unobserved"),
    "kinesis_spout.shards.catalog": ("refresh", "check_retention"),
    "spark_job.executor.task_reader": ("read_task",),
    "spark_job.executor.shard_feed": ("propose", "hand_over"),
    "spark_job.executor.retries": ("find_retries", "read_retries_again"),
    "state.task_log": ("extended", "continues", "folded"),
    "kinesis_spout.reading.retry_reader": ("read",),
    "spark_job.driver.retry_planner": ("due_retries",),
    "spark_job.driver.prober": ("ask",),
    "spark_job.driver.settle_plan": ("settle",),
    "state.settle": ("settle_shard", "settle_tracked", "child_states"),
    "state.tracker.inflight_record_tracker": ("emit_span", "retry", "ack_except"),
    "state.znodes.plans": ("append_log", "close"),
    "state.znodes.fence": ("commit",),
    "state.znodes.identity": ("bind",),
    "kinesis_spout.reading.shard_getter": ("fetch_unless_throttled",),
    "kinesis_spout.service.client": ("get_records", "list_shards"),
    "kinesis_spout.service.get_records_decoder": ("decode_get_records",),
}
"""The functions that a few histories must have run, by module."""
SEEDS = range(12)


def called_in(seeds: range) -> set[tuple[str, str]]:
    """Module and name of each of the product's functions that run in these histories."""
    seen: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        del argument
        if event == "call":
            seen.add((frame.f_globals.get("__name__", ""), frame.f_code.co_name))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for seed in seeds:
            play(seed)
    finally:
        sys.setprofile(before)
    return seen


def own_rules(files: list[Source]) -> list[str]:
    """Functions of the simulation that have a name of the product's planning, reading
    or settling.
    """
    names = {name for functions in DRIVEN.values() for name in functions} - {
        "read",
        "ask",
        "commit",
        "close",
        "get_records",
        "list_shards",
        "retry",
    }
    return [
        f"{file.name} has {node.name}"
        for file in files
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef) and node.name in names
    ]


def test_the_simulation_runs_the_products_own_planner_reader_and_settling() -> None:
    """Not a copy, and not a part: each of these functions is called where it stands."""
    seen = called_in(SEEDS)
    missing = [
        f"{module}.{name}"
        for module, names in DRIVEN.items()
        for name in names
        if (module, name) not in seen
    ]
    assert missing == []


def test_the_simulation_imports_the_products_modules(tmp_path: Path) -> None:
    """What it drives is reachable by its imports; what talks to a network is reached by none of its
    own.
    """
    files = sources(ROOT, *PACKAGES, "tests")
    simulated = [file for file in files if file.name.startswith("tests/simulation/")]
    found = reachable("tests.simulation.history", module_graph(files))
    assert found >= DRIVEN.keys()
    direct = {one.target.partition(".")[0] for file in simulated for one in file.imports}
    assert direct.isdisjoint({"boto3", "kazoo", "http", "socket", "requests", "pyspark"})


def test_the_simulation_has_no_planner_reader_or_settling_of_its_own(tmp_path: Path) -> None:
    bad = write_tree(
        tmp_path, {"tests/simulation/a.py": "def settle_shard(): ...\ndef other(): ...\n"}
    )
    assert own_rules(sources(bad, "tests")) == ["tests/simulation/a.py has settle_shard"]
    assert (
        own_rules(
            [file for file in sources(ROOT, "tests") if file.name.startswith("tests/simulation/")]
        )
        == []
    )
