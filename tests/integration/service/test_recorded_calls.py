"""Each use of a stream makes the calls that its permissions name, and no other.

botocore tells of every call of every process, Spark's workers included. An action that a policy has
and no use calls is too much; a call that no policy has fails at a user's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.service.dynamodb import SCAN
from kinesis_spout.service.permissions import ASSUME_ROLE, PERMISSIONS, Use, action_of
from tests.integration.commands.test_import import kcl_table
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY, serve
from tests.support.migration.captured import kcl_stream
from tests.support.shell.command_line import environment, run_cli
from tests.support.shell.consuming import run
from tests.support.shell.operators_shell import SHARD
from tests.support.spark.job_process import ROOT, JobProcess
from tests.support.spark.session import COMMAND_OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kinesis.recorded_calls import RecordedCalls
    from tests.support.kinesis.services import ServedFake
    from tests.support.shell.operators_shell import Shell

EFO = ("--read-mode", "efo", "--consumer-name", "reader")
ONE = ("--from", "TRIM_HORIZON", "--max-records", "1", "--raw")
_RESHARDS = """
import sys
from kinesis_spout.drills.credentials import aws_of
from kinesis_spout.drills.world.remote_stream import RemoteStream
aws = aws_of(region={region!r}, endpoint={endpoint!r}, is_local=True)
with RemoteStream("trial-drill-1", aws, is_local=True) as stream:
    first = stream.shards()
    stream.split(first[0].shard_id)
    stream.merge(first[1].shard_id, first[2].shard_id)
    stream.update_shard_count(8)
"""


def allowed(*uses: Use) -> set[str]:
    return {action_of(name) for use in uses for name in PERMISSIONS[use].all_operations}


def keys() -> dict[str, str]:
    return {"awsAccessKeyId": ACCESS_KEY, "awsSecretAccessKey": SECRET_KEY}


@pytest.fixture
def application(shell: Shell, recorded_calls: RecordedCalls) -> Shell:
    """An application that has read one record; its calls are forgotten."""
    shell.put("one")
    assert shell.consume() == ["one"]
    recorded_calls.clear()
    return shell


# reading


def test_the_spout_and_consume_read(shell: Shell, recorded_calls: RecordedCalls) -> None:
    shell.put("one")
    assert shell.consume() == ["one"]
    assert recorded_calls.actions() == allowed(Use.READ)


@pytest.mark.parametrize(
    "command",
    [
        ("status", "--ask", "5"),
        ("explain",),
        ("doctor",),
        ("checkpoint", "set", f"--shard={SHARD}", "--to=TRIM_HORIZON", "--dry-run"),
        ("checkpoint", "rewind", "--to", "-1h", "--dry-run"),
    ],
    ids=lambda command: command[0] if len(command) < 3 else " ".join(command[:2]),
)
def test_commands_that_look_at_records_need_no_more_than_a_reader(
    command: tuple[str, ...], application: Shell, recorded_calls: RecordedCalls
) -> None:
    ended = application.operate(*command, *application.endpoint)
    assert "Traceback" not in ended.stderr
    assert ended.returncode != 2, ended.stderr
    assert recorded_calls.actions()
    assert recorded_calls.actions() <= allowed(Use.READ)


def test_a_look_at_a_record_needs_no_more_than_a_reader(
    application: Shell, recorded_calls: RecordedCalls
) -> None:
    (sequence,) = application.put("two")
    ended = application.operate("peek", SHARD, sequence, *application.endpoint)
    assert ended.returncode == 0, ended.stderr
    assert {"kinesis:GetShardIterator", "kinesis:GetRecords"} <= recorded_calls.actions()
    assert recorded_calls.actions() <= allowed(Use.READ)


def test_an_import_reads_the_table_too(
    shell: Shell, moto_endpoint: str, recorded_calls: RecordedCalls
) -> None:
    """The other consumer's table is scanned, and never written."""
    with serve() as fake:
        there = replace(shell, fake=fake)
        kcl_stream(fake.model)
        options = kcl_table(there, moto_endpoint)
        ended = there.operate("import", *options, "--yes", *there.endpoint)
    assert ended.returncode == 0, ended.stderr
    called = recorded_calls.actions()
    assert SCAN in called
    assert called - {SCAN} <= allowed(Use.READ)


