"""Runs the scenarios. The readers alternate, each in processes and with a server of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.commands import ROOT, command, make_ready
from benchmarks.peers.found_peers import MissingPeerError
from benchmarks.peers.measure import ReaderFailedError, run_reader
from benchmarks.peers.results import append, identity, load
from benchmarks.peers.scenarios import Run, Scenario, Stream, stream_arguments
from benchmarks.peers.servers import dynamodb, replay_server
from kinesis_spout.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.peers.found_peers import FoundPeers
    from benchmarks.peers.results import Result

# The service counts a record's data and its partition key.
KEY_BYTES, SHARD_BYTES_PER_SECOND = 11, 2 << 20
# What an outcomes benchmark of two rounds alternates itself.
OUTCOMES = ["benchmarks/outcomes.py", "--json", "--rounds", "2", "--records", "400000"]


def run_all(scenarios: Sequence[Scenario], rounds: int, peers: FoundPeers, file: Path) -> list[str]:
    """Run what the results file does not have yet, and append it. What is missing is returned, one
    sentence each.
    """
    missing: dict[str, None] = {}
    for scenario in scenarios:
        for number in range(1, rounds + 1):
            # The order changes from round to round, so that nobody always comes second.
            for run in scenario.runs if number % 2 else scenario.runs[::-1]:
                done = {identity(result) for result in load(file)}
                if (scenario.name, run.key, number) in done:
                    continue
                try:
                    make_ready(run, peers)
                    for found in _run(scenario, run, peers):
                        append(file, found | {"round": number})
                        print(_line(found | {"round": number}), file=sys.stderr)
                except (MissingPeerError, ReaderFailedError) as error:
                    missing[f"{scenario.name}, {run.title}: {error}"] = None
                    print(f"{scenario.name} {run.key}: {error}", file=sys.stderr)
    return list(missing)


def _line(found: Result) -> str:
    seen = (found.get(name) for name in ("wall_s", "cpu_s", "peak_mb", "others_cores"))
    names = ("s", "CPU-s", "MB", "cores of others")
    figures = ", ".join(
        f"{value} {name}" for value, name in zip(seen, names, strict=True) if value is not None
    )
    return f"{found['scenario']} {found['key']} {found['round']}: {figures}"


def _run(scenario: Scenario, run: Run, peers: FoundPeers) -> Iterator[Result]:
    about = {"scenario": scenario.name, "at": SystemClock().now_ms(), **machine()}
    if run.program == "outcomes":
        for key, found in _outcomes().items():
            yield about | {"key": key} | found
        return
    streams = stream_arguments(scenario.streams) + (["--limits"] if scenario.limits else [])
    with (
        tempfile.TemporaryDirectory(prefix="peers-") as folder,
        replay_server(peers.java, peers.server_classpath, streams) as server,
        contextlib.ExitStack() as stack,
    ):
        directory = Path(folder)
        dynamo = ""
        if run.program == "kcl":
            dynamo = stack.enter_context(dynamodb(directory / "dynamodb.log"))
        found = run_reader(
            command(
                run,
                scenario,
                peers,
                endpoint=server.endpoint_url,
                dynamo=dynamo,
                directory=directory,
            ),
            environment={"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            server=server.stats,
            log=peers.log.with_name(f"{scenario.name}-{run.key}.log"),
        )
    if scenario.limits:
        found["share"] = round(share_of_limits(found, scenario.streams[run.stream]), 4)
    yield about | {"key": run.key} | found


def share_of_limits(found: Result, stream: Stream) -> float:
    """The bytes that were read, of those that the shards' limits allow in the time.

    A last page may be more than what was left of them: then the time until the shard is free again
    counts too.
    """
    counted = found["records"] * (stream.record_bytes + KEY_BYTES)
    allowed_per_s = stream.shards * SHARD_BYTES_PER_SECOND
    return float(counted / (allowed_per_s * (found["wall_s"] + found["debt_s"])))


def _outcomes() -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, *OUTCOMES],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ReaderFailedError(f"benchmarks/outcomes.py failed: {done.stderr[-500:]}")
    found = json.loads(done.stdout)
    records = found["records"]
    return {
        key: {"records": records, "wall_s": round(records / found[f"{key}_records_per_s"], 3)}
        for key in ("plain", "tracked")
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return {"commit": commit, "cores": len(os.sched_getaffinity(0))}
