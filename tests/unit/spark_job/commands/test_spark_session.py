"""The Spark session of the commands, where Spark does not start."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest
from pyspark.errors import PySparkRuntimeError

from kinesis_spout.cli.exit_codes import CliError
from spark_job.commands import spark_session as session


def test_a_jvm_that_ends_at_once_need_not_be_a_missing_java() -> None:
    """PySpark knows no cause. It may be `--conf spark.driver.memory=lots`, too."""
    ended = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    with (
        patch.dict(os.environ),
        patch.object(session, "launch_gateway", side_effect=ended),
        pytest.raises(CliError, match=r"number; check that JAVA_HOME .* the --conf values"),
        session.spark_session("etl", master=None, conf={}),
    ):
        pass
