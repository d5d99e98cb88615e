"""The Spark session of a command that a signal ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support.shell.command_line import environment
from tests.support.spark.session import QUICK_JVM

pytestmark = pytest.mark.spark

INTERRUPTED = f"""
import os, signal, sys, threading
from kinesis_spout.cli.exit_codes import Interrupted, StopSignals
from spark_job.commands.spark_session import spark_session
conf = {{
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": {QUICK_JVM!r},
}}
with StopSignals() as stop:
    try:
        with spark_session("etl", master="local[1]", conf=conf) as spark:
            stop.install()
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
            spark.sparkContext._jvm.java.lang.Thread.sleep(3000)
    except Interrupted as signalled:
        sys.exit(signalled.exit_code)
"""


def test_a_signal_during_a_call_to_the_jvm_stays_the_end_of_the_command() -> None:
    """The answer of that call was taken for one of those that end the session, which failed."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
