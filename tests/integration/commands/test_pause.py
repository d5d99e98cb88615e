"""`pause` and `resume` as a user runs them, beside a consumer, on a real ZooKeeper."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from state.process import this_process
from tests.support.shell.command_line import ASCII_LOCALE
from tests.support.shell.consuming import LIMIT_S, running
from tests.support.state.state_stores import plan

if TYPE_CHECKING:
    import pytest

    from tests.support.shell.operators_shell import Shell


def test_a_running_consumer_is_paused_and_goes_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its ownership meanwhile; status and explain say who has paused it, and why."""
    monkeypatch.setattr("kinesis_spout.cli.pause.SETTLES_S", 0.3)
    shell.put("a")
    consume = ("--application", "etl", "--zookeeper", shell.zookeeper, "--from", "TRIM_HORIZON")
    with running(shell.fake, "consume", "orders", *consume, "--raw") as consumer:
        assert consumer.stdout is not None
        assert consumer.stderr is not None
        assert consumer.stdout.readline() == "a\n"
        ended = shell.operate("pause", "--reason", "deploy", "--wait")
        assert ended.returncode == 0, ended.stderr
        first, last = ended.stdout.splitlines()
        assert first.startswith("application etl on stream orders is paused by ")
        assert first.endswith("('deploy')")
        assert last.startswith("the application has no records in flight; ")
        assert "still owns the application" in last
        # Which a slow process may see after a wait this short.
        assert any("application etl is paused" in line for line in consumer.stderr)
        shell.put("b")
        again = shell.operate("pause")
        assert (again.returncode, "is paused already by" in again.stdout) == (0, True)
        status = shell.operate("status", "--window", "1s", *shell.endpoint)
        assert "'deploy'" in " ".join(status.stdout.split())
        assert "kinesis-spout resume" in " ".join(status.stdout.split())
        assert "paused: the application was paused by" in " ".join(status.stdout.split())
        why = shell.operate("explain", "0", "--window", "1s", *shell.endpoint)
        assert "-> Fix: end the pause" in why.stdout
        assert "kinesis-spout resume --application etl" in why.stdout
        resumed = shell.operate("resume")
        assert (resumed.returncode, resumed.stdout[:36]) == (
            0,
            "ended the pause of application etl b",
        )
        assert consumer.stdout.readline() == "b\n"
        consumer.terminate()
        consumer.communicate(timeout=LIMIT_S)


def test_an_application_that_never_ran_is_refused_unless_it_is_meant(shell: Shell) -> None:
    for command in ("pause", "resume"):
        ended = shell.operate(command, application="typo")
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
        assert "application typo has never run on stream orders" in ended.stderr
        assert ("--before-start" in ended.stderr) is (command == "pause")
    assert shell.operate("pause", "--before-start", "--wait").stdout.splitlines()[-1] == (
        "the application has no records in flight, because no process is running it; the next "
        "process starts paused"
    )
    assert shell.operate("resume").returncode == 0
    shell.consume()
    ended = shell.operate("resume")
    assert (ended.returncode, ended.stdout) == (
        0,
        "application etl on stream orders is not paused\n",
    )


def test_a_reason_and_a_root_are_read_in_an_ascii_locale(shell: Shell) -> None:
    named = ("--before-start", "--reason", "Störung", "--zookeeper-root", "läufe")
    ended = shell.operate("pause", *named, **ASCII_LOCALE)
    assert (ended.returncode, ended.stderr) == (0, "")
    status = shell.operate("resume", "--zookeeper-root", "läufe")
    assert "('Störung')" in status.stdout


def test_a_wait_that_is_over_is_a_failure_and_the_pause_stays(shell: Shell) -> None:
    with closing(shell.store()) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
        store.plans.create(plan(1))
        ended = shell.operate("pause", "--before-start", "--wait", "--timeout", "100ms")
        assert ended.returncode == 1
        assert "the outcomes of batch 1-aa are not stored yet; to wait longer, run" in ended.stderr
        assert store.pause.read() is not None
