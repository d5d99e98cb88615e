"""Checks before a query starts. They run in the user's own process, so an error appears at the line
that causes it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from kinesis_spout.errors import ConfigError
from state.zookeeper.servers import EMBEDDED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from spark_job.settings import SourceSettings


# What a Python worker of Spark imports to read. Spark brings PySpark along, and files that a job
# adds (`--py-files`) may hold what is pure Python.
_COMPILED = ("msgspec", "pyarrow", "numpy")
_PURE = ("botocore", "kazoo", "tenacity", "spark_job", "kinesis_spout", "state", "scheme")
_PROBE = (
    "import json, sys; from importlib.util import find_spec; print(json.dumps([sys.executable, "
    "list(sys.version_info[:2]), [name for name in sys.argv[1:] if find_spec(name) is None]]))"
)
_PROBE_S = 30.0
SERVICE_READS_PER_SECOND = 5
RETRY_FOR_S = 15.0  # short, because a user is waiting at the line that starts the query


def preflight(settings: SourceSettings, *, master: str | None) -> list[str]:
    """Call the stream and ZooKeeper once, and return warnings for the user.

    Blocks on both and raises what they raise.
    """
    from spark_job.process_services import (  # noqa: PLC0415  # not for a check without it
        ProcessServices,
    )

    refuse_embedded_on_cluster(settings.zookeeper, master)
    warnings = list(_too_fast(settings))
    services = ProcessServices.connect(settings, retry_for_s=RETRY_FOR_S)
    services.client.describe()
    with closing(services.store) as store:
        pin = store.identity.read_start()
    start = settings.starting_position.text
    if pin is not None and not settings.start_is_default and pin.requested != start:
        application, stream = settings.application, settings.stream.name
        warnings.append(
            f"application {application} has progress on stream {stream} (started at "
            f"{pin.requested}), so startingPosition {start} has no effect; use another "
            f"applicationName, or remove "
            f"the progress with `kinesis-spout reset --application {application} --stream {stream} "
            f"--zookeeper {settings.zookeeper}`"
        )
    return warnings


def _too_fast(settings: SourceSettings) -> Iterator[str]:
    if (
        settings.aws.endpoint_url is None
        and settings.rate.reads_per_second > SERVICE_READS_PER_SECOND
    ):
        yield (
            f"option readsPerSecond is {settings.rate.reads_per_second:g}, but Kinesis allows "
            f"{SERVICE_READS_PER_SECOND} reads per shard and second to all consumers together and "
            f"throttles the rest; give {SERVICE_READS_PER_SECOND} or less"
        )


def refuse_embedded_on_cluster(zookeeper: str, master: str | None) -> None:
    """Raise `ConfigError` for an embedded ZooKeeper on a cluster of machines.

    It listens on 127.0.0.1, so executors on other machines could not reach it.
    """
    if not zookeeper.startswith(EMBEDDED_PREFIX) or master is None or master == "local":
        return
    if not master.startswith(("local[", "local-cluster[")):
        raise ConfigError(
            f"option zookeeper is {zookeeper!r}, which only this machine can reach, but the Spark "
            f"master is {master!r}",
            "give the connect string of an ensemble",
        )


def refuse_other_python(spark: SparkSession) -> None:
    """Raise `ConfigError` when the Python that Spark starts for its workers here cannot run the
    source: it lacks our packages, or is of another version.

    Starts that Python for a moment, unless it is of this program's environment. What cannot be
    detected, as on Spark Connect, is left to Spark.
    """
    try:
        context = spark.sparkContext
        named, added_files = context.pythonExec, context._python_includes  # noqa: SLF001  # nothing public has them
    except Exception:  # noqa: BLE001  # Connect raises several kinds
        return
    found = shutil.which(named)
    if found is None or _is_of_this_environment(Path(found)):
        return
    needed = _COMPILED if added_files else (*_COMPILED, *_PURE)
    try:
        answer = subprocess.run(
            [found, "-c", _PROBE, *needed], capture_output=True, timeout=_PROBE_S, check=True
        ).stdout
        executable, version, missing = json.loads(answer)
    except (OSError, subprocess.SubprocessError, ValueError):
        return
    own = ".".join(map(str, sys.version_info[:2]))
    here = f"Spark starts its Python workers with {executable or found} ({named})"
    remedy = f"set PYSPARK_PYTHON={sys.executable} before the Spark session is made"
    if missing:
        raise ConfigError(
            f"{here}, which has no package {missing[0]}, and this program runs with "
            f"{sys.executable} (version {own})",
            remedy,
        )
    if version != list(sys.version_info[:2]):
        raise ConfigError(
            f"{here}, which is version {version[0]}.{version[1]}, and this program runs with "
            f"{sys.executable} (version {own})",
            remedy,
        )


def _is_of_this_environment(python: Path) -> bool:
    """Whether it is this program's own interpreter, by any of its names. The link of a virtual
    environment is not followed: other environments have links to the same file.
    """
    own = Path(sys.executable)
    return python.parent.samefile(own.parent) and python.samefile(own)
