"""Puts each mutant into a copy of the project and shows that its test catches it: `python -m
tests.simulation.run_mutants [name...]`. A name is a part of a mutant's name, or its catcher as a
whole: "drill kill-driver".

Those that a recovery drill catches take minutes each, so they run by name only, one at a time.

The exit code is 1 when a mutant survives, or when its `old` text does not occur exactly once in its
file, or its catcher is gone.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SIMULATION = "the simulation"
SPOUT_SIMULATION = "the spout's simulation"
DRILL = "drill "  # a catcher that begins with it is a recovery drill
FAULTS = Path(__file__).with_name("faults")
"""`*.txt` has the mutants, by what they are about. A fault is its name behind `#`, and for each
edit the file and the lines that change, as `diff` writes them. Behind the first stands the catcher.
"""


class Edit(NamedTuple):
    """`old` stands exactly once in `file`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`catcher`: a simulation, a drill, or what pytest is to run. `also`: more edits, where several
    protections stand behind each other, so that without one of them nothing would go wrong.
    """

    name: str
    file: str
    old: str
    new: str
    catcher: str
    also: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """In the order in which they are made."""
        return (Edit(self.file, self.old, self.new), *self.also)

    def is_named(self, name: str) -> bool:
        """Whether this is a part of its name, or all of its catcher."""
        return name in self.name or name == self.catcher


def read_mutants(text: str) -> list[Mutant]:
    """Lines behind `##` say what the faults below them have in common."""
    mutants: list[Mutant] = []
    for fault in f"\n{text}".split("\n# ")[1:]:
        name, *lines = fault.splitlines()
        edits: list[Edit] = []
        catchers = []
        for line in lines:
            if line.startswith("##"):
                break
            if line[:1] not in {"-", "+", " "}:
                file, _, catcher = line.partition(": ")
                catchers.append(catcher)
                edits.append(Edit(file, "", ""))
                continue
            file, old, new = edits[-1]
            kept = f"{line[1:]}\n"
            edits[-1] = Edit(
                file,
                old if line[0] == "+" else old + kept,
                new if line[0] == "-" else new + kept,
            )
        mutants.append(Mutant(name, *edits[0], catchers[0], tuple(edits[1:])))
    return mutants


MUTANTS = tuple(
    mutant
    for path in sorted(FAULTS.glob("*.txt"))
    for mutant in read_mutants(path.read_text(encoding="utf-8"))
)


QUICK = tuple(one for one in MUTANTS if not one.catcher.startswith(DRILL))
SIMULATIONS = (SIMULATION, SPOUT_SIMULATION)
ROOT = Path(__file__).resolve().parents[2]
COPIED = ("kinesis_spout", "state", "scheme", "spark_job", "tests", "localstack", "scripts")
PACKAGED = ("pyproject.toml", "README.md", "LICENSE")  # a catcher may build a wheel
HISTORIES, SEED = 300, 1
LIMIT_S, TEST_LIMIT_S, DRILL_LIMIT_S = 300.0, 150, 900.0
MOST_SHOWN = 400
BROKEN = re.compile(r"histories/s, [1-9]\d* broken$", re.MULTILINE)
FAILED = re.compile(r"^[1-9]\d* failed", re.MULTILINE)
PROMISE_BROKEN = re.compile(r"^BROKEN: ", re.MULTILINE)
_TEST_FILE = re.compile(r"tests/[\w/.]+")
_ONE_DRILL = threading.Lock()


def misfits(mutants: tuple[Mutant, ...] = MUTANTS) -> list[str]:
    """Mutants with an edit whose `old` text does not occur exactly once in its file, with a change
    that does not compile, which any test would catch, or with a catcher that is gone.
    """
    return [
        one.name
        for one in mutants
        if not _fits(one)
        or (
            not one.catcher.startswith(DRILL)
            and one.catcher not in SIMULATIONS
            and any(not (ROOT / file).exists() for file in _TEST_FILE.findall(one.catcher))
        )
    ]


def _fits(mutant: Mutant) -> bool:
    found = {edit.file: (ROOT / edit.file).read_text(encoding="utf-8") for edit in mutant.edits}
    changed = dict(found)
    for edit in mutant.edits:
        if found[edit.file].count(edit.old) != 1:
            return False
        changed[edit.file] = changed[edit.file].replace(edit.old, edit.new)
    try:
        for file, text in changed.items():
            if file.endswith(".py"):
                compile(text, file, "exec")
    except SyntaxError:
        return False
    return True


def command(mutant: Mutant) -> list[str]:
    if mutant.catcher in SIMULATIONS:
        given = [
            "--histories",
            str(HISTORIES),
            "--seed",
            str(SEED),
            "--jobs",
            "1",
            "--most-broken",
            "1",
            *(["--spout"] if mutant.catcher == SPOUT_SIMULATION else []),
        ]
        return [sys.executable, "-m", "tests.simulation", *given]
    if mutant.catcher.startswith(DRILL):
        return [sys.executable, "-m", "kinesis_spout.cli.entry", *mutant.catcher.split()]
    given = ["-p", "no:cacheprovider", "-p", "tests.simulation.first_failure"]
    given += ["--timeout", str(TEST_LIMIT_S)]  # a test that hangs with a mutant has caught it
    return [sys.executable, "-m", "pytest", "-x", "-q", *given, *mutant.catcher.split()]


def is_caught(mutant: Mutant) -> tuple[bool, str, float]:
    """Whether its catcher fails as it should, its last line of output, and its seconds. Of a drill,
    all promises that were broken.
    """
    is_drill = mutant.catcher.startswith(DRILL)
    with _ONE_DRILL if is_drill else nullcontext():
        return _is_caught(mutant, DRILL_LIMIT_S if is_drill else LIMIT_S)


def _is_caught(mutant: Mutant, limit_s: float) -> tuple[bool, str, float]:
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        copy = Path(name)
        for folder in COPIED:
            shutil.copytree(
                ROOT / folder,
                copy / folder,
                ignore=shutil.ignore_patterns("__pycache__", "node_modules"),
            )
        for file_name in PACKAGED:
            shutil.copy(ROOT / file_name, copy)
        for edit in mutant.edits:
            file = copy / edit.file
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": name, "PYTHONDONTWRITEBYTECODE": "1"}
        with subprocess.Popen(
            command(mutant),
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as ran:
            try:
                stdout, stderr = ran.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return False, "it hangs; bound the loop of its catcher", limit_s
            finally:
                # A simulation's workers would wait for it forever.
                with suppress(ProcessLookupError):
                    os.killpg(ran.pid, signal.SIGKILL)
    said = (stdout.strip() or stderr.strip()).splitlines()[-1:]
    if mutant.catcher in SIMULATIONS:
        failed = BROKEN
    elif mutant.catcher.startswith(DRILL):
        failed = PROMISE_BROKEN
        broken = [line for line in stdout.splitlines() if failed.match(line)]
        said = [" ".join(broken)] if broken else said
    else:
        failed = FAILED
    return (
        ran.returncode == 1 and failed.search(stdout) is not None,
        said[0] if said else "",
        time.monotonic() - begun_s,
    )


def main(names: list[str]) -> int:
    if rotten := misfits():
        print(
            "the text of these mutants does not occur exactly once in their files, or their "
            f"catcher is gone: {', '.join(rotten)}"
        )
        return 1
    chosen = [one for one in MUTANTS if any(map(one.is_named, names))] if names else QUICK
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, (caught, said, took_s) in zip(chosen, pool.map(is_caught, chosen), strict=True):
            verdict = f"caught by {mutant.catcher}" if caught else f"SURVIVES {mutant.catcher}"
            print(f"{mutant.name:60}  {verdict} in {took_s:.0f} s: {said[:MOST_SHOWN]}", flush=True)
            survivors += not caught
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
