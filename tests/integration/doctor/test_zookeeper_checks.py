"""The checks of ZooKeeper against a real server, and against what is none."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest
from kazoo.security import make_acl

from kinesis_spout.doctor.examination import examine
from kinesis_spout.doctor.findings import Finding, Target, Verdict
from state.errors import StoreUnavailableError
from state.zookeeper.servers import ServerWords, ask_server, parse_words
from tests.support.state.zookeeper import kazoo_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient

OK, WARNING, FAILED, NOT_TRIED = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.NOT_TRIED
SERVERS, SESSION = "ZooKeeper servers", "ZooKeeper session"
LATENCY, ACCESS = "ZooKeeper latency", "ZooKeeper access"
PATH = "kinesis-spout/etl"


def examined(address: str) -> list[Finding]:
    target = Target(zookeeper=address, zookeeper_root="kinesis-spout", application="etl")
    found = examine(target, in_executor=True)  # all but Java and Spark
    return [one.finding for one in found if one.area == "ZooKeeper"]


def by_name(address: str) -> dict[str, Finding]:
    return {one.about: one for one in examined(address)}


@pytest.fixture
def kazoo(zookeeper: str) -> Iterator[KazooClient]:
    with kazoo_client(zookeeper) as client:
        yield client


@pytest.fixture
def closed_port() -> str:
    """Where no server is."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_server_that_does_is_ok_and_keeps_nothing(
    zookeeper_chroot: str, kazoo: KazooClient
) -> None:
    """Neither the scratch node nor those above it, which a first run makes."""
    found = by_name(zookeeper_chroot)
    assert {one.verdict for one in found.values()} == {OK}
    assert "standalone, version 3." in found[SERVERS].sentence
    assert "connection" in found[SERVERS].sentence
    assert "after 10 s" in found[SESSION].sentence
    chroot = "/" + zookeeper_chroot.partition("/")[2]
    assert f"the first run creates {chroot}" in found[ACCESS].sentence
    assert kazoo.exists(chroot) is None


def test_a_job_that_has_run_keeps_its_nodes(zookeeper_chroot: str, kazoo: KazooClient) -> None:
    chroot = "/" + zookeeper_chroot.partition("/")[2]
    node = f"{chroot}/{PATH}"
    kazoo.ensure_path(f"{node}/epoch")
    before = kazoo.get(node)[1]
    assert by_name(zookeeper_chroot)[ACCESS].sentence == f"this client can read and write {node}"
    assert kazoo.get_children(node) == ["epoch"]
    assert kazoo.get(node)[1].aversion == before.aversion


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        ({"read": True}, "has no permission to create or delete znodes"),
        ({"create": True, "delete": True, "write": True}, "denies access to"),
    ],
)
def test_an_access_control_list_that_forbids_is_a_failure(
    zookeeper_chroot: str, kazoo: KazooClient, allowed: dict[str, bool], said: str
) -> None:
    node = f"/{zookeeper_chroot.partition('/')[2]}/{PATH}"
    kazoo.ensure_path(node)
    kazoo.set_acls(node, [make_acl("world", "anyone", admin=True, **allowed)])
    found = by_name(zookeeper_chroot)
    assert found[ACCESS].verdict is FAILED
    assert not found[ACCESS].unreachable
    assert said in found[ACCESS].sentence
    assert node in found[ACCESS].sentence
    assert found[SESSION].verdict is OK


def test_a_server_that_is_not_there_is_unreachable(closed_port: str) -> None:
    found = by_name(closed_port)
    assert found[SERVERS].verdict is FAILED
    assert found[SERVERS].unreachable
    said = f"cannot reach ZooKeeper server {closed_port} (Connection refused)"
    assert said in found[SERVERS].sentence
    assert {found[name].verdict for name in (SESSION, LATENCY, ACCESS)} == {NOT_TRIED}


def test_a_server_of_several_that_is_missing_is_a_warning(zookeeper: str, closed_port: str) -> None:
    """The ensemble works, and the client would hide it."""
    first, second, *rest = examined(f"{closed_port},{zookeeper}/test-of-two")
    assert first.verdict is WARNING
    assert closed_port in first.sentence
    assert second.verdict is OK
    assert {one.verdict for one in rest} == {OK}


def test_an_embedded_server_that_never_ran_is_not_started(tmp_path: Path) -> None:
    """Nor is its directory made. One that cannot be made is a failure."""
    (found,) = examined(f"embedded:{tmp_path / 'zk'}")
    assert found.verdict is NOT_TRIED
    assert "first run starts one" in found.sentence
    assert not (tmp_path / "zk").exists()
    (tmp_path / "file").touch()
    (found,) = examined(f"embedded:{tmp_path / 'file' / 'zk'}")
    assert found.verdict is FAILED


def test_an_answer_is_read_as_servers_write_it() -> None:
    text = (
        "Zookeeper version: 3.9.3-c26634f, built on 2024-10-17\nLatency min/avg/max: 0/0.5/3\n"
        "Connections: 12\nMode: follower\n"
    )
    assert parse_words(text) == ServerWords(version="3.9.3", role="follower", connections=12)
    refused = "srvr is not executed because it is not in the whitelist.\n"
    assert parse_words(refused) == ServerWords()


def test_a_server_that_sends_without_end_is_left_at_the_limit() -> None:
    """A byte a moment would renew a limit for each read."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listening.accept()
            with connection:
                while not ended.wait(0.02):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(StoreUnavailableError, match="did not answer within"):
                ask_server("127.0.0.1", listening.getsockname()[1], timeout_s=0.3)
        finally:
            ended.set()
            thread.join()
