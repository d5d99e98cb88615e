"""Each folder is a room, and a table says which rooms it may enter.

The packages' own order (`test_layers`) is coarser: it holds between `state`, `scheme`,
`kinesis_spout` and `spark_job`. A file at the top of a package belongs to the room that has the
package's name, unless the table gives it a room of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.architecture.source_tree import PACKAGES, ROOT, module_graph, sources, write_tree

if TYPE_CHECKING:
    from pathlib import Path

# The files at the top that all rooms of their package may use.
_STATE = frozenset({"state", "state.collections", "state.store"})
_LEAVES = frozenset(
    {"kinesis_spout", "scheme", "state"}
    | {"state.codec", "state.store", "state.tracker", "state.moves"}
)
_SERVICE = _LEAVES | {"kinesis_spout.service"}
_ENGINE = _SERVICE | {
    "kinesis_spout.aggregation",
    "kinesis_spout.reading",
    "kinesis_spout.shards",
}
_STORES = frozenset(
    {"state.settle", "state.memory_store", "state.znodes", "state.zookeeper", "state.collections"}
)
_SPARK_LEAVES = _ENGINE | _STORES | {"spark_job", "spark_job.options", "spark_job.query_failure"}
_TRACKING = _SPARK_LEAVES | {"spark_job.dead_letter"}

MAY_ENTER: dict[str, frozenset[str]] = {
    "scheme": frozenset(),
    # state: zookeeper -> znodes -> {codec, moves} -> {store, model}; tracker -> model
    "state": frozenset({"state.store"}),
    "state.collections": frozenset({"state"}),
    "state.store": frozenset({"state"}),
    "state.moves": frozenset({"state", "state.store"}),
    "state.tracker": _STATE,
    "state.codec": _STATE,
    "state.znodes": _STATE | {"state.codec", "state.moves"},
    "state.zookeeper": _STATE | {"state.codec", "state.znodes"},
    "state.settle": _STATE | {"state.tracker"},
    "state.memory_store": _STATE | {"state.codec", "state.znodes"},
    # kinesis_spout: cli -> spout -> {reading, shards, tuple_tree} -> service -> leaves
    "kinesis_spout": frozenset({"state", "scheme"}),
    "kinesis_spout.service": _LEAVES,
    "kinesis_spout.aggregation": frozenset({"kinesis_spout", "scheme"}),
    "kinesis_spout.reading": _SERVICE | {"kinesis_spout.aggregation"},
    "kinesis_spout.shards": _SERVICE | {"kinesis_spout.aggregation"},
    "kinesis_spout.checkpoints": _ENGINE | {"state.znodes"},
    # where other consumers stand: readers of what they have stored
    "kinesis_spout.checkpoints.migration": _ENGINE
    | {"state.codec", "state.znodes", "kinesis_spout.checkpoints"},
    "kinesis_spout.tuple_tree": _LEAVES | {"state.collections"},
    "kinesis_spout.spout": _ENGINE | _STORES | {"kinesis_spout.tuple_tree"},
    "kinesis_spout.acker": frozenset({"kinesis_spout.tuple_tree"}),
    # names the spout for types only; what both exporters use does not know it
    "kinesis_spout.prometheus_exporter.definitions": frozenset(),
    "kinesis_spout.prometheus_exporter.server": frozenset(
        {"kinesis_spout", "kinesis_spout.prometheus_exporter.definitions"}
    ),
    "kinesis_spout.prometheus_exporter": frozenset(
        {
            "kinesis_spout",
            "kinesis_spout.spout",
            "kinesis_spout.prometheus_exporter.definitions",
            "kinesis_spout.prometheus_exporter.server",
        }
    ),
    # what an application looks like from outside: pure, but for its reader
    "kinesis_spout.inspection": _SERVICE | {"kinesis_spout.shards", "state.znodes"},
    # what a job needs, tried from outside
    "kinesis_spout.doctor": _SERVICE | {"state.znodes", "state.zookeeper"},
    "kinesis_spout.inspection.page": _SERVICE
    | {"kinesis_spout.shards", "kinesis_spout.inspection", "kinesis_spout.html"},
    "kinesis_spout.testing": frozenset({"kinesis_spout"}),
    "kinesis_spout.html": frozenset({"kinesis_spout", "state"}),
    "kinesis_spout.drills.history": frozenset({"state.codec"})
    | frozenset({"kinesis_spout", "state", "state.tracker", "kinesis_spout.html"}),
    "kinesis_spout.drills": _ENGINE
    | _STORES
    | {
        "kinesis_spout.spout",
        "kinesis_spout.testing",
        "kinesis_spout.html",
        "kinesis_spout.drills.history",
    },
    "kinesis_spout.cli": _ENGINE
    | _STORES
    | {
        "kinesis_spout.checkpoints",
        "kinesis_spout.checkpoints.migration",
        "kinesis_spout.spout",
        "kinesis_spout.prometheus_exporter",
        "kinesis_spout.tuple_tree",
        "kinesis_spout.inspection",
        "kinesis_spout.doctor",
        "kinesis_spout.inspection.page",
        "kinesis_spout.testing",
        "kinesis_spout.drills",
        "kinesis_spout.drills.history",
        "kinesis_spout.html",
    },
    # spark_job: demo -> commands -> kinesis_source -> {data_source, acker}
    "spark_job": _SPARK_LEAVES,
    "spark_job.options": _ENGINE | _STORES,
    "spark_job.query_failure": frozenset(
        {"kinesis_spout", "kinesis_spout.shards", "spark_job", "state"}
    ),
    "spark_job.driver": _SPARK_LEAVES,
    "spark_job.executor": _SPARK_LEAVES,
    "spark_job.batch_read": _SPARK_LEAVES,
    "spark_job.sink": _SPARK_LEAVES,
    "spark_job.data_source": _SPARK_LEAVES
    | {"spark_job.driver", "spark_job.executor", "spark_job.batch_read", "spark_job.sink"},
    "spark_job.dead_letter": _SPARK_LEAVES,
    "spark_job.tracking": _TRACKING,
    "spark_job.acker": _TRACKING | {"spark_job.tracking"},
    "spark_job.kinesis_source": _TRACKING
    | {"spark_job.data_source", "spark_job.tracking", "spark_job.acker"},
    "spark_job.metrics": _SPARK_LEAVES
    | {"kinesis_spout.prometheus_exporter.definitions", "kinesis_spout.prometheus_exporter.server"},
    "spark_job.commands": _TRACKING
    | {
        "spark_job.metrics",
        "spark_job.kinesis_source",
        "spark_job.tracking",
        "kinesis_spout.cli",
        "kinesis_spout.doctor",
        "kinesis_spout.drills",
        "kinesis_spout.drills.history",
    },
    "spark_job.demo": _TRACKING
    | {
        "spark_job.kinesis_source",
        "spark_job.tracking",
        "spark_job.commands",
        "kinesis_spout.cli",
    },
}
# The face of spark_job brings its public names together, whatever room they are in.
FACE = "spark_job"


def room_of(module: str) -> str:
    """The longest name in the table that the module's name begins with."""
    parts = module.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next(name for name in names if name in MAY_ENTER)


