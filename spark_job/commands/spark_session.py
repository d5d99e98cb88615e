"""The Spark session of the commands and of the demo's job, and the log that takes what Spark's
processes print.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from rich.console import Console

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.programs import module_path
from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",  # Spark's bar would overwrite our line
    "spark.sql.streaming.stopTimeout": "30s",
}


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
            f"Spark cannot start: {failure_sentence(str(exc)).rstrip('.')}",
            "check that JAVA_HOME or the PATH leads to Java 17 or newer, and check the --conf "
            "values; Spark's log contains Java's error message",
        ) from exc
    except Py4JError as exc:
        named = settings.get("spark.master", None) or "of Spark's configuration"
        raise CliError(
            f"Spark cannot start on master {named}",
            "check that the master is running and can be reached from this machine",
        ) from exc
    try:
        yield spark
    finally:
        # A signal may have interrupted a call of this thread to the JVM. Its answer would then be
        # taken for that of the next call; another thread has a connection of its own.
        with ThreadPoolExecutor(1) as other_thread:
            other_thread.submit(spark.stop).result()


@contextmanager
def quiet(log_file: Path, *, keep_stdout: bool = False) -> Iterator[tuple[Console, Console]]:
    """Redirect the stderr of this process and its children to `log_file`, and stdout unless it is
    kept. Gives consoles on stdout and stderr for our own output meanwhile.

    Spark's JVM and Python workers inherit file descriptors, so these are redirected and not
    `sys.stderr`. The block must begin before the JVM starts.

    Appends to the file and creates its folder. Not thread-safe: the descriptors belong to the
    process. Raises `CliError` when the file cannot be written.
    """
    stdout, stderr = 1, 2
    with ExitStack() as stack:
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            log = stack.enter_context(log_file.open("ab", buffering=0))
        except OSError as exc:
            raise CliError(
                f"cannot write to the log file {log_file} ({exc.strerror})",
                "choose another file with --log-file",
            ) from exc
        _flush()
        out, notes = (
            stack.enter_context(os.fdopen(os.dup(each), "w", encoding="utf-8", errors="replace"))
            for each in (stdout, stderr)
        )
        for descriptor in (stderr,) if keep_stdout else (stderr, stdout):
            saved = os.dup(descriptor)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, descriptor)
            os.dup2(log.fileno(), descriptor)
        stack.callback(_flush)
        yield Console(file=out), Console(file=notes)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
