"""ZooKeeper for tests: a real server, from the jars that PySpark ships."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from state.embedded_zookeeper import ensure_running, stop


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
