"""The demo step by step: puts the flights, runs the job, kills it in the middle, starts it again,
and compares.
"""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kinesis_spout.cli.exit_codes import CliError
from spark_job.demo.flights import (
    SHARD_COUNT,
    carrier_figures,
    find_flights,
    is_cancelled,
    read_flights,
    to_json,
)
from spark_job.demo.job_process import JobProcess
from spark_job.demo.kinesis import DemoKinesis, Put
from spark_job.demo.manifest import APPLICATION, STREAM, ZOOKEEPER_ROOT, Manifest
from spark_job.demo.verdict import (
    LetterComparison,
    Verdict,
    carrier_rows,
    compare,
    compare_letters,
    count_written,
    read_letters,
    read_written,
    shard_verdicts,
)
from state.zookeeper.embedded import ensure_running, stop
from state.zookeeper.store import ZookeeperStateStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from spark_job.demo.flights import Flight
    from spark_job.demo.kinesis import ShardPuts
    from spark_job.demo.manifest import DemoDirectory
    from spark_job.demo.screen import DemoScreen

BATCHES = 12
KILL_AT = 0.4
POLL_S = 0.1
STALLED_S = 120.0


@dataclass(slots=True)
class Demo:
    """One demo. `run` and `check` block, and end every process that they started."""

    directory: DemoDirectory
    screen: DemoScreen

    def run(self, records: int, *, kill: bool, faults: bool) -> tuple[Manifest, Verdict]:
        """Put, process, compare. Raises `CliError` when a step fails, `Interrupted` on a signal."""
        flights = read_flights(find_flights(), records)
        with (
            DemoKinesis.start(self.directory.server_log) as kinesis,
            running_zookeeper(self.directory.zookeeper) as address,
        ):
            kinesis.create_stream(STREAM, SHARD_COUNT)
            self.screen.step(
                "Kinesis",
                f"a local server (moto) on {kinesis.endpoint_url}, stream [cyan]{STREAM}[/]",
            )
            self.screen.step("ZooKeeper", f"from the jars that PySpark ships, on {address}")
            shards = self._put(kinesis, flights)
            manifest = Manifest(records=len(flights), shards=shards, faults=faults)
            self.directory.write_manifest(manifest)
            total = sum(not (faults and is_cancelled(flight)) for flight in flights)
            resumed = self._process(kinesis.endpoint_url, manifest, total, kill=kill)
            if resumed is not None:
                manifest = replace(manifest, resumed_from=resumed, killed=True)
                self.directory.write_manifest(manifest)
            return manifest, self._verdict(flights, manifest)

    def check(self) -> tuple[Manifest, Verdict]:
        """Compare the output of an earlier demo in the directory with its input. Runs no process
        but ZooKeeper, to read the checkpoints.
        """
        manifest = self.directory.read_manifest()
        flights = read_flights(find_flights(), manifest.records)
        with running_zookeeper(self.directory.zookeeper):
            return manifest, self._verdict(flights, manifest)

    def _put(self, kinesis: DemoKinesis, flights: Sequence[Flight]) -> dict[str, ShardPuts]:
        records = [Put(str(flight["carrier"]), to_json(flight)) for flight in flights]
        with self.screen.bar("Put", len(records)) as show:
            return kinesis.put_all(STREAM, records, show)

    def _process(
        self, endpoint_url: str, manifest: Manifest, total: int, *, kill: bool
    ) -> dict[str, str | None] | None:
        """Run the job until `total` flights are written.

        With `kill`, kills it in the middle, starts it again, and returns the checkpoints that it
        resumed from. Returns None when the job was not killed.
        """
        per_batch = -(-max(entry.count for entry in manifest.shards.values()) // BATCHES)
        start = partial(
            JobProcess.start,
            self.directory,
            endpoint_url=endpoint_url,
            max_records_per_shard=per_batch,
            faults=manifest.faults,
        )
        counted: dict[Path, int] = {}
        with start() as job:
            if self._followed(
                job, "Spark job", counted, total, until=KILL_AT * total if kill else None
            ):
                return None
            processes = job.kill()
        resumed = self._checkpoints()
        self.screen.detail(
            f"[bold red]kill -9[/] of the job and its {processes - 1} child processes, in the "
            "middle of its work"
        )
        with start() as job:
            self._followed(job, "Resumed", counted, total, until=None)
        return resumed

    def _followed(
        self,
        job: JobProcess,
        label: str,
        counted: dict[Path, int],
        total: int,
        *,
        until: float | None,
    ) -> bool:
        """Show how many rows are written, until the job has ended (True) or `until` rows are
        written (False).
        """
        written = count_written(self.directory.output, counted)
        moved = time.monotonic()
        with self.screen.bar(label, total, start=written, waiting="starting Spark") as show:
            while (code := job.exit_code(wait_s=POLL_S)) is None:
                now_written = count_written(self.directory.output, counted)
                if now_written != written:
                    written, moved = now_written, time.monotonic()
                show(min(written, total))
                if until is not None and written >= until:
                    return False
                if time.monotonic() - moved > STALLED_S:
                    raise CliError(
                        f"the job has written nothing for {STALLED_S:.0f} s",
                        "run the demo again",
                        log_file=self.directory.job_log,
                    )
            show(min(count_written(self.directory.output, counted), total))
        if code != 0:
            raise CliError(f"the job failed: {job.failure()}", log_file=self.directory.job_log)
        return True

    def _checkpoints(self) -> dict[str, str | None]:
        store = ZookeeperStateStore(
            f"embedded:{self.directory.zookeeper}",
            root=ZOOKEEPER_ROOT,
            application=APPLICATION,
            stream=STREAM,
        )
        with closing(store):
            return {
                shard: stored.state.checkpoint_text
                for shard, stored in sorted(store.shard_states.load().items())
            }

    def _verdict(self, flights: Sequence[Flight], manifest: Manifest) -> Verdict:
        wanted = [flight for flight in flights if not (manifest.faults and is_cancelled(flight))]
        records = compare(wanted, read_written(self.directory.output))
        self.screen.step(
            "Compared", f"{records.written:,} rows of parquet with the CSV, field by field"
        )
        return Verdict(
            records=records,
            letters=self._letters(flights, records.processed) if manifest.faults else None,
            shards=shard_verdicts(manifest.shards, self._checkpoints()),
            carriers=carrier_rows(self.directory.read_carriers(), carrier_figures(flights)),
        )

    def _letters(self, flights: Sequence[Flight], processed: int) -> LetterComparison:
        return compare_letters(
            flights, read_letters(self.directory.dead_letters), processed=processed
        )


@contextmanager
def running_zookeeper(directory: Path) -> Iterator[str]:
    """Run the embedded ZooKeeper of `directory` during a with block; yields its address."""
    try:
        yield ensure_running(directory)
    finally:
        stop(directory)
