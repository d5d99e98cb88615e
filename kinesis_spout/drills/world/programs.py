"""How the processes of a job are started: a small Spark job that starts quickly, or a spout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.drills import spout_program
from kinesis_spout.drills.spark_arguments import SCRATCH, SCRATCH_VARIABLE, SparkArguments
from kinesis_spout.drills.world.job import Job
from kinesis_spout.drills.world.setting import Need
from kinesis_spout.programs import clean_environment, module_path

if TYPE_CHECKING:
    from kinesis_spout.drills.world.job import Start
    from kinesis_spout.drills.world.kinesis import DrillStream
    from kinesis_spout.drills.world.setting import Setting

SPARK_PROGRAM = "spark_job.commands.drill_job"  # started by name: Spark is above this package
SPARK_APPLICATION = "drill"
CHECKPOINT, OUTAGES = "checkpoint", "outages"  # in the directory of the drill
CLOCK_VARIABLE = "KINESIS_SPOUT_DRILL_CLOCK"  # names the file that `set_clock` writes
_CLOCK_MODULES = Path(__file__).parent / "wrong_clock"  # Python imports them at its start
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # for JVMs that live for seconds
_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "WARN",
}


def drill_job(
    directory: Path, setting: Setting, stream: DrillStream, zookeeper: str, spout_tasks: int
) -> Job:
    """The job of this setting, which is not started yet."""
    if setting.spout:
        return spout_job(
            directory,
            stream,
            zookeeper,
            tasks=spout_tasks,
            seed=setting.seed,
            efo=setting.efo,
            is_poisoned=Need.POISON in setting.extras,
            has_wrong_clock=Need.CLOCK in setting.extras,
        )
    return _spark_job(directory, setting, stream, zookeeper)


def spout_job(
    directory: Path,
    stream: DrillStream,
    zookeeper: str,
    *,
    tasks: int,
    seed: int = 1,
    efo: bool = False,
    is_poisoned: bool = False,
    has_wrong_clock: bool = False,
    session_timeout_s: float = 4.0,
) -> Job:
    """Spouts that share the stream. Each start draws other answers."""

    def command(start: Start) -> tuple[list[str], dict[str, str]]:
        given = spout_program.Given(
            endpoint=stream.aws.endpoint_url,
            region=stream.aws.region,
            stream=stream.name,
            is_local=stream.is_local,
            zookeeper=zookeeper,
            path=str(start.path),
            task=start.task,
            tasks=tasks,
            seed=seed + start.number,
            session_timeout_s=session_timeout_s,
            is_poisoned=is_poisoned,
            efo=efo,
        )
        arguments = ["-m", spout_program.__name__, msgspec.json.encode(given).decode()]
        return arguments, _environment(directory, stream, has_wrong_clock=has_wrong_clock)

    return Job(directory, command, tasks=tasks)


def _spark_job(directory: Path, setting: Setting, stream: DrillStream, zookeeper: str) -> Job:
    """One driver. A second one has its own directories."""

    def command(start: Start) -> tuple[list[str], dict[str, str]]:
        apart = "-2" if start.is_second else ""
        given = SparkArguments(
            source=_source(setting, stream) | {"zookeeper": zookeeper},
            master="local-cluster[2,1,1024]" if setting.executors else "local[2]",
            conf=_CONF
            | {"spark.sql.warehouse.dir": str(directory / "warehouse")}
            | ({"spark.executor.memory": "1g"} if setting.executors else {}),
            path=str(start.path),
            out=str(directory / f"out{apart}"),
            checkpoint=str(directory / f"{CHECKPOINT}{apart}"),
            outages=str(directory / OUTAGES),
            process=setting.process or "",
            scratch=str(directory / f"{SCRATCH}{apart}"),
            is_poisoned=Need.POISON in setting.extras,
        )
        Path(given.scratch).mkdir(exist_ok=True)
        env = _environment(directory, stream, has_wrong_clock=Need.CLOCK in setting.extras)
        env["PYSPARK_PYTHON"] = sys.executable
        env["SPARK_LOCAL_IP"] = "127.0.0.1"
        env["JAVA_TOOL_OPTIONS"] = f"{env.get('JAVA_TOOL_OPTIONS', '')} {_QUICK_JVM}".strip()
        env[SCRATCH_VARIABLE] = given.scratch
        return ["-m", SPARK_PROGRAM, msgspec.json.encode(given).decode()], env

    return Job(directory, command)


def _source(setting: Setting, stream: DrillStream) -> dict[str, str | float | int]:
    """The fields of `KinesisSource`, without ZooKeeper's address."""
    named = {
        "stream": stream.name,
        "application": SPARK_APPLICATION,
        "starting_position": "TRIM_HORIZON",
        "region": stream.aws.region,
        "endpoint_url": stream.aws.endpoint_url,
        "access_key_id": stream.aws.access_key_id,
        "secret_access_key": stream.aws.secret_access_key,
        "zookeeper_session_timeout": "4s",
        "reads_per_second": 20 if stream.is_local else None,
        "probe_interval": "200ms" if stream.is_local else None,
        "idle_wait": "200ms",
        "shard_refresh_interval": "1s",
        "max_records_per_shard": 200,
        "max_tasks": 2,
        "read_mode": "efo" if setting.efo else None,
        "consumer_name": SPARK_APPLICATION if setting.efo else None,
    }
    return {name: value for name, value in named.items() if value is not None}


def _environment(directory: Path, stream: DrillStream, *, has_wrong_clock: bool) -> dict[str, str]:
    """Where Kinesis is on this machine, no process may reach another one."""
    env = clean_environment() if stream.is_local else dict(os.environ)
    path = module_path(env.get("PYTHONPATH", ""), Path.cwd())
    if has_wrong_clock:
        env[CLOCK_VARIABLE] = str(_clock_file(directory))
        path = os.pathsep.join(filter(None, (str(_CLOCK_MODULES), path)))
    env["PYTHONPATH"] = path
    return env


def set_clock(directory: Path, ahead_ms: int) -> None:
    """Set the clocks of all processes of the drill ahead by so much; back if it is below 0."""
    file = _clock_file(directory)
    new = file.with_suffix(".new")
    new.write_text(str(ahead_ms))
    new.replace(file)


def _clock_file(directory: Path) -> Path:
    return directory / "job-clock"
