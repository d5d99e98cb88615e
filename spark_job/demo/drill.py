"""The demo as a drill: the flights are on a stream of our own Kinesis, a Spark job writes them as
Parquet files, it is killed in the middle, and another one resumes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

from kinesis_spout.drills.drill import Drill, disturbed
from kinesis_spout.drills.history.events import Put
from kinesis_spout.drills.setting import Setting
from kinesis_spout.drills.world import opened
from spark_job.demo.flights import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.console import Console

    from kinesis_spout.drills.history.verdict import Drilled
    from kinesis_spout.drills.world import World
    from spark_job.demo.flights import Flight

OUTPUT = "scratch/flights"  # in the demo's directory
_KILL_AT = 0.4  # of all flights


def run_demo(
    directory: Path, flights: Sequence[Flight], console: Console, *, kill: bool, faults: bool
) -> Drilled:
    """Put the flights, and let a job write them. Blocks, and ends all that it has started."""
    function = "write_departed" if faults else "write_all"
    setting = Setting(process=f"spark_job.demo.job:{function}", records_per_s=0)
    with opened(directory, setting, tell=lambda _: None) as world:  # `notes` has the same

        def put() -> None:
            """Flights of a carrier have one key, so they stay in order."""
            for row, flight in enumerate(flights):
                carrier, at_ns = str(flight["carrier"]), time.monotonic_ns()
                [(shard, sequence)] = world.stream.put([(carrier, to_json(flight))])
                world.producers.puts.append(Put(carrier, row, shard, sequence, at_ns))

        def follow(label: str, until: float) -> None:
            """Show how many flights are processed, until so many are."""
            columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Progress(*columns, console=console) as progress:
                task = progress.add_task(f"{label:<11}", total=len(flights))

                def has_enough() -> bool:
                    world.job.read()
                    progress.update(task, completed=len(world.job.resolved))
                    return len(world.job.resolved) >= until

                world.wait_until(has_enough, f"an ack or a dead letter for {until:,.0f} flights")

        def act(_: World) -> None:
            put()
            world.start()
            if kill:
                follow("Spark job", _KILL_AT * len(flights))
                world.kill("kill -9 of the job")
                console.print("[bold red]kill -9[/] of the job, which is then started again")
                world.start()
            follow("Resumed job" if kill else "Spark job", len(flights))

        return disturbed(
            world, Drill("demo", "kill a job that is writing flights", (act,), is_cold=True)
        )
