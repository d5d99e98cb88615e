"""Executors reach the stream as the driver does, although they find other surroundings."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from typing import TYPE_CHECKING

import pytest

from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY, create_stream, records_on
from tests.support.spark import executors_elsewhere
from tests.support.spark.job_process import ROOT, JobProcess
from tests.support.spark.source import APPLICATION, STREAM, StreamUnderTest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
COUNT = 12
POISON = "record 3"
OTHERS = {"AWS_DEFAULT_REGION": "mars-north-1", "AWS_ENDPOINT_URL_KINESIS": "http://127.0.0.1:1"}
# Python runs it in each process. `spark.executorEnv` would reach the driver's workers, too.
SITE = """\
import os
if "SPARK_EXECUTOR_DIRS" in os.environ:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update({variables})
"""


@pytest.mark.parametrize("variables", [{}, OTHERS])
def test_a_query_a_batch_read_a_write_and_dead_letters_on_executors_with_other_surroundings(
    stream: StreamUnderTest, wheel: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    """The driver finds the region in a profile, and the endpoint in its environment. Both have our
    package from the wheel that the job ships.
    """
    stream.put(COUNT)
    for name in ("copy", "letters"):
        create_stream(stream.client, name)
    config = tmp_path / "config"
    config.write_text(f"[default]\nregion = {REGION}\n")
    secrets = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    keys = {"awsAccessKeyId": ACCESS_KEY, "awsSecretAccessKey": SECRET_KEY}
    addresses = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    job = {
        "master": "local-cluster[1,1,1024]",
        "conf": addresses,
        "pyFiles": [str(wheel)],
        "source": secrets
        | {
            "stream": STREAM,
            "application": APPLICATION,
            "zookeeper": stream.zookeeper,
            "starting_position": "TRIM_HORIZON",
        },
        "letters": secrets,
        "poison": POISON,
        "keys": keys,
        "sink": keys | {"streamName": "copy"},
        "directory": str(tmp_path),
    }
    site = tmp_path / "site"
    site.mkdir()
    site.joinpath("sitecustomize.py").write_text(SITE.format(variables=variables))
    driver = {
        "AWS_ENDPOINT_URL_KINESIS": stream.endpoint_url,
        "AWS_CONFIG_FILE": str(config),
        "PYTHONPATH": os.pathsep.join(map(str, (site, wheel, ROOT))),
    }
    process = JobProcess(job, tmp_path, env=driver, program=executors_elsewhere.__file__)
    process.start()
    assert process.wait() == 0, process.tail()
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert all(wheel.name in place for place in answer.pop("places"))
    assert answer == {"rows": COUNT, "variables": variables}
    sent = {f"record {number}".encode() for number in range(COUNT)}
    assert {one["Data"] for one in records_on(stream.client, "copy")} == sent
    (letter,) = records_on(stream.client, "letters")
    assert b64decode(json.loads(letter["Data"])["data"]) == POISON.encode()
