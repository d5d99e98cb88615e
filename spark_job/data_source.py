"""`spark.readStream.format("kinesis")`: the reader that Spark sees. `spark_job.driver` plans and
settles; `spark_job.executor` reads a task. `spark_job.registration` has the data source.

Spark constructs readers in several processes (planning, driver, executors) and does not always call
`stop`. So a reader holds settings only. Its connections are made at the first driver call and are
never pickled. What reads is imported where it is used: the processes that plan a query live as long
as it does, and need none of it.
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import signal
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kinesis_spout.errors import ConfigError, KinesisError
from state.failpoint import failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from kinesis_spout.config import AwsConfig
    from scheme.record_scheme import RecordScheme
    from spark_job.driver.query_driver import QueryDriver
    from spark_job.settings import QuerySettings
    from state.plan import TaskPlan

# At DEBUG py4j logs what a driver sends to its JVM: the options, with their secrets. It does so
# where somebody sets its own level, not because the root logger has that one.
_py4j_log = logging.getLogger("py4j")
if _py4j_log.level == logging.NOTSET:
    _py4j_log.setLevel(logging.WARNING)  # the root logger's level by default

SCHEMA_DDL = (
    "streamName STRING, shardId STRING, sequenceNumber STRING, subSequenceNumber BIGINT, "
    "partitionKey STRING, "
    "data BINARY, approximateArrivalTimestamp TIMESTAMP, attempt INT, messageId STRING"
)
_TYPES = dict(column.split() for column in SCHEMA_DDL.split(", "))
# A session may say that TIMESTAMP is a type without a zone (`spark.sql.timestampType`).
_IN_EVERY_SESSION = SCHEMA_DDL.replace("TIMESTAMP", "TIMESTAMP_LTZ")
PARSED = "parsed"
"""The column of a source with a scheme (`spark_job.scheme_column`)."""
_tasks_read = itertools.count()  # by this process
_M_ARENA_MAX = -8  # of glibc's malloc.h
END_S = 10  # a planning process that has not ended so long after its SIGTERM is killed


@dataclass
class TaskPartition(InputPartition):
    """One task of one plan, as Spark sends it to an executor. `stream`: the index of its stream in
    the query. `aws`: how the driver reaches the stream.
    """

    stream: int
    plan_id: str
    task: int
    plan: TaskPlan
    aws: AwsConfig


class KinesisStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader. Spark calls it from one thread of the query's driver worker; `read` runs
    on executors.
    """

    def __init__(self, query: QuerySettings, columns: Sequence[str] = tuple(_TYPES)) -> None:
        self._query = query
        self._columns = columns
        self._driver: QueryDriver | None = None
        self._session_dirs: list[Path] = []

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_driver": None, "_session_dirs": []}

    @property
    def driver(self) -> QueryDriver:
        # Not in the constructor: planning processes construct a reader too, and never use it.
        if self._driver is None:
            from spark_job.driver.query_driver import (  # noqa: PLC0415  # not on the executors
                QueryDriver,
            )

            # Only Spark's own processes set this, so the signals of other programs stay theirs.
            if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
                signal.signal(signal.SIGTERM, _exit_in_order)
                named = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
                self._session_dirs = [Path(name) for name in named if name and Path(name).is_dir()]
            self._driver = QueryDriver.connected(self._query)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        """The offset before every plan. Does no I/O.

        Spark calls this twice in batch 0, and again when batch 0 is replayed. So it is the same
        every time; the first `latestOffset` pins the start.
        """
        from spark_job.driver.query_driver import offset_of  # noqa: PLC0415  # not on the executors

        return offset_of({}, names_streams=not self._query.is_of_one)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._query.max_records
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Settle the plans that `start` names, and return the next plans' offset, or `start` when
        there is nothing to read.

        Spark passes an offset as `start` only after its batch is committed.
        """
        self._check_session()
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        with _reporting(self.driver):
            return self.driver.next_offset(start, max_records=max_records)

    def _check_session(self) -> None:
        """Raise `KinesisError` if the Spark session has stopped. `spark.stop()` does not stop an
        idle query: it would ask for offsets, and own the application, until the JVM ends.

        Spark does not tell a source that the session has stopped, but removes its directories.
        """
        for folder in self._session_dirs:
            with suppress(FileNotFoundError):
                # Unlike a test of its existence, this keeps the directory from looking unused to
                # programs that remove old files.
                list(folder.iterdir())
                return
        if self._session_dirs:
            raise KinesisError(
                "the Spark session was stopped while the query was running",
                "call query.stop() before spark.stop()",
            )

    def prepareForTriggerAvailableNow(self) -> None:
        self.driver.prepare_available_now()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._driver is None else self._driver.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from kinesis_spout.service.surroundings import (  # noqa: PLC0415  # not in planning
            for_executors,
        )

        if start == end:
            return []
        failpoint("plan-logged")
        # How the driver reaches a stream: the executors have neither its files nor its environment.
        aws = [for_executors(stream.aws, stream.stream) for stream in self._query.streams]
        with _reporting(self.driver):
            tasks = self.driver.tasks(start, end)
        return [TaskPartition(*task, aws=aws[task.stream]) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TaskPartition):
            raise TypeError(
                f"the partition is a {type(partition).__name__}, not a TaskPartition of the "
                "Kinesis source"
            )
        from spark_job.executor.task_reader import read_task  # noqa: PLC0415  # on executors only
        from spark_job.process_services import ProcessServices  # noqa: PLC0415

        settings = replace(self._query.streams[partition.stream], aws=partition.aws)
        context = TaskContext.get()
        if context is not None:
            _keep_small(next(_tasks_read))
        return with_scheme(
            lambda columns: read_task(
                partition.plan_id,
                partition.task,
                partition.plan,
                services=ProcessServices.here(settings),
                columns=columns,
                is_retry=context is not None and context.attemptNumber() > 0,
            ),
            self._columns,
            self._query.scheme,
        )

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class RefusedStreamReader(DataSourceStreamReader):
    """The reader of a query whose options or schema are refused: each call raises that error.

    Spark calls `stop` on the reader of a `streamReader` that has raised, which it does not have. So
    the query would end with an UnboundLocalError (PySpark 4.3.0).
    """

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


def _exit_in_order(number: int, frame: FrameType | None) -> NoReturn:
    """Exit so that Spark's code calls `stop` of the reader. Spark ends a query by a SIGTERM to the
    process that plans it, and by default that process would die without a call.
    """
    del frame
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt `stop`
    # The exit may interrupt the ZooKeeper client while it changes its own state. In one run, `stop`
    # then waited for ever for a thread of the client.
    signal.alarm(END_S)
    sys.exit(128 + number)


def _keep_small(tasks_read: int) -> None:
    """Set up a Python worker that has read so many tasks of this source."""
    if tasks_read == 0:
        # glibc gives each thread that fetches an arena of its own, and an arena keeps the memory of
        # the largest pages that it had: 30 to 90 MB a worker. Other C libraries have no such call.
        import ctypes  # noqa: PLC0415  # on executors only

        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    elif tasks_read == 1:
        # pyspark.daemon collects garbage after each task of a worker that is used again: 50 ms for
        # 100,000 objects, nearly all of them modules, which never become garbage. At the second
        # task it has just done so, and all that the first one has imported, connected and kept is
        # here. Once only: what is frozen and dropped later is not collected if it is part of a
        # cycle.
        gc.freeze()


@contextmanager
def _reporting(driver: QueryDriver) -> Iterator[None]:
    """An error of a call ends the query, so it is reported to whoever looks at the application."""
    try:
        yield
    except Exception as exc:
        driver.failed(exc)
        raise


def schema_ddl(scheme: RecordScheme | None) -> str:
    """The columns of a source with this scheme, or without one."""
    if scheme is None:
        return _IN_EVERY_SESSION
    from scheme.record_scheme import outcome_ddl  # noqa: PLC0415  # only with a scheme

    return f"{_IN_EVERY_SESSION}, {PARSED} {outcome_ddl(scheme)}"


def with_scheme(
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]],
    columns: Sequence[str],
    scheme: RecordScheme | None,
) -> Iterator[pa.RecordBatch]:
    """The rows that `read` gives of these columns. It is not asked for the scheme's column, which
    is made here.
    """
    if scheme is None or PARSED not in columns:
        return read(columns)
    from spark_job.scheme_column import with_outcomes  # noqa: PLC0415  # only with a scheme

    own = tuple(dict.fromkeys(["data", *(name for name in columns if name != PARSED)]))
    return with_outcomes(read(own), scheme, columns, name=PARSED)


def selected_columns(schema: StructType, scheme: RecordScheme | None = None) -> tuple[str, ...]:
    """The names of the columns in `schema`: all of them, or those that the user's `.schema(...)`
    selects, in its order. Raises `ConfigError` for a column that the source does not have.
    """
    for field in schema.fields:
        if scheme is not None and field.name == PARSED:
            _check_parsed(field.dataType, scheme)
            continue
        kind = field.dataType.simpleString().upper()
        if _TYPES.get(field.name) != kind:
            raise ConfigError(
                f"the schema has a column {field.name} {kind}, which the Kinesis source does "
                "not have",
                f"use only columns of the schema {SCHEMA_DDL}",
            )
        if not field.nullable:
            # Spark compares the rows' schema with this one, and each column may have nulls.
            raise ConfigError(
                f"the schema declares column {field.name} NOT NULL, but the Kinesis source may "
                "return NULL in this column",
                f"remove NOT NULL from column {field.name}",
            )
    names = tuple(schema.names)
    if not names:
        raise ConfigError(
            "the schema has no columns", f"use only columns of the schema {SCHEMA_DDL}"
        )
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(
            f"the schema contains the column {min(twice)} twice",
            "list each column of the schema once",
        )
    return names


def _check_parsed(kind: DataType, scheme: RecordScheme) -> None:
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415  # only with a scheme

    from scheme.record_scheme import outcome_ddl  # noqa: PLC0415  # as above
    from spark_job.scheme_column import column_type  # noqa: PLC0415  # as above

    if to_arrow_type(kind, timezone="UTC") != column_type(scheme):
        raise ConfigError(
            f"the schema has a column {PARSED} whose type differs from the type that the "
            "scheme defines",
            f"declare column {PARSED} as {outcome_ddl(scheme)}",
        )
