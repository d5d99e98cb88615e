"""ZooKeeper for tests: a real server, from the jars that PySpark ships."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

from state.zookeeper.embedded import Running, ensure_running, read_running, stop
from tests.support.state.state_stores import StoreWorld, memory_world, zookeeper_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONGEST_RUN_S = (
    7_200.0  # of all tests: a drill with a server of its own leaves this one idle for minutes
)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connect string of a server that the whole test session shares: `127.0.0.1:<port>`."""
    directory = tmp_path_factory.mktemp("zookeeper")
    try:
        yield ensure_running(directory, idle_s=LONGEST_RUN_S)
    finally:
        stop(directory)


@pytest.fixture
def zookeeper_chroot(zookeeper: str) -> str:
    """A connect string with a chroot that no other test uses: `127.0.0.1:<port>/test-<id>`."""
    return f"{zookeeper}/test-{uuid.uuid4().hex}"


@contextmanager
def kazoo_client(address: str, **auth: Any) -> Iterator[Any]:
    """A connection of another program."""
    client = KazooClient(address, **auth)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture(params=["memory", "zookeeper"])
def store_world(request: pytest.FixtureRequest) -> Iterator[StoreWorld]:
    """Each test that uses it runs twice: with the store in memory, and with a real ZooKeeper."""
    if request.param == "memory":
        world = memory_world()
    else:
        world = zookeeper_world(request.getfixturevalue("zookeeper_chroot"))
    try:
        yield world
    finally:
        world.close()


def wait_until(fact: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Wait for a change by another process that sends no notification."""
    tick = threading.Event()
    for _ in range(int(timeout_s / 0.05)):
        if fact():
            return
        tick.wait(0.05)
    pytest.fail("it did not happen in time")


def running_in(directory: Path) -> Running:
    """The server of a directory, and its supervisor."""
    running = read_running(directory)
    assert running is not None
    return running