def test_enhanced_fan_out_subscribes(
    fake_kinesis: ServedFake, recorded_calls: RecordedCalls
) -> None:
    """With the name of a consumer that is not registered, and then with one that is."""
    fake_kinesis.model.create("orders")
    fake_kinesis.model.put("orders", "key", b"one")
    assert run(fake_kinesis, "consume", "orders", *ONE, *EFO).stdout == "one\n"
    called = recorded_calls.actions()
    assert allowed(Use.SUBSCRIBE) <= called
    assert called <= allowed(Use.SUBSCRIBE, Use.READ)
    recorded_calls.clear()
    assert run(fake_kinesis, "consume", "orders", *ONE, *EFO).stdout == "one\n"
    assert recorded_calls.actions() & allowed(Use.SUBSCRIBE) == set(
        PERMISSIONS[Use.SUBSCRIBE].actions
    )


def test_consumers_are_listed_and_removed(
    fake_kinesis: ServedFake, recorded_calls: RecordedCalls
) -> None:
    fake_kinesis.model.create("orders")
    fake_kinesis.model.put("orders", "key", b"one")
    run(fake_kinesis, "consume", "orders", *ONE, *EFO)
    recorded_calls.clear()
    assert run(fake_kinesis, "consumers", "list", "orders").returncode == 0
    assert recorded_calls.actions() == set(PERMISSIONS[Use.CONSUMERS].actions)
    ended = run(fake_kinesis, "consumers", "remove", "orders", "reader", "--yes")
    assert ended.returncode == 0, ended.stderr
    assert recorded_calls.actions() == allowed(Use.CONSUMERS)


@pytest.mark.parametrize("command", [("status", "--ask", "0"), ("shards",)])
def test_a_look_at_shards_reads_no_record(
    command: tuple[str, ...], application: Shell, recorded_calls: RecordedCalls
) -> None:
    if command[0] == "status":
        ended = application.operate(*command, *application.endpoint)
    else:
        ended = application.run(*command, "orders", *application.endpoint)
    assert ended.returncode in {0, 1}, ended.stderr
    assert recorded_calls.actions() == allowed(Use.DESCRIBE)


# writing


def test_produce_puts_and_looks_at_the_shards_to_aggregate(
    fake_kinesis: ServedFake, recorded_calls: RecordedCalls
) -> None:
    fake_kinesis.model.create("orders")
    assert run(fake_kinesis, "produce", "orders", stdin=b"one\n").returncode == 0
    assert recorded_calls.actions() == set(PERMISSIONS[Use.PRODUCE].actions)
    ended = run(fake_kinesis, "produce", "orders", "--aggregate", stdin=b"one\n")
    assert ended.returncode == 0, ended.stderr
    assert recorded_calls.actions() == allowed(Use.PRODUCE)


@pytest.mark.spark
def test_a_job_reads_dead_letters_and_writes_each_with_its_own_policy(
    fake_kinesis: ServedFake,
    zookeeper_chroot: str,
    tmp_path: Path,
    recorded_calls: RecordedCalls,
) -> None:
    """One of the payloads is larger than every stream takes."""
    for name in ("orders", "letters", "copies"):
        fake_kinesis.model.create(name, max_record_kib=2048)
    for data in (b"small", bytes(1_200_000)):
        fake_kinesis.model.put("orders", "key", data)
    connection = {"region": REGION, "endpointUrl": fake_kinesis.endpoint_url, **keys()}
    job = JobProcess(
        {
            "source": {
                "stream": "orders",
                "application": "etl",
                "zookeeper": zookeeper_chroot,
                "starting_position": "TRIM_HORIZON",
                "region": REGION,
                "endpoint_url": fake_kinesis.endpoint_url,
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET_KEY,
            },
            "letters": {
                "region": REGION,
                "endpoint_url": fake_kinesis.endpoint_url,
                "access_key_id": ACCESS_KEY,
                "secret_access_key": SECRET_KEY,
            },
            "sink": connection | {"streamName": "copies"},
            "checkpoint": str(tmp_path / "checkpoint"),
        },
        tmp_path,
        program=str(ROOT / "tests/support/spark/permitted_job.py"),
        env={"PYTHONPATH": f"{recorded_calls.folder}:{ROOT}"},
    )
    job.start()
    assert job.wait() == 0, job.tail()
    by_stream = {
        Use.READ: "orders",
        Use.DEAD_LETTERS: "letters",
        Use.SINK: "copies",
    }
    # A call with an iterator alone names no stream.
    nameless = {"kinesis:GetRecords"}
    called = {use: recorded_calls.actions(stream=name) for use, name in by_stream.items()}
    assert recorded_calls.actions(stream="") == nameless
    assert called == {use: allowed(use) - nameless for use in by_stream}


