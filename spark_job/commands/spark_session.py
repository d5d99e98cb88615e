"""The Spark session of the commands and of the demo's job, and the options that every command with
a session has.
"""

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

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.programs.modules import module_path
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",  # Spark's bar would overwrite our line
    "spark.sql.streaming.stopTimeout": "30s",
}

# command-line options
PANEL = "Spark"
DEFAULT_LOG = Path("kinesis-spout.log")

Master = Annotated[
    str | None,
    typer.Option(
        help="Spark master (default: from Spark's configuration, else local[*]).",
        rich_help_panel=PANEL,
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Spark configuration. Repeatable.", rich_help_panel=PANEL
    ),
]
LogFile = Annotated[Path, typer.Option(help="File for Spark's log.", rich_help_panel=PANEL)]


@contextmanager
def spark_session(
    app_name: str, *, master: str | None, conf: Mapping[str, str], folders: tuple[Path, ...] = ()
) -> Iterator[SparkSession]:
    """A Spark session during a with block. Blocks for the seconds that a JVM takes to start.

    - `master`: None means the master of spark-defaults.conf, else local[*].
    - `folders`: put on the module path of Python workers on this machine.

    Python workers use this interpreter, unless PYSPARK_PYTHON names another. The JVM gets a process
    group of its own. So Ctrl-C in a terminal reaches only this process, which stops the query in
    order. Raises `CliError` when Spark does not start.
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
            f"Spark does not start: {failure_sentence(str(exc))}; Spark needs Java 17 or newer "
            "(JAVA_HOME or java on the PATH)"
        ) from exc
    except Py4JError as exc:
        named = settings.get("spark.master", None) or "of Spark's configuration"
        raise CliError(
            f"Spark does not start on master {named}; check that it runs and can be reached from "
            "this machine"
        ) from exc
    try:
        yield spark
    finally:
        spark.stop()
