from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import EmbeddedZookeeperError, InvalidStoreSettingError
from state.zookeeper.embedded import (
    Running,
    ensure_running,
    read_running,
    resolve_connect_string,
    write_running,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_embedded_without_a_directory_is_refused() -> None:
    """The error shows the form to use."""
    with pytest.raises(InvalidStoreSettingError, match="use embedded:<directory>"):
        resolve_connect_string("embedded: ")


def test_missing_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(
        EmbeddedZookeeperError, match="not found; install Java 17 or newer, or set JAVA_HOME"
    ):
        ensure_running(tmp_path / "zookeeper")


def test_the_running_servers_address_is_written_atomically(tmp_path: Path) -> None:
    """A damaged file is treated like a missing one: the lock says whether a server runs."""
    assert read_running(tmp_path) is None
    running = Running(
        port=1, supervisor_pid=2, supervisor_start="3", server_pid=4, server_start="5"
    )
    write_running(tmp_path, running)
    assert read_running(tmp_path) == running
    write_running(tmp_path, None)
    assert read_running(tmp_path) is None
    (tmp_path / "running.json").write_text("{")
    assert read_running(tmp_path) is None
