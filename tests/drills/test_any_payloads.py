"""Many runs of the property that both halves of a scheme agree about any bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.test_schemes import assert_agreement, many_payloads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(many_payloads)
def test_python_and_spark_agree_about_many_payloads(
    spark: SparkSession, found: list[bytes]
) -> None:
    assert_agreement(spark, found)
