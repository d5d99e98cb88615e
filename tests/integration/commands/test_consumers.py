"""`kinesis-spout consumers`, and `consume` by enhanced fan-out, on a served FakeKinesis."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from tests.support.shell.command_line import command_line, environment
from tests.support.shell.consuming import LIMIT_S, connection, run

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from tests.support.kinesis.services import ServedFake


def consume(fake: ServedFake, *words: str) -> CompletedProcess[str]:
    return run(
        fake, "consume", "orders", "--from", "TRIM_HORIZON", "--max-records", "2", "--raw", *words
    )


def test_consume_has_the_records_pushed(orders: ServedFake) -> None:
    """Its consumer is listed, and removed once that is confirmed."""
    for data in (b"one", b"two"):
        orders.model.put("orders", "key", data)
    said = consume(orders, "--read-mode", "efo", "--consumer-name", "reader")
    assert (said.returncode, said.stdout) == (0, "one\ntwo\n"), said.stderr
    (listed,) = json.loads(run(orders, "consumers", "list", "orders", "--json").stdout)
    assert (listed["name"], listed["status"]) == ("reader", "ACTIVE")
    assert "reader  ACTIVE  since " in run(orders, "consumers", "list", "orders").stdout
    remove = ("consumers", "remove", "orders", "reader")
    assert "nothing was written" in run(orders, *remove, "--dry-run").stdout
    refused = run(orders, *remove, stdin=b"n\n")
    assert (refused.returncode, refused.stdout.endswith(": nothing was written\n")) == (1, True)
    unasked = run(orders, *remove)
    assert unasked.returncode == 1
    assert unasked.stderr == (
        "error: stdin ended before the question was answered, so nothing was written; pass --yes "
        "to skip the question\n"
    )
    assert list(orders.model.stream("orders").consumers) == ["reader"]
    assert run(orders, *remove, "--yes").stdout.endswith("removed\n")
    assert "orders has no registered consumers" in run(orders, "consumers", "list", "orders").stdout
    said = run(orders, *remove, "--yes")
    assert said.returncode == 1
    assert "has no registered consumer reader" in " ".join(said.stderr.split())


LIST = ("consumers", "list", "orders")
REDRIVE = ("redrive", ".", "--dry-run")


def run_into(
    stdout: IO[bytes] | int, orders: ServedFake, words: tuple[str, ...], folder: Path
) -> CompletedProcess[bytes]:
    return subprocess.run(
        command_line(*words),
        cwd=folder,
        env=environment(**connection(orders)),
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=LIMIT_S,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        LIST,
        (*LIST, "--json"),
        ("shards", "orders"),
        ("local", "--port", "0"),
        REDRIVE,
        (*REDRIVE, "--json"),
        ("--version",),
        ("status", "--help"),
    ],
)
def test_a_full_disk_is_one_sentence(
    orders: ServedFake, words: tuple[str, ...], tmp_path: Path
) -> None:
    """/dev/full takes nothing, as a full disk does."""
    with Path("/dev/full").open("wb") as full:
        ended = run_into(full, orders, words, tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"error: cannot write to stdout: No space left on device")
    assert ended.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", [LIST, (*LIST, "--json"), REDRIVE])
def test_a_reader_that_is_gone_ends_the_command_as_sigpipe_does(
    orders: ServedFake, words: tuple[str, ...], tmp_path: Path
) -> None:
    """`| head` is no error."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        ended = run_into(write_end, orders, words, tmp_path)
    finally:
        os.close(write_end)
    assert (ended.returncode, ended.stderr) == (141, b"")
