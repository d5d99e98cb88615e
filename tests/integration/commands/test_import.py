"""`kinesis-spout import`: an application goes on at the next record, where another consumer has
stopped. On a FakeKinesis, a real ZooKeeper, and moto's DynamoDB. The pages on moving in show more
of it (`tests/drills/test_pages_migrate.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.migration.captured import (
    awslabs_stream,
    captured,
    for_stream,
    kcl_stream,
    write_files,
)
from tests.support.migration.tables import METADATA_KEYS, make_table
from tests.support.shell.operators_shell import Shell

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.support.kinesis.services import ServedFake


@pytest.fixture
def shell(fake_kinesis: ServedFake, zookeeper_chroot: str, tmp_path: Path) -> Shell:
    """Its stream is made by the test."""
    return Shell(fake_kinesis, zookeeper_chroot, tmp_path)


def import_(shell: Shell, *arguments: str, application: str = "etl") -> CompletedProcess[str]:
    return shell.operate("import", *arguments, *shell.endpoint, application=application)


def read(shell: Shell) -> list[str]:
    return sorted(shell.consume())


def test_the_metadata_of_awslabs_may_be_in_a_table(
    shell: Shell, moto_endpoint: str, tmp_path: Path
) -> None:
    awslabs_stream(shell.fake.model)
    files = for_stream("awslabs", shell.fake.model)["files"]
    ends = {name: files.pop(name) for name in list(files) if "shard-source" in name}
    location = write_files(tmp_path / "location", files)
    items = []
    for name, text in ends.items():
        key, sort_key = name.split("/")[3:5]
        values = {"metadataKey": key, "metadataSortKey": sort_key, "metadataValue": text}
        items.append({field: {"S": value} for field, value in values.items()})
    table = f"kdsc-{tmp_path.name}"
    make_table(moto_endpoint, table, items, METADATA_KEYS)
    options = ("--from", "awslabs", "--checkpoint-location", str(location), "--yes")
    without = import_(shell, *options, "--dry-run")
    assert "does not contain the end of the last batch (0), so the whole batch is read again" in (
        without.stderr
    )
    place = ("--metadata-table", table, "--dynamodb-endpoint-url", moto_endpoint)
    assert import_(shell, *options, *place).returncode == 0
    assert read(shell) == ["a9", "b4", "b5", "g2"]


def test_what_cannot_be_imported_is_a_sentence(
    shell: Shell, moto_endpoint: str, tmp_path: Path
) -> None:
    kcl_stream(shell.fake.model)
    foreign = f"foreign-{tmp_path.name}"
    make_table(moto_endpoint, foreign, captured("kcl")["items"])
    dynamo = ("--dynamodb-endpoint-url", moto_endpoint)
    for arguments, code, said in (
        (("kcl", "--lease-table", "none", *dynamo), 2, "table none at"),
        (
            ("kcl", "--lease-table", foreign, *dynamo),
            1,
            "which is outside the shard's range of",
        ),
        (("kcl",), 2, "needs --lease-table"),
        (("kcl", "--topology", "a", "--lease-table", "b"), 2, "--from kcl does not allow this"),
        (("awslabs", "--checkpoint-location", "s3://b/c"), 1, "copy the directory to this machine"),
        (("storm-spout", "--topology", "typo"), 1, "contains neither a shardList nor the state"),
        (("databricks", "--at", "AT:5"), 2, "is a position in one shard"),
    ):
        ended = import_(shell, "--from", *arguments, "--yes")
        assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
        flat = " ".join(ended.stderr.replace("│", " ").split())
        assert said in flat, (arguments, ended.stderr)
    assert shell.states() == {}
