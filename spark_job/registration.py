"""What a session registers as `format("kinesis")`: the source of streaming queries, the batch read
and the sink. Spark's planning processes import this, its workers do not. And the checks before a
query starts: they run in the user's own process, so an error appears at the line that causes it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from kinesis_spout.errors import ConfigError
from spark_job.data_source import (
    KinesisStreamReader,
    RefusedStreamReader,
    schema_ddl,
    selected_columns,
)
from spark_job.options import OPTIONS
from spark_job.settings import QuerySettings
from state.zookeeper.servers import EMBEDDED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_job.batch_read.batch_reader import KinesisBatchReader
    from spark_job.batch_read.shard_ranges import LoadPin
    from spark_job.settings import SourceSettings
    from spark_job.sink.record_writer import KinesisBatchWriter, KinesisStreamWriter


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


class RegisteredSource(DataSource):
    """The data source in a session: it makes the readers and the writers.

    - `master`: the session's master URL, to refuse an embedded ZooKeeper on a cluster.
    - `task_slots`: how many tasks the session runs at a time, which is the default of `maxTasks`.
    """

    master: str | None = None
    task_slots: int | None = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read_options = self._write_options = dict(options)
        name = OPTIONS["max_tasks"].name
        if self.task_slots is not None and name.lower() not in map(str.lower, options):
            # As many tasks as run at a time read all shards side by side: with more, the shards of
            # the later ones wait, and the limits of theirs go unused.
            self._read_options = {**self._read_options, name: str(self.task_slots)}
        self._pin: LoadPin | None = None

    def query(self) -> QuerySettings:
        """The checked settings, with the passwords in them: the executors have neither the driver's
        files nor its environment.
        """
        query = QuerySettings.from_options(self._read_options).with_passwords()
        for settings in query.streams:
            refuse_embedded_on_cluster(settings.zookeeper, self.master)
        return query

    def schema(self) -> str:
        """The columns. Spark calls this once at `load()`, and keeps this object for all that is
        done with the frame.
        """
        # Spark does not say whether it loads a query or a batch read, so the options decide: a
        # query has an application and a ZooKeeper.
        if any(key.lower() in ("applicationname", "zookeeper") for key in self._read_options):
            return schema_ddl(self.query().scheme)
        from spark_job.batch_read.batch_reader import pin_load  # noqa: PLC0415  # not in a query
        from spark_job.batch_read.batch_settings import BatchSettings  # noqa: PLC0415  # as above

        settings = BatchSettings.from_options(self._read_options)
        self._pin = pin_load(settings)
        return schema_ddl(settings.scheme)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        try:
            query = self.query()
            return KinesisStreamReader(query, selected_columns(schema, query.scheme))
        except ConfigError as exc:
            return RefusedStreamReader(exc)

    def reader(self, schema: StructType) -> KinesisBatchReader:
        from spark_job.batch_read.batch_reader import new_reader  # noqa: PLC0415  # not in a query

        # There is no pin where the user has given a schema: Spark does not ask for one then.
        return new_reader(self._read_options, self._pin, schema)

    def writer(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> KinesisBatchWriter:
        from spark_job.sink.record_writer import KinesisBatchWriter  # noqa: PLC0415  # not in a read

        return KinesisBatchWriter.checked(self._write_options, schema, overwrite=overwrite)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> KinesisStreamWriter:
        from spark_job.sink.record_writer import KinesisStreamWriter  # noqa: PLC0415  # as above

        return KinesisStreamWriter.checked(self._write_options, schema, overwrite=overwrite)


def register(spark: SparkSession, name: str = "kinesis") -> None:
    """Register the source as `format(name)` in a session. Idempotent.

    Raises `ConfigError` if Spark starts its workers with another Python, which cannot run the
    source.
    """
    refuse_other_python(spark)
    master, task_slots = spark_master(spark), None
    # Not where executors come and go, nor on Spark Connect, which does not tell.
    if str(spark.conf.get("spark.dynamicAllocation.enabled", "false")).lower() != "true":
        with suppress(Exception):  # Connect raises several kinds
            task_slots = max(1, spark.sparkContext.defaultParallelism)

    # Spark makes the objects of a class in other processes, from the options alone. So what the
    # session says is in a class of its own, which Spark sends by value.
    class KinesisSourceOfSession(RegisteredSource):
        @classmethod
        def name(cls) -> str:
            return name

    KinesisSourceOfSession.master = master
    KinesisSourceOfSession.task_slots = task_slots
    spark.dataSource.register(KinesisSourceOfSession)


def spark_master(spark: SparkSession) -> str | None:
    """The session's master URL; None when the session does not give it."""
    return spark.conf.get("spark.master", None)