def trespasses(root: Path) -> list[str]:
    """Imports from a room that the file's own room may not enter, also for types only."""
    graph = module_graph(sources(root, *PACKAGES))
    return [
        f"{module} imports {imported}"
        for module, all_imported in sorted(graph.items())
        for imported in sorted(all_imported)
        if (here := room_of(module)) != (there := room_of(imported))
        and there not in MAY_ENTER[here]
        and module != FACE
        and imported not in PACKAGES  # a package's version, or the face of spark_job
    ]


def test_rooms_are_entered_through_the_doors_in_the_table(tmp_path: Path) -> None:
    """`rooms` of each package depend in one direction; the table above says which."""
    bad = write_tree(
        tmp_path,
        {
            "state/plan.py": "from state.codec.values import decode\n",
            "state/codec/values.py": "",
            "state/znodes/plans.py": "from state.codec.values import encode\n",
            "state/tracker/nodes.py": "def f():\n    from state.znodes import plans\n",
            "kinesis_spout/clock.py": "",
            "kinesis_spout/service/client.py": "from kinesis_spout.clock import Clock\n",
            "kinesis_spout/reading/page.py": "import kinesis_spout.shards.lineage\n",
            "kinesis_spout/aggregation/packing.py": "import kinesis_spout.service.client\n",
            "kinesis_spout/shards/lineage.py": "from kinesis_spout.service import client\n",
            "kinesis_spout/cli/main.py": "import kinesis_spout.spout.session\n",
            "kinesis_spout/spout/session.py": "import kinesis_spout.cli.main\n",
            "spark_job/driver/planner.py": "import spark_job.executor.task_reader\n",
            "spark_job/executor/task_reader.py": "import kinesis_spout.spout.session\n",
            "spark_job/tracking/options.py": "import spark_job.acker.run\n",
            "spark_job/acker/run.py": "import spark_job.tracking.options\n",
            "spark_job/dead_letter/redrive.py": "import kinesis_spout.cli.main\n",
            "spark_job/commands/redrive.py": "import kinesis_spout.cli.main\n",
        },
    )
    assert trespasses(bad) == [
        "kinesis_spout.aggregation.packing imports kinesis_spout.service.client",
        "kinesis_spout.reading.page imports kinesis_spout.shards.lineage",
        "kinesis_spout.spout.session imports kinesis_spout.cli.main",
        "spark_job.dead_letter.redrive imports kinesis_spout.cli.main",
        "spark_job.driver.planner imports spark_job.executor.task_reader",
        "spark_job.executor.task_reader imports kinesis_spout.spout.session",
        "spark_job.tracking.options imports spark_job.acker.run",
        "state.plan imports state.codec.values",
        "state.tracker.nodes imports state.znodes.plans",
    ]
    assert trespasses(ROOT) == []
