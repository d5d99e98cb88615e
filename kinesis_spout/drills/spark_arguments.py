"""The arguments of a drill's Spark job, which is `python -m spark_job.commands.drill_job`."""

from __future__ import annotations

from enum import StrEnum

import msgspec

RETRY_LIMIT = 3
RETRY_FIRST_DELAY = "200ms"
RETRY_MAX_DELAY = "1s"


class Outage(StrEnum):
    """What the job writes to does not answer: its function fails as a whole, or for each record; or
    the function for dead letters does.
    """

    SINK = "sink"
    RECORDS = "records"
    LETTERS = "letters"


class SparkArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Of one start of the job.

    - `source`: fields of `KinesisSource`. `conf`: settings of Spark.
    - `path`: the file for its lines. `out`: the directory for its parquet. `checkpoint`: that of
      Spark's own log.
    - `process`: `module:function`, the user's function; empty for that of the drill.
    - `is_poisoned`: one record kills the driver whenever it is delivered.
    - `outages`: a directory. While it has a file with the name of an `Outage`, there is that one.
    """

    source: dict[str, str | float | int]
    master: str
    conf: dict[str, str]
    path: str
    out: str
    checkpoint: str
    process: str = ""
    outages: str
    is_poisoned: bool = False