@pytest.mark.spark
def test_a_redrive_only_puts(
    fake_kinesis: ServedFake, tmp_path: Path, recorded_calls: RecordedCalls
) -> None:
    fake_kinesis.model.create("orders")
    folder = tmp_path / "dead"
    folder.mkdir()
    letter = {
        "messageId": "shardId-000000000000:1000:4",
        "streamName": "orders",
        "shardId": "shardId-000000000000",
        "sequenceNumber": "1000",
        "subSequenceNumber": 0,
        "partitionKey": "key",
        "data": "b25l",
        "attempts": 4,
        "firstFailure": "2026-01-02T03:04:05.678901Z",
        "lastFailure": "2026-01-02T04:04:05.678901Z",
        "reason": "it failed",
        "application": "etl",
    }
    (folder / "letters.json").write_text(json.dumps(letter) + "\n")
    options = [word for key, value in keys().items() for word in ("--option", f"{key}={value}")]
    where = ("--region", REGION, "--endpoint-url", fake_kinesis.endpoint_url)
    ended = run_cli(
        *("redrive", "dead", "--format", "json", "--yes"),
        *(*where, *options, *COMMAND_OPTIONS),
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    assert recorded_calls.actions() == allowed(Use.REDRIVE)


# drills and roles


def test_a_drill_makes_and_removes_its_stream(
    fake_kinesis: ServedFake, tmp_path: Path, recorded_calls: RecordedCalls
) -> None:
    """A drill that kills a spout, and by itself what other drills do to the shards."""
    where = ("--region", REGION, "--endpoint-url", fake_kinesis.endpoint_url)
    given = ("kill-driver", "--spout", "--efo", "--stream-prefix", "recorded")
    ended = run_cli(
        *("drill", *given, *where),
        cwd=tmp_path,
        AWS_ACCESS_KEY_ID=ACCESS_KEY,
        AWS_SECRET_ACCESS_KEY=SECRET_KEY,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    program = _RESHARDS.format(region=REGION, endpoint=fake_kinesis.endpoint_url)
    subprocess.run(
        [sys.executable, "-c", program], env=environment(), cwd=ROOT, check=True, timeout=60
    )
    # Without `--efo`, or where a shard cannot be subscribed to; the test of `consume` shows them.
    polling = {"kinesis:GetShardIterator", "kinesis:GetRecords"}
    assert recorded_calls.actions() | polling == allowed(Use.DRILL)


def test_a_role_is_assumed_with_one_action(
    fake_kinesis: ServedFake,
    moto_endpoint: str,
    tmp_path: Path,
    recorded_calls: RecordedCalls,
) -> None:
    fake_kinesis.model.create("orders")
    role = "arn:aws:iam::123456789012:role/orders-etl"
    ended = run_cli(
        *("shards", "orders", "--region", REGION, "--endpoint-url", fake_kinesis.endpoint_url),
        *("--option", f"roleArn={role}"),
        cwd=tmp_path,
        AWS_ENDPOINT_URL_STS=moto_endpoint,
        AWS_ACCESS_KEY_ID=ACCESS_KEY,
        AWS_SECRET_ACCESS_KEY=SECRET_KEY,
    )
    assert ended.returncode == 0, ended.stderr
    assert recorded_calls.actions() == allowed(Use.DESCRIBE) | {action_of(ASSUME_ROLE)}
