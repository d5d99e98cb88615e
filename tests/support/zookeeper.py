"""ZooKeeper for tests: a real server, from the jars that PySpark ships."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from state.embedded_zookeeper import ensure_running, stop
from tests.support.state_stores import MemoryWorld, StoreWorld, ZookeeperWorld

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connect string of a server that the whole test session shares: `127.0.0.1:<port>`."""
    directory = tmp_path_factory.mktemp("zookeeper")
    try:
        yield ensure_running(directory)
    finally:
        stop(directory)


@pytest.fixture
def zookeeper_chroot(zookeeper: str) -> str:
    """A connect string with a chroot that no other test uses: `127.0.0.1:<port>/test-<id>`."""
    return f"{zookeeper}/test-{uuid.uuid4().hex}"


@pytest.fixture(params=["memory", "zookeeper"])
def store_world(request: pytest.FixtureRequest) -> Iterator[StoreWorld]:
    """Each test that asks for it runs twice: against the store in memory, and against a real ZooKeeper."""
    in_memory = request.param == "memory"
    world: StoreWorld = MemoryWorld() if in_memory else ZookeeperWorld(request.getfixturevalue("zookeeper_chroot"))
    try:
        yield world
    finally:
        world.close()
