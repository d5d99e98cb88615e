from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from state.errors import EmbeddedZookeeperError, InvalidStoreSettingError
from state.zookeeper.embedded import (
    Running,
    ensure_running,
    find_java,
    read_running,
    resolve_connect_string,
    stop,
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


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As for Spark."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(java)


def test_a_directory_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    """A file has its name."""
    (tmp_path / "file").touch()
    with pytest.raises(
        EmbeddedZookeeperError, match=r"cannot be written \(.*\); use another directory"
    ):
        ensure_running(tmp_path / "file" / "zookeeper")


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


def test_stopping_a_server_that_does_not_run_does_nothing(tmp_path: Path) -> None:
    """Neither for a directory that does not exist, nor for one without a server."""
    stop(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    stop(tmp_path)