def preflight(settings: SourceSettings, *, master: str | None) -> list[str]:
    """Call the stream and ZooKeeper once, and return warnings for the user.

    Blocks on both and raises what they raise; `ConfigError` for a start that the stream refuses.
    """
    from kinesis_spout.shards.start_position import (  # noqa: PLC0415  # not for a check without it
        accepted_pin,
    )
    from spark_job.process_services import (  # noqa: PLC0415  # not for a check without it
        ProcessServices,
    )
    from state.zookeeper.store import reset_command  # noqa: PLC0415  # as above

    refuse_embedded_on_cluster(settings.zookeeper, master)
    warnings = list(_too_fast(settings))
    services = ProcessServices.connect(settings, retry_for_s=RETRY_FOR_S)
    stream_summary = services.client.describe()
    with closing(services.store) as store:
        pin = store.identity.read_start()
    start = settings.starting_position.text
    # Every stream has these two. A stream that is being created has no shards to list yet.
    if pin is None and start not in ("LATEST", "TRIM_HORIZON"):
        now_ms = stream_summary.now_ms(services.clock.now_ms())
        accepted_pin(services.client, settings.starting_position, now_ms)
    if pin is not None and not settings.start_is_default and pin.requested != start:
        application, stream = settings.application, settings.stream.name
        command = reset_command(
            settings.zookeeper,
            application=application,
            stream=stream,
            root=settings.zookeeper_root,
            security=settings.zookeeper_security,
        )
        warnings.append(
            f"application {application} already has progress on stream {stream} (it started at "
            f"{pin.requested}), so startingPosition {start} has no effect; use another "
            f"applicationName, or remove the progress with `{command}`"
        )
    return warnings


def _too_fast(settings: SourceSettings) -> Iterator[str]:
    if (
        settings.aws.endpoint_url is None
        and settings.rate.reads_per_second > SERVICE_READS_PER_SECOND
    ):
        yield (
            f"option readsPerSecond is {settings.rate.reads_per_second:g}, but Kinesis allows "
            f"only {SERVICE_READS_PER_SECOND} reads per second of each shard, shared by all "
            f"consumers; set readsPerSecond to {SERVICE_READS_PER_SECOND} or less"
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
            "set option zookeeper to the connect string of servers that the executors can reach",
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
    found, own = shutil.which(named), Path(sys.executable)
    if found is None:
        return
    # The link of a virtual environment is not followed: others have links to the same file.
    if Path(found).parent.samefile(own.parent) and own.samefile(found):
        return
    needed = _COMPILED if added_files else (*_COMPILED, *_PURE)
    try:
        answer = subprocess.run(
            [found, "-c", _PROBE, *needed], capture_output=True, timeout=_PROBE_S, check=True
        ).stdout
        executable, version, missing = json.loads(answer)
    except (OSError, subprocess.SubprocessError, ValueError):
        return
    own_version = sys.version_info[:2]
    if not missing and tuple(version) == own_version:
        return
    lacks = (
        (f"lacks the package {missing[0]}") if missing else f"is version {version[0]}.{version[1]}"
    )
    raise ConfigError(
        f"Spark starts its Python workers with {executable or found} ({named}), which {lacks}, "
        f"but this program runs with {own} (version {own_version[0]}.{own_version[1]})",
        f"set PYSPARK_PYTHON={sys.executable} before the Spark session starts",
    )
