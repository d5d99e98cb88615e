"""The rules of the layout: layers, vendors' doors, purity, and what stands at the top."""

from __future__ import annotations

import ast
import tomllib
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from tests.architecture.source_tree import (
    OTHER_CODE,
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

MAY_IMPORT = {
    "scheme": {"scheme"},
    "state": {"state"},
    "kinesis_spout": {"kinesis_spout", "state", "scheme"},
    "spark_job": {"spark_job", "kinesis_spout", "state", "scheme"},
}
# What an operator asks, what serves one consumer, and what proves: the rest works without them.
TOOLS = (
    *("spout", "tuple_tree", "acker", "prometheus_exporter", "inspection", "checkpoints", "doctor"),
    *("page", "drills", "testing", "cli"),
)
_TOOLS = tuple(f"kinesis_spout.{room}" for room in TOOLS)
_SPARK_JOB = ("spark_job.driver", "spark_job.executor", "spark_job.tracking")
# What the modules of a room never import, also for types only.
NEVER = {
    **dict.fromkeys(
        (f"kinesis_spout.{room}" for room in ("service", "aggregation", "reading", "application")),
        _TOOLS,
    ),
    "kinesis_spout.shards": (*_TOOLS, "kinesis_spout.application", "kinesis_spout.reading"),
    **{room: (*_TOOLS, *(other for other in _SPARK_JOB if other != room)) for room in _SPARK_JOB},
}
# The files that may import a vendor at their top, and those that may only inside a function or for
# types.
VENDORS = {
    "kazoo": (("state/zookeeper/*",), ()),
    "boto3": (("kinesis_spout/service/botocore_session.py", "kinesis_spout/testing*"), ()),
    "botocore": (
        (
            "kinesis_spout/service/botocore_session.py",
            "kinesis_spout/service/client.py",
            "kinesis_spout/service/wire.py",
            "kinesis_spout/service/subscription.py",
            "kinesis_spout/service/surroundings.py",
            "kinesis_spout/service/dynamodb.py",
            "kinesis_spout/service/glue_registry.py",
            "kinesis_spout/testing*",
        ),
        (),
    ),
    "pyspark": (("spark_job/*", "scheme/*_columns.py"), ("scheme/*",)),
}


def upward_imports(root: Path) -> list[str]:
    """Imports from a layer that the file's own layer must not know, tests and tools included among
    the forbidden.
    """
    ours = {*PACKAGES, *OTHER_CODE}
    return [
        f"{file.name}:{one.line} imports {one.target}"
        for file in sources(root, *PACKAGES)
        for one in file.imports
        if (layer := one.target.split(".")[0]) in ours
        and layer not in MAY_IMPORT[file.module.split(".")[0]]
    ]


def circles(root: Path) -> list[str]:
    """Modules that import themselves through others; imports in functions and for types
    count too.
    """
    graph = module_graph(sources(root, *PACKAGES))
    return [
        module
        for module in graph
        if any(module in reachable(imported, graph) for imported in graph[module])
    ]


def vendors_at_the_wrong_door(root: Path) -> list[str]:
    """Imports of a vendor in a file that is not its adapter."""
    return [
        f"{file.name}:{one.line} imports {one.target}"
        for file in sources(root, *PACKAGES)
        for one in file.imports
        if (doors := VENDORS.get(one.target.split(".")[0])) is not None
        and not any(
            fnmatch(file.name, pattern) for pattern in (*doors[0], *(doors[1] if one.lazy else ()))
        )
    ]


def forbidden_rooms(root: Path) -> list[str]:
    return [
        f"{module} imports {imported}"
        for module, all_imported in sorted(module_graph(sources(root, *PACKAGES)).items())
        for room, forbidden in NEVER.items()
        if _is_in(module, room)
        for imported in sorted(all_imported)
        if any(_is_in(imported, other) for other in forbidden)
    ]


def _is_in(module: str, room: str) -> bool:
    return f"{module}.".startswith(f"{room}.")


def eager_column_imports(root: Path) -> list[str]:
    """Imports, run with their file, of the scheme files that hold Spark columns."""
    return [
        f"{file.name}:{one.line} imports {one.target}"
        for file in sources(root, *PACKAGES)
        for one in file.imports
        if not one.lazy and fnmatch(one.target, "scheme.*_columns*")
    ]


def test_imports_go_downwards_only(tmp_path: Path) -> None:
    """The leaves, scheme and state, know nobody; kinesis_spout knows these two; spark_job knows
    all; nobody knows the tests.
    """
    bad = write_tree(
        tmp_path,
        {
            "state/a.py": "from scheme import record\n",
            "scheme/b.py": "def late():\n    import kinesis_spout.clock\n",
            "kinesis_spout/c.py": "import importlib\nimportlib.import_module('spark_job.run')\n",
            "spark_job/d.py": "from tests.support.spark import session\nfrom state import plan\n",
            "spark_job/e.py": "from state import plan\nfrom scheme.record import Record\n",
        },
    )
    assert sorted(upward_imports(bad)) == [
        "kinesis_spout/c.py:2 imports spark_job.run",
        "scheme/b.py:2 imports kinesis_spout.clock",
        "spark_job/d.py:1 imports tests.support.spark.session",
        "state/a.py:1 imports scheme.record",
    ]
    assert upward_imports(ROOT) == []


def test_no_module_imports_itself_through_others(tmp_path: Path) -> None:
    """Also not through an import in a function, for types only, or relative."""
    bad = write_tree(
        tmp_path,
        {
            "state/__init__.py": "",
            "state/a.py": "from state import b\n",
            "state/b.py": "import typing\nif typing.TYPE_CHECKING:\n    from state.c import C\n",
            "state/c.py": "class C:\n    def f(self):\n        from .a import x\n",
            "state/d.py": "from state.a import b\n",
        },
    )
    assert sorted(circles(bad)) == ["state.a", "state.b", "state.c"]
    assert circles(ROOT) == []


def test_each_vendor_is_imported_behind_its_one_door_only(tmp_path: Path) -> None:
    """Kazoo in the ZooKeeper files, boto3 in the Kinesis session, pyspark in spark_job (in
    scheme, where columns are made).
    """
    bad = write_tree(
        tmp_path,
        {
            "state/plan.py": "def f():\n    from kazoo.client import KazooClient\n",
            "state/zookeeper/store.py": "from kazoo.client import KazooClient\n",
            "kinesis_spout/spout/kinesis_spout.py": "import botocore.exceptions\n",
            "kinesis_spout/service/botocore_session.py": "import boto3\n",
            "scheme/json_scheme.py": "import pyspark\n",
            "scheme/json_columns.py": "import pyspark\n",
            "scheme/plain_schemes.py": "def columns():\n    from pyspark.sql import functions\n",
            "spark_job/data_source.py": "import pyspark\nimport boto3\n",
        },
    )
    assert sorted(vendors_at_the_wrong_door(bad)) == [
        "kinesis_spout/spout/kinesis_spout.py:1 imports botocore.exceptions",
        "scheme/json_scheme.py:1 imports pyspark",
        "spark_job/data_source.py:2 imports boto3",
        "state/plan.py:2 imports kazoo.client.KazooClient",
    ]
    assert vendors_at_the_wrong_door(ROOT) == []


def test_a_scheme_loads_spark_only_when_it_makes_columns(tmp_path: Path) -> None:
    """Whoever decodes record by record needs no Spark."""
    bad = write_tree(
        tmp_path,
        {
            "scheme/__init__.py": "from scheme.json_columns import decoded\n",
            "scheme/json_scheme.py": "def columns():\n    from scheme import json_columns\n",
        },
    )
    assert eager_column_imports(bad) == ["scheme/__init__.py:1 imports scheme.json_columns.decoded"]
    assert eager_column_imports(ROOT) == []


def test_the_heart_imports_no_tool_and_the_rooms_of_a_job_not_each_other(tmp_path: Path) -> None:
    """What plans, what reads and what tracks outcomes run in different processes."""
    bad = write_tree(
        tmp_path,
        {
            "kinesis_spout/spout/session.py": "import kinesis_spout.shards.lineage\n",
            "kinesis_spout/shards/lineage.py": "def f():\n    import kinesis_spout.spout.session\n",
            "spark_job/driver/planner.py": "import spark_job.executor.task_reader\n",
            "spark_job/executor/task_reader.py": "import kinesis_spout.cli\n",
            "spark_job/commands/run.py": "import kinesis_spout.cli\n",
            "kinesis_spout/cli/__init__.py": "",
        },
    )
    assert forbidden_rooms(bad) == [
        "kinesis_spout.shards.lineage imports kinesis_spout.spout.session",
        "spark_job.driver.planner imports spark_job.executor.task_reader",
        "spark_job.executor.task_reader imports kinesis_spout.cli",
    ]
    assert forbidden_rooms(ROOT) == []


# Rooms as a whole, and the modules that decide among others that act.
PURE = (
    "state/*.py",
    *(f"state/{room}/*" for room in ("tracker", "codec", "store")),
    *(
        "kinesis_spout/inspection/*",
        "kinesis_spout/drills/history/*",
        "kinesis_spout/page/page_json.py",
    ),
    *(f"kinesis_spout/spout/{name}.py" for name in ("metrics", "tracked_shard", "rotation")),
    "kinesis_spout/acker.py",
    "kinesis_spout/reading/pacing.py",
    *(f"kinesis_spout/shards/{name}.py" for name in ("lineage", "start_position")),
    "spark_job/driver/*planner.py",
    *(
        f"spark_job/tracking/{name}.py"
        for name in ("outcome_rules", "withholding", "content_check", "poison_search")
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
# Locks on which no outcome depends: around what msgspec does not do safely in several threads,
# around each step of the acker, and around the turns of a shard's two pacers.
_WITH_LOCKS = ("state/codec/values.py", "kinesis_spout/acker.py", "kinesis_spout/reading/pacing.py")
LOCKS = frozenset((name, "threading") for name in _WITH_LOCKS)
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


def strangers(root: Path) -> list[str]:
    """Modules and packages at the top level beyond the asked ones; tools and tests are folders, not
    packages.
    """
    packages = [path.parent.name for path in root.glob("[!.]*/__init__.py")]
    modules = [path.name for path in root.glob("*.py")]
    missing = [f"{name} is missing" for name in PACKAGES if name not in packages]
    folders = [
        path.name
        for path in root.glob("[!.]*/")
        if any(path.glob("*.py")) and path.name not in {*PACKAGES, *OTHER_CODE}
    ]
    return sorted(
        {*(name for name in packages if name not in PACKAGES), *modules, *folders, *missing}
    )


def test_the_top_level_has_the_asked_packages_only(tmp_path: Path) -> None:
    """`state` and `scheme` are generic names already: no further name goes to the top."""
    packages = {f"{name}/__init__.py": "" for name in PACKAGES if name != "scheme"}
    bad = write_tree(
        tmp_path,
        {**packages, "tests/__init__.py": "", "setup.py": "", "tools/x.py": "", "docs/x.md": ""},
    )
    assert strangers(bad) == ["scheme is missing", "setup.py", "tests", "tools"]
    assert strangers(ROOT) == []


def test_the_wheel_ships_the_asked_packages_only() -> None:
    """What is installed is what stands at the top level, each with its types."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]
    assert sorted(wheel["packages"]) == sorted(PACKAGES)
    assert all((ROOT / name / "py.typed").is_file() for name in PACKAGES)
