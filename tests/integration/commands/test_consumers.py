"""`kinesis-spout consumers`, and `consume` by enhanced fan-out, on a served FakeKinesis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.shell.consuming import run

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from tests.support.kinesis.services import ServedFake


@pytest.fixture
def orders(fake_kinesis: ServedFake) -> ServedFake:
    fake_kinesis.model.create("orders")
    return fake_kinesis


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
    assert run(orders, *remove, stdin=b"n\n").returncode == 1
    assert list(orders.model.stream("orders").consumers) == ["reader"]
    assert run(orders, *remove, "--yes").stdout.endswith("removed\n")
    assert "orders has no registered consumers" in run(orders, "consumers", "list", "orders").stdout


def test_a_consumer_that_is_not_there_is_one_sentence(orders: ServedFake) -> None:
    said = run(orders, "consumers", "remove", "orders", "nobody", "--yes")
    assert said.returncode == 1
    assert "has no consumer nobody" in " ".join(said.stderr.split())
