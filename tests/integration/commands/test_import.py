"""`kinesis-spout import`: an application goes on at the next record, where another consumer has
stopped. On a FakeKinesis, a real ZooKeeper, and moto's DynamoDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.migration.captured import (
    awslabs_stream,
    captured,
    for_stream,
    kcl_stream,
    numbers,
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


def kcl_table(shell: Shell, moto_endpoint: str) -> tuple[str, ...]:
    """The options that name a lease table with the captured leases."""
    name = f"kcl-{shell.folder.name}"
    make_table(moto_endpoint, name, for_stream("kcl", shell.fake.model)["items"])
    return "--from", "kcl", "--lease-table", name, "--dynamodb-endpoint-url", moto_endpoint


def read(shell: Shell) -> list[str]:
    return sorted(shell.consume())


def test_a_kcl_application_is_gone_on_with_at_the_next_record(
    shell: Shell, moto_endpoint: str
) -> None:
    """A finished shard, one in the middle, an aggregate in the middle, and a child that was not
    begun. A dry run writes nothing, and says the same. State is replaced only where that is said.
    """
    kcl_stream(shell.fake.model)
    here, options = numbers(shell.fake.model), kcl_table(shell, moto_endpoint)
    dry = import_(shell, *options, "--dry-run")
    assert (dry.returncode, shell.states()) == (0, {})
    lines = dry.stdout.splitlines()
    assert lines[:5] == [
        "shardId-000000000000",
        "  source  SHARD_END",
        "  before  no state",
        "  after   SHARD_END",
        "  reads nothing, skips nothing",
    ]
    assert lines[8].startswith(f"  after   AFTER:{here['shardId-000000000001:3']}  (next record ")
    assert lines[9] == "  reads 2 waiting records, skips nothing"
    assert f"  after   AT:{here['shardId-000000000002:0']}.2  (next record " in dry.stdout
    assert "worker worker-1 still has leases" in dry.stderr
    done = import_(shell, *options, "--yes")
    assert (done.returncode, done.stdout.splitlines()) == (0, [*lines[:-1], "imported"])
    assert read(shell) == ["b4", "b5", "c2", "d0"]
    assert shell.consume() == []
    refused = import_(shell, *options, "--yes")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "error: application etl has state on stream orders already; give --replace to replace "
        "that state, or give another --application"
    )
    assert import_(shell, *options, "--yes", "--replace").returncode == 0
    assert read(shell) == ["b4", "b5", "c2", "d0"]


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
    assert "does not say where the last batch, 0, ended, so all of it is read again" in (
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
            "which is outside the range of its",
        ),
        (("kcl",), 2, "needs --lease-table"),
        (("kcl", "--topology", "a", "--lease-table", "b"), 2, "does not apply with --from kcl"),
        (("awslabs", "--checkpoint-location", "s3://b/c"), 1, "copy it here first"),
        (("storm-spout", "--topology", "typo"), 1, "has no shardList and no state"),
        (("databricks", "--at", "AT:5"), 2, "is a position in one shard"),
    ):
        ended = import_(shell, "--from", *arguments, "--yes")
        assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
        flat = " ".join(ended.stderr.replace("│", " ").split())
        assert said in flat, (arguments, ended.stderr)
    assert shell.states() == {}
