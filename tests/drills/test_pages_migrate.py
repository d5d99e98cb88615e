"""The pages on moving in: their commands in order, on a FakeKinesis, a real ZooKeeper and moto's
DynamoDB, with their outputs compared. `WRITE_RUNBOOK=1` writes the pages again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.migration.captured import (
    awslabs_stream,
    for_stream,
    kcl_stream,
    progress_of,
    storm_spout_state,
    write_files,
)
from tests.support.migration.tables import make_table
from tests.support.shell.pages import ROOT
from tests.support.shell.runbook import RunbookPlayer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake

PAGES = ROOT / "docs" / "migrate"
JOB = """\
def words(rows):
    return rows.selectExpr("CAST(data AS STRING) AS word")
"""


def test_from_the_kcl(
    fake_kinesis: ServedFake, zookeeper_chroot: str, moto_endpoint: str, tmp_path: Path
) -> None:
    play = RunbookPlayer(
        "Continue after a KCL application",
        tmp_path,
        fake_kinesis,
        zookeeper_chroot,
        page=PAGES / "kcl.md",
    )
    play.variables["AWS_ENDPOINT_URL_DYNAMODB"] = moto_endpoint
    kcl_stream(fake_kinesis.model)
    make_table(moto_endpoint, "kcl-orders", for_stream("kcl", fake_kinesis.model)["items"])
    play.run(4)
    play.end()


def test_from_awslabs(fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path) -> None:
    play = RunbookPlayer(
        "Continue after a query of the connector",
        tmp_path,
        fake_kinesis,
        zookeeper_chroot,
        page=PAGES / "awslabs.md",
    )
    awslabs_stream(fake_kinesis.model)
    write_files(tmp_path / "checkpoint", for_stream("awslabs", fake_kinesis.model)["files"])
    (tmp_path / "words.py").write_text(JOB)
    play.run(5)
    play.end()


def test_from_databricks(fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path) -> None:
    play = RunbookPlayer(
        "Continue after a query on Databricks",
        tmp_path,
        fake_kinesis,
        zookeeper_chroot,
        page=PAGES / "databricks.md",
    )
    awslabs_stream(fake_kinesis.model)
    (tmp_path / "last.json").write_text(progress_of(fake_kinesis.model))
    (tmp_path / "words.py").write_text(JOB)
    play.run(code=1)
    play.run(4)
    play.end()


@pytest.mark.parametrize("title", ["Continue after a topology", "Continue without an import"])
def test_from_the_storm_spout(
    title: str, fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path
) -> None:
    play = RunbookPlayer(
        title, tmp_path, fake_kinesis, zookeeper_chroot, page=PAGES / "storm-spout.md"
    )
    kcl_stream(fake_kinesis.model)
    storm_spout_state(fake_kinesis.model, zookeeper_chroot, "/kinesis_storm_spout/words/orders")
    play.run(1 if title == "Continue without an import" else 3)
    play.end()
