"""How each reader is started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.peers.found_peers import FoundPeers
    from benchmarks.peers.scenarios import Run, Scenario

ROOT = Path(__file__).resolve().parents[2]
READERS = "benchmarks.peers.readers"
JVM_MEMORY = "-Xmx2g"  # as that of the Spark drivers


def command(
    run: Run, scenario: Scenario, peers: FoundPeers, *, endpoint: str, dynamo: str, directory: Path
) -> list[str]:
    """The reader's command line. Raises `MissingPeerError`."""
    warm, measured = (
        f"{name}:{scenario.streams[name].records}"
        for name in ("few" if run.stream == "part" else "warm", run.stream)
    )
    streams = ["--endpoint", endpoint, "--warm", warm, "--measured", measured]
    place = ["--directory", str(directory)]
    options = [f"--option={option}" for option in run.options]
    if run.schema:
        options.append(f"--schema={run.schema}")
    python = [sys.executable, "-m"]
    if run.program == "floor":
        options.append(f"--option=recordBytes={scenario.streams[run.stream].record_bytes}")
    if run.program in {"ours", "floor"}:
        return [*python, f"{READERS}.spark", run.program, run.task, *streams, *place, *options]
    if run.program == "awslabs":
        jar = ["--jar", str(peers.awslabs_jar)]
        return [*python, f"{READERS}.spark", "awslabs", run.task, *streams, *place, *jar, *options]
    if run.program == "spout":
        return [*python, f"{READERS}.spout", *streams, *place]
    if run.program == "boto3":
        return [*python, f"{READERS}.boto3_loop", *streams]
    if run.program == "async-kinesis":
        return [str(peers.async_kinesis_python), "-m", f"{READERS}.async_kinesis", *streams]
    records = scenario.streams
    java = [str(peers.java), JVM_MEMORY, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    counts = [str(records["warm"].records), str(records[run.stream].records)]
    return [*java, "-cp", peers.kcl_classpath, "KclReader", endpoint, dynamo, run.stream, *counts]


def make_ready(run: Run, peers: FoundPeers) -> None:
    """Build what the reader needs. Raises `MissingPeerError`."""
    built = {
        "awslabs": "awslabs_jar",
        "kcl": "kcl_classpath",
        "async-kinesis": "async_kinesis_python",
    }
    if run.program in built:
        getattr(peers, built[run.program])
