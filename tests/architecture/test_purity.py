"""What decides is pure: no I/O, clock, threads, logging or global randomness, in the module itself
or in what it imports.
"""

from __future__ import annotations

import ast
from fnmatch import fnmatch
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Rooms as a whole, and the modules that decide among others that act.
PURE = (
    "state/*.py",
    *(f"state/{room}/*" for room in ("tracker", "codec", "moves", "store")),
    *(
        "kinesis_spout/inspection/*",
        "kinesis_spout/drills/history/*",
        "kinesis_spout/page/*_json.py",
    ),
    *(
        f"kinesis_spout/spout/{name}.py"
        for name in (
            "retry_buffer",
            "record_run",
            "metrics",
            "tracked_shard",
            "rotation",
            "isolation",
        )
    ),
    "kinesis_spout/tuple_tree/acker.py",
    "kinesis_spout/reading/pacing.py",
    *(f"kinesis_spout/shards/{name}.py" for name in ("assignment", "lineage", "start_position")),
    "spark_job/driver/*planner.py",
    *(
        f"spark_job/tracking/{name}.py"
        for name in ("outcome_rules", "withholding", "content_check", "poison_search", "bisect")
    ),
)
# In these rooms, what reads for those that decide.
ACTS = frozenset(
    {"state/failpoint.py", "state/memory_store.py", "state/process.py"}
    | {"kinesis_spout/inspection/reader.py"}
)
# fmt: off
IMPURE_MODULES = frozenset({
    "asyncio", "boto3", "botocore", "concurrent", "http", "importlib", "io", "kazoo",
    "logging", "multiprocessing", "os", "pathlib", "pyspark", "queue", "requests", "secrets",
    "select", "shutil", "signal", "socket", "sqlite3", "subprocess", "sys", "tempfile",
    "threading", "time", "urllib3", "uuid",
})
# fmt: on
# Locks on which no outcome depends: around what msgspec does not do safely in several threads, and
# around each step of the acker.
LOCKS = frozenset(
    {("state/codec/values.py", "threading"), ("kinesis_spout/tuple_tree/acker.py", "threading")}
)
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})
CLOCK_READS = frozenset({"now", "utcnow", "today"})
# The class is passed in and seeded by whoever owns the randomness; the module's functions share one
# hidden state.
RANDOM_ALLOWED = frozenset({"Random"})


def impurities(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """What the modules that fit, and all modules of ours that they import when they run, do besides
    deciding.
    """
    by_module = {file.module: file for file in sources(root, *PACKAGES)}
    graph = module_graph(list(by_module.values()), with_types=False)
    found = {pattern: _fitting(pattern, by_module) for pattern in patterns}
    starts = {module for modules in found.values() for module in modules}
    reached = sorted({module for start in starts for module in reachable(start, graph)})
    return [f"{pattern} is missing" for pattern, modules in found.items() if not modules] + [
        fault for module in reached if module in by_module for fault in _faults(by_module[module])
    ]


def _fitting(pattern: str, by_module: Mapping[str, Source]) -> list[str]:
    whole_room = pattern.endswith("/*")
    return [
        module
        for module, file in by_module.items()
        if fnmatch(file.name, pattern)
        and (whole_room or file.name.count("/") == pattern.count("/"))
        and file.name not in ACTS
    ]


def _faults(file: Source) -> Iterator[str]:
    has_random = any(
        one.target == "random" for one in file.imports
    )  # else the name is an argument's: the injected one
    for one in file.imports:
        top, _, rest = one.target.partition(".")
        opens_urls = one.target.startswith("urllib.request")  # urllib.parse only takes texts apart
        if (file.name, top) in LOCKS:
            continue
        if (
            top in IMPURE_MODULES
            or opens_urls
            or (top == "random" and rest and rest not in RANDOM_ALLOWED)
        ):
            yield f"{file.name}:{one.line} imports {one.target}"
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            owner, _, last = called.rpartition(".")
            random_function = has_random and owner == "random" and last not in RANDOM_ALLOWED
            clock_read = last in CLOCK_READS and owner.rpartition(".")[2] in {"datetime", "date"}
            if called in IMPURE_CALLS or random_function or clock_read:
                yield f"{file.name}:{node.lineno} calls {called}"


def test_what_decides_does_nothing_else(tmp_path: Path) -> None:
    """The tracker and its neighbours, the assigner, the pacing and the planner take time and
    randomness as arguments.
    """
    bad = write_tree(
        tmp_path,
        {
            "state/a.py": "import time\nimport random\nfrom random import Random\n"
            "from state import b\nx = random.Random(1)\n",
            "state/b.py": "from random import choice\nimport datetime\ndatetime.datetime.now()\n",
            "state/c.py": "import random\nrandom.shuffle([])\nopen('x')\n",
            "state/d.py": "import threading\n",
            "state/e.py": "from random import Random\n"
            "def jitter(random: Random):\n    return random.random()\n",
        },
    )
    assert impurities(bad, ("state/[ac].py", "state/e.py", "state/f.py")) == [
        "state/f.py is missing",
        "state/a.py:1 imports time",
        "state/b.py:1 imports random.choice",
        "state/b.py:3 calls datetime.datetime.now",
        "state/c.py:2 calls random.shuffle",
        "state/c.py:3 calls open",
    ]
    assert impurities(ROOT, PURE) == []
