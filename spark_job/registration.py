"""What a session registers as `format("kinesis")`: the source of streaming queries, the batch read
and the sink. Spark's planning processes import this, its workers do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_job.data_source import SCHEMA_DDL, KinesisDataSource, selected_columns
from spark_job.options import OPTIONS
from spark_job.preflight import refuse_embedded_on_cluster, refuse_other_python

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_job.batch_read.batch_reader import KinesisBatchReader
    from spark_job.batch_read.shard_ranges import LoadPin
    from spark_job.settings import QuerySettings
    from spark_job.sink.record_writer import KinesisBatchWriter, KinesisStreamWriter


class RegisteredSource(KinesisDataSource):
    """The source in a session.

    - `master`: the session's master URL, to refuse an embedded ZooKeeper on a cluster.
    - `task_slots`: how many tasks the session runs at a time, which is the default of `maxTasks`.
    """

    master: str | None = None
    task_slots: int | None = None

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._write_options = self._read_options
        name = OPTIONS["max_tasks"].name
        if self.task_slots is not None and name.lower() not in map(str.lower, options):
            # As many tasks as run at a time read all shards side by side: with more, the shards of
            # the later ones wait, and the limits of theirs go unused.
            self._read_options = {**self._read_options, name: str(self.task_slots)}
        self._pin: LoadPin | None = None

    def query(self) -> QuerySettings:
        query = super().query()
        for settings in query.streams:
            refuse_embedded_on_cluster(settings.zookeeper, self.master)
        return query

    def schema(self) -> str:
        # Spark does not say whether it loads a query or a batch read, so the options decide: a
        # query has an application and a ZooKeeper.
        if any(key.lower() in ("applicationname", "zookeeper") for key in self._read_options):
            return super().schema()
        from spark_job.batch_read.batch_reader import pin_load  # noqa: PLC0415  # not in a query

        self._pin = pin_load(self._read_options)
        return SCHEMA_DDL

    def reader(self, schema: StructType) -> KinesisBatchReader:
        from spark_job.batch_read.batch_reader import new_reader  # noqa: PLC0415  # not in a query

        # There is no pin where the user has given a schema: Spark does not ask for one then.
        return new_reader(self._read_options, self._pin, selected_columns(schema))

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

    Raises `ConfigError` when Spark starts another Python for its workers, which cannot run it.
    """
    refuse_other_python(spark)
    master, task_slots = spark_master(spark), _task_slots(spark)

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


def _task_slots(spark: SparkSession) -> int | None:
    """How many tasks run at a time. None where executors come and go, and on Spark Connect, which
    does not tell.
    """
    if str(spark.conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true":
        return None
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001  # Connect raises several kinds; the default of the option serves then
        return None
