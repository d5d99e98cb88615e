"""The embedded ZooKeeper server: one per directory, for any number of starters and any end of a
process.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from state.errors import EmbeddedZookeeperError
from state.process import process_start
from state.zookeeper.embedded import answers, ensure_running, stop
from state.zookeeper.embedded_supervisor import connections
from tests.support.state.zookeeper import running_in, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[3]
STARTER = (
    "import sys; from pathlib import Path; from state.zookeeper.embedded import ensure_running;"
    "print(ensure_running(Path(sys.argv[1])), flush=True); sys.stdin.read()"
)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Of a test that says how its server starts."""
    directory = tmp_path / "with space and \u00e9"
    yield directory
    stop(directory)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of tests that leave a server behind which is as good as a new one."""
    directory = tmp_path_factory.mktemp("shared")
    yield directory
    stop(directory)


def test_several_processes_that_start_at_once_share_one_server(directory: Path) -> None:
    """Four starters, one address, one server; it survives the kill of all of them."""
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", STARTER, str(directory)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    addresses = set()
    for starter in starters:
        assert starter.stdout is not None
        addresses.add(starter.stdout.readline().strip())
    running = running_in(directory)
    for starter in starters:
        starter.kill()
        starter.communicate(timeout=30)
    assert addresses == {f"127.0.0.1:{running.port}"}
    assert ensure_running(directory) == f"127.0.0.1:{running.port}"
    assert running_in(directory) == running


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LANG": "xx_YY.UTF-8", "LC_CTYPE": "POSIX"},
    ],
    ids=str,
)
def test_the_locale_does_not_matter_to_a_directory_that_is_not_ascii(
    directory: Path, locale: dict[str, str]
) -> None:
    """Java decodes paths by it. Nothing is made beside the directory."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LC_") and name not in ("LANG", "LANGUAGE")
    }
    starter = subprocess.run(
        [sys.executable, "-c", STARTER, str(directory)],
        cwd=REPOSITORY,
        env=inherited | locale,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        text=True,
        check=True,
    )
    assert starter.stdout.strip() == f"127.0.0.1:{running_in(directory).port}"
    assert list(directory.parent.iterdir()) == [directory]
    assert (directory / "data").is_dir()


def test_it_listens_on_loopback_only(shared: Path) -> None:
    """Other machines cannot reach it."""
    port = int(ensure_running(shared).rpartition(":")[2])
    listeners = [
        line.split()[1]
        for table in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(table).read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    ]
    assert listeners
    assert all(
        each.split(":")[0] in {"0100007F", "0000000000000000FFFF00000100007F"} for each in listeners
    )


def test_a_killed_server_is_started_again_on_its_port(shared: Path) -> None:
    """The supervisor restarts it, so clients only have to reconnect."""
    address = ensure_running(shared)
    before = running_in(shared)
    os.kill(before.server_pid, signal.SIGKILL)
    wait_until(lambda: running_in(shared).server_pid != before.server_pid and answers(before.port))
    assert ensure_running(shared) == address


def test_a_killed_supervisor_ends_its_server(shared: Path) -> None:
    """Two servers on one directory would destroy it: the next one starts when the last one has
    ended.
    """
    address = ensure_running(shared)
    before = running_in(shared)
    os.kill(before.supervisor_pid, signal.SIGKILL)
    wait_until(lambda: process_start(before.server_pid) is None)
    assert ensure_running(shared) == address
    assert running_in(shared).server_pid != before.server_pid


def test_a_stopped_server_ends_with_its_supervisor_and_keeps_its_port_while_it_is_free(
    shared: Path,
) -> None:
    """Stop waits for the end; the next start answers at the same address. Where another program has
    the port, it uses another one.
    """
    address = ensure_running(shared)
    before = running_in(shared)
    stop(shared)
    assert process_start(before.server_pid) is None
    assert not answers(before.port)
    assert ensure_running(shared) == address
    stop(shared)
    with socket.create_server(("127.0.0.1", before.port)):
        assert ensure_running(shared) != address


def test_an_unused_server_ends_by_itself(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No client was connected for a second: it ends, and the next caller starts it again. The
    server and its logging print nothing.
    """
    ensure_running(directory, idle_s=1.0)
    before = running_in(directory)
    assert connections(before.port) == 0
    wait_until(lambda: process_start(before.server_pid) is None)
    assert ensure_running(directory) == f"127.0.0.1:{before.port}"
    stop(directory)
    assert capfd.readouterr() == ("", "")
    assert (directory / "server.log").stat().st_size > 0
    assert (directory / "supervisor.log").read_text() == ""


def test_a_server_whose_directory_was_removed_ends(shared: Path) -> None:
    """Its data is gone; the next caller with this directory gets a server with new data."""
    ensure_running(shared)
    before = running_in(shared)
    shutil.rmtree(shared)
    ensure_running(shared)
    assert running_in(shared).server_pid != before.server_pid
    wait_until(lambda: process_start(before.server_pid) is None)
    assert answers(running_in(shared).port)


def test_a_server_that_cannot_start_is_one_sentence(directory: Path) -> None:
    """It is tried a few times, and the error names the log."""
    directory.mkdir()
    (directory / "data").touch()
    with pytest.raises(EmbeddedZookeeperError, match=r"ended while it was starting; .*server\.log"):
        ensure_running(directory, timeout_s=60)
