"""`kinesis-spout ui` while ZooKeeper is stopped and started again, twice."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from state.zookeeper.embedded import ensure_running, stop
from tests.support.html.parsed_page import get
from tests.support.shell.consuming import run, running
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake


@pytest.fixture
def own_directory(tmp_path: Path) -> Iterator[Path]:
    """Of a ZooKeeper that the test may stop; it keeps its port."""
    directory = tmp_path / "zookeeper"
    try:
        yield directory
    finally:
        stop(directory)


def test_while_zookeeper_is_stopped_the_last_look_is_shown(
    own_directory: Path, fake_kinesis: ServedFake
) -> None:
    """The banner names ZooKeeper. When it is started again, looks go on by themselves."""
    fake_kinesis.model.create("orders")
    fake_kinesis.model.put("orders", "key", b"data")
    address = ensure_running(own_directory)
    application = ("--application", "etl", "--zookeeper", address)
    consumed = run(fake_kinesis, "consume", "orders", *application, "--until", "now")
    assert consumed.returncode == 0, consumed.stderr
    page = ("ui", "--port", "0", "--window", "2s", "--stream", "orders", *application)
    with running(fake_kinesis, *page) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert "No new look" not in get(url)[1]
        for _ in range(2):
            stop(own_directory)
            wait_until(lambda: "No new look" in get(url)[1], timeout_s=90)
            wait_until(lambda: "ZooKeeper" in banner(url), timeout_s=90)
            status, text = get(url, "/status.json")
            assert (status, json.loads(text)["application"]) == (503, "etl")
            assert get(url, "/shard/shardId-000000000000")[0] == 200
            assert ensure_running(own_directory) == address
            wait_until(lambda: "No new look" not in get(url)[1], timeout_s=90)
            assert get(url, "/status.json")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143


def banner(url: str) -> str:
    """What the page says of the looks that fail."""
    return get(url)[1].partition("No new look")[2].partition("</p>")[0]
