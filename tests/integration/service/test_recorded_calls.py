"""Each use of a stream makes the calls that its permissions name, and no other.

The service counts every call. An action that a policy has and no use calls is too much; a call that
no policy has fails at a user's. Spark jobs: `tests/drills/test_recorded_jobs.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.dead_letter.letter import line_of
from kinesis_spout.service.dynamodb import SCAN
from kinesis_spout.service.permissions import PERMISSIONS, Use, action_of
from tests.support.kinesis.recorded_calls import ServedCalls, allowed
from tests.support.kinesis.stub_kinesis import StubKinesis, ok, role_answer
from tests.support.kinesis.stub_kinesis import serve as serve_stub
from tests.support.migration.captured import for_stream, kcl_stream
from tests.support.outcomes.letters import Story
from tests.support.shell.consuming import run
from tests.support.shell.operators_shell import SHARD, Shell

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake

EFO = ("--read-mode", "efo", "--consumer-name", "reader")
ONE = ("--from", "TRIM_HORIZON", "--max-records", "1", "--raw")


def always_called(use: Use) -> set[str]:
    return set(map(action_of, PERMISSIONS[use].operations))


@pytest.fixture
def calls(fake_kinesis: ServedFake) -> ServedCalls:
    return ServedCalls(fake_kinesis)


def test_the_spout_and_commands_that_look_at_records_need_no_more_than_a_reader(
    shell: Shell, calls: ServedCalls
) -> None:
    shell.put("one")
    assert shell.consume() == ["one"]
    assert calls.actions() == allowed(Use.READ)
    (sequence,) = shell.put("two")
    for command in (
        ("status", "--ask", "5", "--window", "1s"),
        ("explain", "--window", "1s"),
        ("doctor",),
        ("peek", SHARD, sequence),
        ("checkpoint", "set", f"--shard={SHARD}", "--to=TRIM_HORIZON", "--dry-run"),
        ("checkpoint", "rewind", "--to", "-1h", "--dry-run"),
    ):
        calls.clear()
        ended = shell.operate(*command, *shell.endpoint)
        assert "Traceback" not in ended.stderr
        assert ended.returncode in ({0} if command[0] == "peek" else {0, 1, 3, 4}), ended.stderr
        assert calls.actions(), command
        assert calls.actions() <= allowed(Use.READ), command
        if command[0] == "peek":
            assert {"kinesis:GetShardIterator", "kinesis:GetRecords"} <= calls.actions()


def test_a_look_at_shards_reads_no_record(shell: Shell, calls: ServedCalls) -> None:
    shell.put("one")
    assert shell.consume() == ["one"]
    calls.clear()
    ended = shell.operate("status", "--ask", "0", "--window", "1s", *shell.endpoint)
    assert ended.returncode in {0, 1}, ended.stderr
    assert calls.actions() == allowed(Use.DESCRIBE)
    calls.clear()
    assert shell.run("shards", "orders", *shell.endpoint).returncode == 0
    assert calls.actions() == allowed(Use.DESCRIBE)


def test_an_import_reads_the_table_too(
    fake_kinesis: ServedFake, calls: ServedCalls, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """The other consumer's table is scanned, and never written."""
    kcl_stream(fake_kinesis.model)
    shell = Shell(fake_kinesis, zookeeper_chroot, tmp_path)
    with serve_stub(StubKinesis()) as dynamodb:
        dynamodb.answers("Scan", ok(Items=for_stream("kcl", fake_kinesis.model)["items"]))
        ended = shell.operate(
            *("import", "--from", "kcl", "--lease-table", "leases", "--yes", *shell.endpoint),
            *("--dynamodb-endpoint-url", dynamodb.url),
        )
        assert {f"dynamodb:{one.operation}" for one in dynamodb.requests} == {SCAN}
    assert ended.returncode == 0, ended.stderr
    assert calls.actions() <= allowed(Use.READ)


def test_a_redrive_only_puts(shell: Shell, calls: ServedCalls) -> None:
    (shell.folder / "letters.json").write_bytes(line_of(Story().letter(0)) + b"\n")
    ended = shell.run("redrive", "letters.json", "--yes", *shell.endpoint)
    assert ended.returncode == 0, ended.stderr
    assert calls.actions() == allowed(Use.REDRIVE)


def test_enhanced_fan_out_subscribes_and_consumers_are_listed_and_removed(
    fake_kinesis: ServedFake, calls: ServedCalls
) -> None:
    """With the name of a consumer that is not registered, and then with one that is."""
    fake_kinesis.model.create("orders")
    fake_kinesis.model.put("orders", "key", b"one")
    assert run(fake_kinesis, "consume", "orders", *ONE, *EFO).stdout == "one\n"
    assert allowed(Use.SUBSCRIBE) <= calls.actions() <= allowed(Use.SUBSCRIBE, Use.READ)
    calls.clear()
    assert run(fake_kinesis, "consume", "orders", *ONE, *EFO).stdout == "one\n"
    assert calls.actions() & allowed(Use.SUBSCRIBE) == always_called(Use.SUBSCRIBE)
    calls.clear()
    assert run(fake_kinesis, "consumers", "list", "orders").returncode == 0
    assert calls.actions() == always_called(Use.CONSUMERS)
    ended = run(fake_kinesis, "consumers", "remove", "orders", "reader", "--yes")
    assert ended.returncode == 0, ended.stderr
    assert calls.actions() == allowed(Use.CONSUMERS)


def test_produce_puts_and_looks_at_the_shards_to_aggregate(
    fake_kinesis: ServedFake, calls: ServedCalls
) -> None:
    fake_kinesis.model.create("orders")
    assert run(fake_kinesis, "produce", "orders", stdin=b"one\n").returncode == 0
    assert calls.actions() == always_called(Use.PRODUCE)
    ended = run(fake_kinesis, "produce", "orders", "--aggregate", stdin=b"one\n")
    assert ended.returncode == 0, ended.stderr
    assert calls.actions() == allowed(Use.PRODUCE)


def test_a_role_is_assumed_with_one_action(shell: Shell, calls: ServedCalls) -> None:
    role = "arn:aws:iam::123456789012:role/orders-etl"
    with serve_stub(StubKinesis()) as sts:
        sts.answers("AssumeRole", role_answer("KEY"))
        ended = shell.run(
            *("shards", "orders", *shell.endpoint, "--option", f"roleArn={role}"),
            AWS_ENDPOINT_URL_STS=sts.url,
        )
        assert {request.operation for request in sts.requests} == {"AssumeRole"}
    assert ended.returncode == 0, ended.stderr
    assert calls.actions() == allowed(Use.DESCRIBE)
