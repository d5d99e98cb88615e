"""Runs a reader, and measures what its processes take between its two marks. Linux only.

A reader's processes are those that have its `PEERS_RUN` in their environment: its children, and
also a ZooKeeper that it starts as a daemon. CPU is user and system time, with that of children that
have ended. Memory is the proportional set size (PSS) of all processes together, at its peak.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.peers.readers.marks import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

RUN_VARIABLE = "PEERS_RUN"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.25
TIMEOUT_S = 600.0
KINDS = ("JVM", "workers", "planning", "ZooKeeper", "driver")


class ReaderFailedError(Exception):
    """A reader ended without both marks, or took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What is seen at a mark."""

    at_s: float
    cpu_s: Mapping[str, float]
    machine_cpu_s: float
    server: dict[str, Any]
    fields: dict[str, Any]


def run_reader(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    server: Callable[[], dict[str, Any]],
    log: Path,
    timeout_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """Figures of one run. Blocks until the reader has ended; kills what is left of it.

    `server`: the server's `cpu_s`, `bytes` and `calls` so far. Everything that the reader prints
    besides its marks goes to `log`.
    """
    run = uuid.uuid4().hex
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **environment, RUN_VARIABLE: run},
        ) as process,
    ):
        # What outlives the reader would keep its output open, and the marks would not end.
        ending = threading.Thread(target=_end, args=(process, run, timeout_s))
        ending.start()
        try:
            with PeakMemory(run) as memory:
                sights = _marks(process, run, server, errors.write, memory)
            ending.join()
        finally:
            kill(processes_of(run))
        code = process.returncode
    if code or "end" not in sights:
        raise ReaderFailedError(f"the reader failed (exit code {code}); see {log}")
    return figures(sights["begin"], sights["end"]) | {"peak_mb": round(memory.peak_mb)}


def _end(process: subprocess.Popen[str], run: str, timeout_s: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout_s)
    kill(processes_of(run))
    process.wait()


def _marks(
    process: subprocess.Popen[str],
    run: str,
    server: Callable[[], dict[str, Any]],
    log: Callable[[str], object],
    memory: PeakMemory,
) -> dict[str, Sight]:
    assert process.stdout is not None
    assert process.stdin is not None
    sights: dict[str, Sight] = {}
    for line in process.stdout:
        if not line.startswith(MARK):
            log(line)
            continue
        fields = json.loads(line.removeprefix(MARK))
        mark = fields.pop("mark")
        memory.counts = mark == "begin"
        reached_s = time.perf_counter()
        seen: dict[str, Any] = {
            "cpu_s": cpu_s_of(processes_of(run)),
            "machine_cpu_s": machine_cpu_s(),
            "server": server(),
            "fields": fields,
        }
        # The time that looking takes is not the reader's: it goes on when it is told to.
        at_s = reached_s if mark == "end" else time.perf_counter()
        sights[mark] = Sight(at_s=at_s, **seen)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("go\n")
            process.stdin.flush()
    return sights


def figures(begin: Sight, end: Sight) -> dict[str, Any]:
    """The differences between two marks. Pure.

    `others_cores`: what the rest of the machine took meanwhile, the noise of the run.
    """
    wall_s = end.at_s - begin.at_s
    kinds = {kind: spent - begin.cpu_s.get(kind, 0.0) for kind, spent in end.cpu_s.items()}
    cpu = sum(kinds.values())
    server_cpu = end.server["cpu_s"] - begin.server["cpu_s"]
    others = end.machine_cpu_s - begin.machine_cpu_s - cpu - server_cpu
    before = begin.server["calls"]
    calls = {name: count - before.get(name, 0) for name, count in end.server["calls"].items()}
    return {
        "wall_s": round(wall_s, 3),
        "cpu_s": round(cpu, 2),
        "cpu_s_of": {kind: round(spent, 2) for kind, spent in sorted(kinds.items())},
        "server_cpu_s": round(server_cpu, 2),
        "others_cores": round(max(0.0, others / wall_s), 2),
        "received_mb": round((end.server["bytes"] - begin.server["bytes"]) / 1e6, 1),
        "calls": {name: count for name, count in calls.items() if count},
        "debt_s": round(end.server["debt_s"], 3),
        **end.fields,
    }


class PeakMemory:
    """The greatest memory of a run's processes while `counts` is set."""

    def __init__(self, run: str) -> None:
        self.peak_mb = 0.0
        self.counts = False
        self._run = run
        self._stop = threading.Event()
        self._sampling = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._sampling.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._sampling.join()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            if self.counts:
                self.peak_mb = max(self.peak_mb, pss_mb(processes_of(self._run)))


# /proc


def processes_of(run: str) -> list[int]:
    """The living processes of a run."""
    wanted = f"{RUN_VARIABLE}={run}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def cpu_s_of(pids: Iterable[int]) -> dict[str, float]:
    """User and system time by kind of process, with that of children that have ended."""
    found = dict.fromkeys(KINDS, 0.0)
    for pid in pids:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            own, of_ended = ticks_in(Path(f"/proc/{pid}/stat").read_text())
            kind = kind_of(command)
            found[kind] += own / TICKS_PER_S
            # The daemon of the workers is their parent, the JVM that of the planning processes.
            found["planning" if kind == "JVM" else kind] += of_ended / TICKS_PER_S
    return found


def kind_of(command: bytes) -> str:
    """The kind of the process with this /proc/PID/cmdline. A reader without Spark is a driver."""
    program, *arguments = command.split(b"\0")
    if Path(os.fsdecode(program)).name == "java":
        is_zookeeper = any(one.startswith(b"org.apache.zookeeper.") for one in arguments)
        return "ZooKeeper" if is_zookeeper else "JVM"
    if b"pyspark.daemon" in arguments:
        return "workers"
    return "planning" if any(b"python_streaming" in one for one in arguments) else "driver"


def ticks_in(stat: str) -> tuple[int, int]:
    """User and system time of /proc/PID/stat: of the process, and of its children that have ended.

    The name of the command is in parentheses and may contain anything.
    """
    user, system, user_of_ended, system_of_ended = map(int, stat.rpartition(")")[2].split()[11:15])
    return user + system, user_of_ended + system_of_ended


def machine_cpu_s() -> float:
    """The time that all cores were busy since the machine's start."""
    user, nice, system, _idle, _iowait, irq, softirq, *_rest = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / TICKS_PER_S


def pss_mb(pids: Iterable[int]) -> float:
    kilobytes = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            kilobytes += sum(
                int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")
            )
    return kilobytes / 1024


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
