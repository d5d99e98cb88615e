"""The arguments of a drill's Spark job, which is `python -m spark_job.commands.drill_job`."""

from __future__ import annotations

from enum import StrEnum
from inspect import signature
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_LIMIT = 3
SCRATCH = "scratch"  # the parameter of a user's function that gets the directory
SCRATCH_VARIABLE = "KINESIS_SPOUT_DRILL_SCRATCH"
RETRY_FIRST_DELAY = "200ms"
RETRY_MAX_DELAY = "1s"


def takes_scratch(function: Callable[..., object]) -> bool:
    """Whether the function has a parameter for the scratch directory."""
    try:
        return SCRATCH in signature(function).parameters
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return False


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
    - `process`: `module:function`, the user's function; empty for that of the drill. `scratch`: the
      directory that it may write to, which the environment variable `SCRATCH_VARIABLE` names too.
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
    scratch: str
    outages: str
    is_poisoned: bool = False
