"""How a drill runs its Spark job: quick to start and small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.drills.spark_arguments import SCRATCH, SparkArguments
from kinesis_spout.drills.world.setting import Extra

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_spout.drills.world.kinesis import DrillStream
    from kinesis_spout.drills.world.setting import Setting

LOCAL = "local[2]"
EXECUTORS = "local-cluster[2,1,1024]"
SESSION_TIMEOUT = "4s"
CHECKPOINT, OUTAGES = "checkpoint", "outages"  # in the directory of the drill
_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "WARN",
}


def spark_arguments(
    directory: Path, setting: Setting, stream: DrillStream, *, zookeeper: str, application: str
) -> SparkArguments:
    """All but the file for its lines, which each start of the job has for itself."""
    conf = _CONF | {"spark.sql.warehouse.dir": str(directory / "warehouse")}
    if setting.executors:
        conf |= {"spark.executor.memory": "1g"}
    return SparkArguments(
        source=_source(stream)
        | _read_mode(setting, application)
        | {"zookeeper": zookeeper, "application": application},
        master=EXECUTORS if setting.executors else LOCAL,
        conf=conf,
        path="",
        out=str(directory / "out"),
        checkpoint=str(directory / CHECKPOINT),
        outages=str(directory / OUTAGES),
        process=setting.process or "",
        scratch=str(directory / SCRATCH),
        is_poisoned=Extra.POISON in setting.extras,
    )


def _read_mode(setting: Setting, application: str) -> dict[str, str | float | int]:
    return {"read_mode": "efo", "consumer_name": application} if setting.efo else {}


def _source(stream: DrillStream) -> dict[str, str | float | int]:
    named = {
        "stream": stream.name,
        "starting_position": "TRIM_HORIZON",
        "region": stream.aws.region,
        "endpoint_url": stream.aws.endpoint_url,
        "access_key_id": stream.aws.access_key_id,
        "secret_access_key": stream.aws.secret_access_key,
        "zookeeper_session_timeout": SESSION_TIMEOUT,
        "reads_per_second": 20 if stream.is_local else None,
        "probe_interval": "200ms" if stream.is_local else None,
        "idle_wait": "200ms",
        "shard_refresh_interval": "1s",
        "max_records_per_shard": 200,
        "max_tasks": 2,
    }
    return {name: value for name, value in named.items() if value is not None}
