"""Facts that only a real ZooKeeper shows: lost sessions and answers, dead processes, servers that
crash or are absent. The embedded server: one per directory, for any starters and any end.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from kinesis_spout.config import AwsConfig
from kinesis_spout.spout.config import SpoutConfig
from kinesis_spout.spout.services import SpoutServices
from spark_job.kinesis_source import KinesisSource
from spark_job.process_services import ProcessServices
from state.errors import (
    EmbeddedZookeeperError,
    InvalidStoreSettingError,
    OwnedByAnotherError,
    StateError,
    StoreUnavailableError,
    StreamMismatchError,
)
from state.process import process_start, this_process
from state.store.identity import StreamIdentity
from state.store.ownership import OwnerInfo
from state.store.shard_states import StateChange
from state.zookeeper.embedded import answers, ensure_running, stop
from state.zookeeper.servers import ConnectString, ask_local
from state.zookeeper.store import ZookeeperStateStore
from tests.support.state.state_stores import end_session, log_of, plan, state_at
from tests.support.state.zookeeper import running_in, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from state.znodes.topics import StoreTopics

REPOSITORY = Path(__file__).resolve().parents[3]


def open_store(
    address: str,
    *,
    session_timeout_s: float = 10.0,
    operation_timeout_s: float = 15.0,
    connect_timeout_s: float = 10.0,
) -> ZookeeperStateStore:
    return ZookeeperStateStore(
        address,
        application="app",
        stream="flights",
        session_timeout_s=session_timeout_s,
        operation_timeout_s=operation_timeout_s,
        connect_timeout_s=connect_timeout_s,
    )


@pytest.fixture
def store(zookeeper_chroot: str) -> Iterator[ZookeeperStateStore]:
    store = open_store(zookeeper_chroot, session_timeout_s=4.0)
    yield store
    store.close()


def test_a_dead_process_elsewhere_is_waited_for(
    zookeeper_chroot: str, store: ZookeeperStateStore
) -> None:
    """The state of a process on another host is unknown: the successor waits until the session
    lapses.
    """
    first = open_store(zookeeper_chroot, session_timeout_s=4.0)
    first.ownership.acquire(
        OwnerInfo(
            host="far-away", pid=2**22 + 1, since_ms=0, host_identity="another/kernel/far-away"
        ),
        timeout_s=0,
    )
    with pytest.raises(OwnedByAnotherError, match="far-away"):
        store.ownership.acquire(this_process(1), timeout_s=0.1)
    waiting = threading.Thread(
        target=store.ownership.acquire, args=(this_process(1),), kwargs={"timeout_s": 30}
    )
    waiting.start()
    end_session(first)
    waiting.join(timeout=30)
    (owner,) = store.ownership.holders().values()
    first.close()
    assert owner.pid == os.getpid()


def of_source(address: str) -> StoreTopics:
    source = KinesisSource(
        stream="flights", application="app", zookeeper=address, region="us-east-1"
    )
    return ProcessServices.connect(source.settings()).store


def of_spout(address: str) -> StoreTopics:
    config = SpoutConfig(
        stream="flights", application="app", zookeeper=address, aws=AwsConfig(region="us-east-1")
    )
    return SpoutServices.connect(config).store


@pytest.mark.parametrize("opened", [of_source, of_spout])
def test_a_consumer_knows_the_embedded_server_by_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Callable[[str], StoreTopics]
) -> None:
    """So it starts the server again, and so does the command that an error names. While it cannot
    be started, the store is unavailable, as any other that is down.
    """
    directory = tmp_path / "zookeeper"
    store = opened(f"embedded:{directory}")

    def is_reached() -> bool:
        try:
            return known.state.shard_id in store.shard_states.load()
        except StoreUnavailableError:
            return False

    try:
        store.ownership.acquire(this_process(0), timeout_s=10)
        known = store.shard_states.save([StateChange(None, state_at(1))])[0]
        stop(directory)
        with monkeypatch.context() as without_java:
            without_java.setenv("PATH", str(tmp_path))
            without_java.delenv("JAVA_HOME", raising=False)
            with pytest.raises(StoreUnavailableError, match=r"needs Java.*; install Java"):
                store.shard_states.load()
        wait_until(is_reached, 120)
        assert store.shard_states.save([StateChange(known, state_at(2))])[0].version == 1
        first = StreamIdentity(arn="arn:flights", name="flights", created_ms=1)
        store.identity.bind(first)
        with pytest.raises(StreamMismatchError, match=f"--zookeeper embedded:{directory}`"):
            store.identity.bind(replace(first, created_ms=2))
    finally:
        store.close()
        stop(directory)


def test_a_store_is_pickled_without_its_connection(
    zookeeper_chroot: str, store: ZookeeperStateStore
) -> None:
    """It is pickled for Spark's executors, opened or not: the copy reads the same state and owns
    nothing.
    """
    store.ownership.acquire(this_process(0), timeout_s=10)
    store.plans.create(plan(1))
    copy: ZookeeperStateStore = pickle.loads(pickle.dumps(store))  # noqa: S301  # our own bytes
    try:
        assert copy.plans.append_log("1-aa", 0, log_of(3), None) == 0
        assert store.plans.read_log("1-aa", 0).log == log_of(3)
        with pytest.raises(StateError, match="acquire the ownership of"):
            copy.plans.close("1-aa")
    finally:
        copy.close()
    assert zookeeper_chroot.encode() in pickle.dumps(copy)


def test_a_forked_process_connects_for_itself(
    zookeeper_chroot: str, store: ZookeeperStateStore
) -> None:
    """Spark's Python daemon forks its workers: the calls and the close of the child leave the
    parent's session alone.
    """
    store.ownership.acquire(this_process(0), timeout_s=10)
    store.plans.create(plan(1))
    script = (
        "import os, sys\n"
        "from state.zookeeper.store import ZookeeperStateStore\n"
        "from tests.support.state.state_stores import OWNER\n"
        'store = ZookeeperStateStore(sys.argv[1], application="app", stream="other")\n'
        "store.ownership.acquire(OWNER, timeout_s=0)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    seen = store.ownership.holders()\n"
        "    store.close()\n"
        "    os._exit(0 if seen == {None: OWNER} else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert store.ownership.holders() == {None: OWNER}\n"
        "store.shard_list.save(['a'])\n"
        "store.close()\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, zookeeper_chroot], cwd=REPOSITORY, check=True, timeout=60
    )


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "no-such-host.invalid:2181", "127.0.0.1:1,127.0.0.1:2/chroot"]
)
def test_no_zookeeper_is_one_sentence_in_time(address: str) -> None:
    store = open_store(address, connect_timeout_s=0.3)
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError, match=address) as unavailable:
        store.shard_states.load()
    assert time.monotonic() - began < 10
    assert "\n" not in str(unavailable.value)
    store.close()


def test_a_server_that_goes_away_is_an_error_within_the_time_limit(tmp_path: Path) -> None:
    """Kazoo alone would try again without end."""
    directory = tmp_path / "zookeeper"
    store = open_store(ensure_running(directory), operation_timeout_s=1.0)
    try:
        store.ownership.acquire(this_process(0), timeout_s=10)
        stop(directory)
        began = time.monotonic()
        with pytest.raises(
            StoreUnavailableError, match="not answer within 1 s; check that the servers are running"
        ):
            store.shard_states.save([StateChange(None, state_at(1))])
        assert time.monotonic() - began < 10
    finally:
        store.close()


@pytest.mark.parametrize(
    "address",
    [
        "",
        "host:port",
        "a b:2181",
        "host:99999",
        "zk://host:2181",
        "host:2181/a//../b",
        "user@host:1",
        "zk1:2181/a,zk2:2181/a",
    ],
)
def test_a_bad_connect_string_is_refused_before_anything_is_opened(address: str) -> None:
    with pytest.raises(InvalidStoreSettingError, match="use "):
        open_store(address)


def test_a_connect_string_has_servers_and_a_chroot() -> None:
    """Ports default to 2181; IPv6 hosts are in brackets."""
    assert ConnectString.parse("a,b:99/x/y/") == ConnectString((("a", 2181), ("b", 99)), "/x/y")
    assert ConnectString.parse("[::1]:5").hosts() == "[::1]:5"
    assert ConnectString.parse("a/").chroot == ""
    assert ConnectString.parse("a/x,y").chroot == "/x,y"


def test_an_application_with_the_longest_names_stores_and_removes_many_states(
    zookeeper_chroot: str,
) -> None:
    """A transaction has some paths for each state. ZooKeeper drops one that is too long."""
    store = ZookeeperStateStore(
        f"{zookeeper_chroot}/{'c' * 200}",
        application="a" * 200,
        stream="s" * 200,
        root="r" * 200,
        operation_timeout_s=10.0,
    )
    with closing(store):
        store.ownership.acquire(this_process(0), timeout_s=10)
        states = [state_at(number, f"shardId-{number:012}") for number in range(500)]
        known = store.shard_states.save([StateChange(None, state) for state in states])
        store.shard_states.remove(known)
        assert store.shard_states.load() == {}


def test_bad_names_are_refused_with_the_name(zookeeper_chroot: str) -> None:
    for bad in ("", ".", "..", "a/b", "a\x00b", "a\nb", "x" * 300, "a\U0001f680"):
        for what in ("application", "stream", "root"):
            names = {"application": "app", "stream": "flights", "root": "root"} | {what: bad}
            with pytest.raises(InvalidStoreSettingError, match=what):
                ZookeeperStateStore(
                    zookeeper_chroot,
                    application=names["application"],
                    stream=names["stream"],
                    root=names["root"],
                )


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


def test_the_starters_working_directory_hides_no_package_of_the_server(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have a package of one of our names, or of one of Python's."""
    for name in ("state", "signal"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    assert answers(int(ensure_running(directory).rpartition(":")[2]))


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
    assert ask_local(before.port).connections == 1  # this one
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
