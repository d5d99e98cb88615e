"""Starts the Spark session of `kinesis-spout run` and of the demo's job."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from kinesis_spout.cli.errors import CliError
from spark_job.commands.child_processes import module_path
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",  # its bar would go over our line
    "spark.sql.streaming.stopTimeout": "30s",
}

# options that every command with a Spark session has
PANEL = "Spark"
DEFAULT_LOG = Path("kinesis-spout.log")

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master; else Spark's configuration's, else local[*].", rich_help_panel=PANEL
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Spark configuration. Repeatable.", rich_help_panel=PANEL
    ),
]
LogFile = Annotated[Path, typer.Option(help="Where Spark's log goes.", rich_help_panel=PANEL)]


@contextmanager
def spark_session(
    app_name: str, *, master: str | None, conf: Mapping[str, str], folders: tuple[Path, ...] = ()
) -> Iterator[SparkSession]:
    """A Spark session for the block; stopped after it. Blocks for the seconds that a JVM takes to
    start.

    `master` None: what spark-defaults.conf says, else local[*]. Python workers get this interpreter
    (unless PYSPARK_PYTHON names another) and, where they run on this machine, `folders` on their
    module path. The JVM gets a process group of its own: ctrl-C in a terminal reaches this process
    only, which then stops the query in order. Raises `CliError` when the JVM does not start.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = module_path(os.environ.get("PYTHONPATH", ""), *folders)
    settings = (
        SparkConf(loadDefaults=False)
        .setAppName(app_name)
        .setAll([*(DEFAULTS | dict(conf)).items()])
    )
    if master is not None:
        settings.setMaster(master)
    try:
        gateway = launch_gateway(settings, {"start_new_session": True})  # type: ignore[no-untyped-call]  # PySpark annotates none of it
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - the only way to give the context a gateway and stay with the builder
        spark = SparkSession.builder.config(conf=settings).getOrCreate()
    except (PySparkException, OSError) as exc:
        raise CliError(
            f"Spark does not start: {failure_sentence(str(exc))}; it needs Java 17 or newer "
            "(JAVA_HOME or java on the PATH)"
        ) from exc
    except Py4JError as exc:
        named = settings.get("spark.master", None) or "of Spark's configuration"
        raise CliError(
            f"Spark does not start on master {named}; check that it is there and can be reached "
            "from here"
        ) from exc
    try:
        yield spark
    finally:
        spark.stop()
