"""Processes, pools and imports: what has ended has ended, and what is missing is named with how to
install it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from kinesis_spout.errors import ConfigError
from kinesis_spout.processes import kill_family, runs
from kinesis_spout.programs import how_to_install, load_function
from kinesis_spout.threads import DaemonPool

if TYPE_CHECKING:
    from collections.abc import Iterator


LIMIT_S = 30.0
PARENT = """
import subprocess, sys
child = [sys.executable, "-c", "import os, subprocess, sys; os.write(1, b'up'); {does}"]
many = [subprocess.Popen(child, stdin=subprocess.PIPE) for _ in range(3)]
sys.stdin.read()
"""
CHILDREN = {
    "lives on": "sys.stdin.read(); import threading; threading.Event().wait(60)",
    "ends with its parent": "sys.stdin.read()",
    "starts others": "[subprocess.run([sys.executable, '-c', 'pass']) for _ in range(500)]",
}


@pytest.fixture(params=CHILDREN.values(), ids=list(CHILDREN))
def parent(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process whose three children are up."""
    command = [sys.executable, "-c", PARENT.format(does=request.param)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(6) == "upupup"
        yield process
        process.kill()


def test_all_of_them_are_gone_and_no_other_process(parent: subprocess.Popen[str]) -> None:
    """The calling process stays alive, and so does a process that it had started before."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        family = psutil.Process(parent.pid).children(recursive=True)
        assert kill_family(parent) >= 4
        assert not any(runs(one) for one in family)
        assert parent.returncode == -9
        assert other.poll() is None
        assert kill_family(parent) == 0
        other.communicate(b"\n", timeout=LIMIT_S)


TIMEOUT_S = 60.0


def test_a_program_can_exit_while_a_call_hangs() -> None:
    """The threads are daemons, and nothing joins them."""
    pool, hangs, end = DaemonPool(1, "test"), threading.Event(), threading.Event()

    def hang() -> bool:
        hangs.set()
        return end.wait(TIMEOUT_S) and threading.current_thread().daemon

    call = pool.submit(hang)
    assert hangs.wait(TIMEOUT_S)
    waiting = pool.submit(int)
    pool.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="test is shut down"):
        pool.submit(int)
    end.set()
    assert call.result(TIMEOUT_S)
    pool.shutdown()


PROJECT = """
[project]
name = "{name}"
[project.optional-dependencies]
spark = ["pyspark>=4.2", "pandas>=2.2.2"]
local = ["pandas<3,>=2.2.2", "moto[server]>=5.1"]
"""
METADATA = """Metadata-Version: 2.1
Name: kinesis-spout
Version: 0.1.0
Requires-Dist: boto3>=1.36
Requires-Dist: pyspark>=4.2; extra == 'spark'
Requires-Dist: pandas>=2.2.2; extra == 'spark'
Requires-Dist: pandas<3,>=2.2.2 ; extra == "local"
Requires-Dist: moto[server]>=5.1; extra == 'local'
"""


@pytest.mark.parametrize("where", ["a checkout", "installed", "installed beside another project"])
def test_the_packages_of_the_extras_are_named(tmp_path: Path, where: str) -> None:
    """Each once, with the bounds of all the extras. Never our name: the index has no package of
    ours under it, it would be somebody else's.
    """
    if where != "a checkout":
        info = tmp_path / "kinesis_spout-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA)
    if where != "installed":
        name = "kinesis-spout" if where == "a checkout" else "another"
        (tmp_path / "pyproject.toml").write_text(PROJECT.format(name=name))
    assert how_to_install("spark", "local", folder=tmp_path) == (
        "run pip install 'pyspark>=4.2' 'pandas>=2.2.2,<3' 'moto[server]>=5.1'"
    )
    assert how_to_install("local", folder=tmp_path).startswith("run pip install 'pandas<3,")


def test_where_nothing_is_known_the_extra_is_named(tmp_path: Path) -> None:
    """As in a zip that was shipped to executors."""
    assert how_to_install("spark", folder=tmp_path).startswith(
        "install kinesis-spout again with its extra spark, from the same"
    )


USER_MODULES = {
    "mine": "number = 5\ndef double(x):\n    return 2 * x\n",
    "exits": "import sys\nsys.exit(3)\n",
    "odd": "raise ValueError(chr(0xd83d))\n",
    "bare": "raise GeneratorExit\n",
}


@pytest.fixture
def modules_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in USER_MODULES.items():
        (tmp_path / f"{name}_of_a_user.py").write_text(text)


@pytest.mark.usefixtures("modules_of_a_user")
def test_a_function_is_found_from_the_current_directory() -> None:
    assert load_function("mine_of_a_user:double")(4) == 8


@pytest.mark.usefixtures("modules_of_a_user")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, "module:function") for name in ("nocolon", ":double", "module:", "")),
        # what is missing: the module, a function in it, or that it is none
        ("no_such_module:double", "no_such_module"),
        ("mine_of_a_user:half", "has no function half"),
        ("mine_of_a_user:number", "has no function number"),
        # a module that raises anything, as a script that ends the process when it is imported
        ("exits_of_a_user:process", "the module cannot be imported (SystemExit: 3"),
        ("odd_of_a_user:process", r"the module cannot be imported (ValueError: \ud83d"),
        ("bare_of_a_user:process", "the module cannot be imported (GeneratorExit"),
    ],
)
def test_a_name_without_a_function_is_refused_with_the_reason(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        load_function(name)


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("name", "at"), [("state", "state.py"), ("scheme", "scheme/__init__.py")])
def test_a_module_that_hides_ours_is_named(name: str, at: str, tmp_path: Path) -> None:
    """It is beside the user's script, so it comes first in sys.path; also as a package."""
    file = tmp_path / at
    file.parent.mkdir(exist_ok=True)
    file.write_text("HOME = 'user'\n")
    script = tmp_path / "job.py"
    script.write_text("import kinesis_spout\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode != 0
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(f"ImportError: another module named {name} ({file})")
    )
