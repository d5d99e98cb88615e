"""`kinesis-spout import`: an application goes on at the next record, where another consumer has
stopped. On a FakeKinesis, a real ZooKeeper, and moto's DynamoDB.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from state.process import this_process
from tests.support.migration.captured import (
    awslabs_stream,
    captured,
    for_stream,
    kcl_stream,
    numbers,
    progress_of,
    storm_spout_state,
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


def move_in(shell: Shell, *arguments: str, application: str = "etl") -> CompletedProcess[str]:
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
    begun. A dry run writes nothing, and says the same.
    """
    kcl_stream(shell.fake.model)
    here, options = numbers(shell.fake.model), kcl_table(shell, moto_endpoint)
    dry = move_in(shell, *options, "--dry-run")
    assert (dry.returncode, shell.states()) == (0, {})
    lines = dry.stdout.splitlines()
    assert lines[:5] == [
        "shardId-000000000000",
        "  there   SHARD_END",
        "  before  no state",
        "  after   SHARD_END",
        "  reads nothing, skips nothing",
    ]
    assert lines[8].startswith(f"  after   AFTER:{here['shardId-000000000001:3']}  (next record ")
    assert lines[9] == "  reads 2 records that wait, repeats nothing known, skips nothing"
    assert f"  after   AT:{here['shardId-000000000002:0']}.2  (next record " in dry.stdout
    assert "worker worker-1 still holds leases" in dry.stderr
    done = move_in(shell, *options, "--yes")
    assert (done.returncode, done.stdout.splitlines()) == (0, [*lines[:-1], "imported"])
    assert read(shell) == ["b4", "b5", "c2", "d0"]
    assert shell.consume() == []


def test_a_query_of_awslabs_is_gone_on_with_after_its_last_committed_batch(
    shell: Shell, tmp_path: Path
) -> None:
    """Its second batch was read and not committed, so it is read again, and that is said."""
    awslabs_stream(shell.fake.model)
    location = write_files(tmp_path / "location", for_stream("awslabs", shell.fake.model)["files"])
    done = move_in(shell, "--from", "awslabs", "--checkpoint-location", str(location), "--yes")
    assert (done.returncode, done.stderr) == (
        0,
        "note: batch 1 was planned and not committed, so it is read again\n",
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("  reads")] == [
        "  reads 2 records that wait, repeats 1 record, skips nothing",
        "  reads 2 records that wait, repeats 2 records, skips nothing",
    ]
    assert read(shell) == ["a9", "b4", "b5", "g2"]


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
    without = move_in(shell, *options, "--dry-run")
    assert "the ends of the last batch, 0, are not there, so all of it is read again" in (
        without.stderr
    )
    place = ("--metadata-table", table, "--dynamodb-endpoint-url", moto_endpoint)
    assert move_in(shell, *options, *place).returncode == 0
    assert read(shell) == ["a9", "b4", "b5", "g2"]


def test_a_storm_topology_is_gone_on_with(shell: Shell) -> None:
    """From its own paths into an application's; its znodes stay as they are."""
    kcl_stream(shell.fake.model)
    storm_spout_state(shell.fake.model, shell.zookeeper, "/kinesis_storm_spout/words/orders")
    done = move_in(shell, "--from", "storm-spout", "--topology", "words", "--yes")
    assert done.returncode == 0, done.stderr
    assert "  after   SHARD_END" in done.stdout.splitlines()[:5]
    assert read(shell) == ["b4", "b5", "d0"]


def test_a_storm_topology_becomes_the_application_in_place(shell: Shell) -> None:
    """The application's own paths: no --replace is needed. A second import has nothing to do."""
    kcl_stream(shell.fake.model)
    storm_spout_state(shell.fake.model, shell.zookeeper, "/kinesis_storm_spout/words/orders")
    place = ("--zookeeper-root", "kinesis_storm_spout")
    options = ("--from", "storm-spout", "--topology", "words", *place, "--yes")
    done = move_in(shell, *options, application="words")
    assert done.returncode == 0, done.stderr
    again = move_in(shell, *options, application="words")
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == (
        "error: /kinesis_storm_spout/words/orders is an application of kinesis-spout already, so "
        "there is nothing to import\n"
    )


def test_a_query_of_databricks_is_gone_on_with_by_its_progress(
    shell: Shell, tmp_path: Path
) -> None:
    """Where it does not say where it is, a time is asked for."""
    awslabs_stream(shell.fake.model)
    (tmp_path / "last.json").write_text(progress_of(shell.fake.model))
    options = ("--from", "databricks", "--progress", "last.json", "--yes")
    refused = move_in(shell, *options)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        "error: databricks does not say where it is in shardId-000000000001; give --at with"
    )
    assert move_in(shell, *options, "--at", "TRIM_HORIZON").returncode == 0
    assert read(shell) == ["a9", "b0", "b1", "b2", "b3", "b4", "b5", "g0", "g1", "g2"]


def test_what_a_time_passes_over_is_counted(shell: Shell) -> None:
    awslabs_stream(shell.fake.model)
    shown = move_in(shell, "--from", "databricks", "--at", "LATEST", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "skips" in shown.stdout


def test_an_application_with_state_is_replaced_only_if_that_is_wanted(
    shell: Shell, moto_endpoint: str
) -> None:
    kcl_stream(shell.fake.model)
    shell.consume()
    options = (*kcl_table(shell, moto_endpoint), "--yes")
    refused = move_in(shell, *options)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        "error: application etl has state on stream orders already; give --replace to replace it, "
        "or another --application"
    )
    assert move_in(shell, *options, "--replace").returncode == 0
    assert read(shell) == ["b4", "b5", "c2", "d0"]


@pytest.mark.usefixtures("waits_briefly_for_an_owner")
def test_nothing_is_imported_into_a_running_application(shell: Shell, moto_endpoint: str) -> None:
    kcl_stream(shell.fake.model)
    options = kcl_table(shell, moto_endpoint)
    with closing(shell.store()) as store:
        store.ownership.acquire(this_process(1_000), timeout_s=1)
        assert move_in(shell, *options, "--yes").returncode == 4
        assert move_in(shell, *options, "--dry-run").returncode == 0


def test_what_cannot_be_imported_is_a_sentence(
    shell: Shell, moto_endpoint: str, tmp_path: Path
) -> None:
    kcl_stream(shell.fake.model)
    foreign = f"foreign-{tmp_path.name}"
    make_table(moto_endpoint, foreign, captured("kcl")["items"])
    dynamo = ("--dynamodb-endpoint-url", moto_endpoint)
    for arguments, code, said in (
        (("kcl", "--lease-table", "none", *dynamo), 2, "table none at"),
        (("kcl", "--lease-table", foreign, *dynamo), 1, "which is outside its numbers"),
        (("kcl",), 2, "needs --lease-table"),
        (("kcl", "--topology", "a", "--lease-table", "b"), 2, "is not for --from kcl"),
        (("awslabs", "--checkpoint-location", "nowhere"), 1, "nowhere is no folder"),
        (("awslabs", "--checkpoint-location", "s3://b/c"), 1, "copy it here first"),
        (("storm-spout", "--topology", "typo"), 1, "has no shardList and no state"),
        (("databricks", "--at", "AT:5"), 2, "is a position in one shard"),
        (("flink",), 2, "Invalid value"),
    ):
        ended = move_in(shell, "--from", *arguments, "--yes")
        assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
        flat = " ".join(ended.stderr.replace("│", " ").split())
        assert said in flat, (arguments, ended.stderr)
    assert shell.states() == {}
