"""ZooKeeper with TLS, client certificates, SASL and access control lists: a real server started so,
and clients that it lets in, or refuses with a sentence. The password reaches the tasks.
"""

from __future__ import annotations

import logging
import pickle
from collections import defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KeeperState
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from kinesis_spout.spout import KinesisSpout, SpoutConfig
from spark_job.driver.query_driver import offset_of
from spark_job.process_services import ProcessServices
from spark_job.registration import RegisteredSource
from state.errors import StoreAccessError, StoreUnavailableError
from state.store.shard_states import StateChange
from state.zookeeper.security import ZookeeperSecurity
from state.zookeeper.store import ZookeeperStateStore
from state.zookeeper.tree import ZookeeperTree
from tests.support.certificates import Authority
from tests.support.spark.source import APPLICATION, STREAM
from tests.support.state.secure_zookeeper import OTHER_PASSWORD, OTHER_USER, PASSWORD, USER
from tests.support.state.state_stores import IDENTITY, OWNER, log_of, plan, state_at
from tests.support.state.zookeeper import kazoo_client, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql.types import StructType

    from tests.support.spark.source import StreamUnderTest
    from tests.support.state.secure_zookeeper import SecureZookeeper

MISNAMED = "127.1"  # an old way to write 127.0.0.1, which no certificate holds
WAYS = ("tls", "certificate", "sasl", "sasl-tls", "digest")


class Way:
    """A way into a secure server. `chroot`: a place that no other test uses."""

    def __init__(self, address: str, security: ZookeeperSecurity, chroot: str) -> None:
        self.server = address
        self.address = f"{address}/{chroot}"
        self.security = security


@pytest.fixture
def way(request: pytest.FixtureRequest, tmp_path: Path) -> Way:
    name = request.param
    server: SecureZookeeper = request.getfixturevalue(
        "certificate_zookeeper" if name == "certificate" else "tls_zookeeper"
    )
    tls: dict[str, Any] = {"tls": True, "ca_file": server.authority.file}
    user: dict[str, Any] = {"user": USER, "password": PASSWORD}
    address, security = {
        "tls": lambda: (server.tls, ZookeeperSecurity(**tls)),
        "certificate": lambda: (server.tls, server.tls_security(acl="creator")),
        "sasl": lambda: (server.plain, ZookeeperSecurity(auth="sasl", **user)),
        "sasl-tls": lambda: (server.tls, ZookeeperSecurity(auth="sasl", **tls, **user)),
        "digest": lambda: (server.plain, ZookeeperSecurity(auth="digest", **user)),
    }[name]()
    return Way(address, security, f"{name}-{tmp_path.name}")


def store_of(address: str, security: ZookeeperSecurity, **settings: Any) -> ZookeeperStateStore:
    return ZookeeperStateStore(
        address, application=APPLICATION, stream=STREAM, security=security, **settings
    )


def use(store: ZookeeperStateStore) -> None:
    """Own the application, and write states, a plan and a task's log."""
    store.ownership.acquire(OWNER, timeout_s=10)
    store.shard_states.save([StateChange(None, state_at(10))])
    made = plan(1)
    store.plans.create(made)
    store.plans.append_log(made.plan_id, 0, log_of(3), None)
    assert store.plans.read_log(made.plan_id, 0).log == log_of(3)
    assert [stored.state for stored in store.shard_states.load().values()] == [state_at(10)]


def nodes_below(client: Any, path: str) -> list[str]:
    children = client.get_children(path)
    return [path, *(node for child in children for node in nodes_below(client, f"{path}/{child}"))]


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_a_store_is_let_in_and_reads_what_it_wrote(way: Way) -> None:
    with closing(store_of(way.address, way.security)) as store:
        use(store)
    with closing(store_of(way.address, way.security)) as store:
        assert store.shard_states.load()


def test_many_states_load_in_a_moment_over_tls(tls_zookeeper: SecureZookeeper) -> None:
    """Answers that TLS hands over together are all taken at once. A client that waited for its
    socket would see each of them seconds later, with its next ping.
    """
    security = ZookeeperSecurity(tls=True, ca_file=tls_zookeeper.authority.file)
    with closing(store_of(f"{tls_zookeeper.tls}/many", security, operation_timeout_s=3.0)) as store:
        store.ownership.acquire(OWNER, timeout_s=10)
        for first in range(0, 3_000, 300):
            store.shard_states.save(
                [
                    StateChange(None, state_at(10, f"shardId-{number:012}"))
                    for number in range(first, first + 300)
                ]
            )
        assert len(store.shard_states.load()) == 3_000


def spout_of(stream: StreamUnderTest, security: ZookeeperSecurity, **settings: Any) -> KinesisSpout:
    return KinesisSpout(
        SpoutConfig(
            stream=STREAM,
            application=APPLICATION,
            zookeeper=stream.zookeeper,
            zookeeper_security=security,
            aws=stream.settings().aws,
            **settings,
        )
    )


@pytest.mark.parametrize("acl", ["creator", "creator-read"])
def test_every_node_that_is_created_belongs_to_its_creator(
    acl: str, tls_zookeeper: SecureZookeeper, stream: StreamUnderTest, tmp_path: Path
) -> None:
    """A task of a spout, and a job with a plan, up to the chroot. Another identity cannot write any
    of it, and read it only where the option says so.
    """
    chroot = f"acl-{tmp_path.name}"
    stream.zookeeper = f"{tls_zookeeper.plain}/{chroot}"
    security = ZookeeperSecurity(auth="digest", user=USER, password=PASSWORD, acl=acl)
    spout = spout_of(stream, security, task_index=0, total_tasks=2)
    spout.open()
    job = ZookeeperStateStore(
        stream.zookeeper, application="planned", stream=STREAM, security=security
    )
    own_auth = [("digest", f"{USER}:{PASSWORD}")]
    with (
        closing(spout),
        closing(job),
        kazoo_client(tls_zookeeper.plain, auth_data=own_auth) as own,
    ):
        use(job)
        nodes = nodes_below(own, f"/{chroot}")
        kinds = {node.split("/")[5] for node in nodes if node.count("/") > 4}
        assert {"epoch", "owner", "plan", "batches", "start", "stream"} <= kinds
        reading = {("world", "anyone", 1)} if acl == "creator-read" else set()
        for node in nodes:
            granted = {
                (entry.id.scheme, entry.id.id.partition(":")[0], entry.perms)
                for entry in own.get_acls(node)[0]
            }
            assert granted == {("digest", USER, 31)} | reading, node
        job.close()  # gives up the ownership, so that only the access control list refuses
        refuses_another_identity(stream.zookeeper, may_read=acl == "creator-read")


def refuses_another_identity(address: str, *, may_read: bool) -> None:
    security = ZookeeperSecurity(auth="digest", user=OTHER_USER, password=OTHER_PASSWORD)
    with closing(
        ZookeeperStateStore(address, application="planned", stream=STREAM, security=security)
    ) as other:
        if may_read:
            assert other.shard_states.load()
        else:
            with pytest.raises(StoreAccessError, match=rf"'{OTHER_USER}'.* check the user and"):
                other.shard_states.load()
        with pytest.raises(StoreAccessError, match=r"denies access to /acl-"):
            other.ownership.acquire(OWNER, timeout_s=0)


@pytest.mark.parametrize("auth", ["sasl", "digest"])
def test_a_wrong_password_is_refused_without_being_shown(
    auth: str, tls_zookeeper: SecureZookeeper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SASL refuses it itself. Digest takes any password, and it is the nodes that refuse."""
    caplog.set_level(logging.DEBUG)
    right = ZookeeperSecurity(auth=auth, user=USER, password=PASSWORD)
    address = f"{tls_zookeeper.plain}/{auth}-{tmp_path.name}"
    with closing(store_of(address, right)) as store:
        use(store)
    wrong = store_of(address, ZookeeperSecurity(auth=auth, user=USER, password="marked-wrong"))
    with closing(wrong), pytest.raises(StoreAccessError) as refused:
        wrong.shard_states.load()
    expected = "does not accept" if auth == "sasl" else "denies access to"
    assert expected in str(refused.value)
    assert f"the {auth} identity '{USER}' (options zookeeperAuth, zookeeperUser)" in str(
        refused.value
    )
    for text in (str(refused.value), repr(wrong._open_copy), caplog.text):
        assert "marked-" not in text


def test_a_refusal_is_known_after_kazoo_has_closed_the_client(
    tls_zookeeper: SecureZookeeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes the client at once: whoever waits for the session may wake up after that."""
    # By client: the client of an earlier test may close in the background meanwhile.
    states: defaultdict[Any, list[str]] = defaultdict(list)
    note, wait = KazooClient._session_callback, ZookeeperTree._await_session

    def noted(client: Any, state: str) -> None:
        states[client].append(state)
        note(client, state)

    def late(tree: ZookeeperTree, client: Any, *given: Any) -> None:
        wait_until(lambda: states[client][-2:] == [KeeperState.AUTH_FAILED, KeeperState.CLOSED])
        wait(tree, client, *given)

    monkeypatch.setattr(KazooClient, "_session_callback", noted)
    monkeypatch.setattr(ZookeeperTree, "_await_session", late)
    wrong = ZookeeperSecurity(auth="sasl", user=USER, password="marked-wrong")
    store = store_of(f"{tls_zookeeper.plain}/closed-{tmp_path.name}", wrong)
    with closing(store), pytest.raises(StoreAccessError, match="does not accept"):
        store.shard_states.load()


@pytest.mark.parametrize(
    ("case", "says"),
    [
        # The machine's own authorities do not count where a file names one.
        ("a foreign authority", r"is not trusted .* option zookeeperCaFile"),
        ("the machine's authorities", r"is not trusted .* option zookeeperCaFile"),
        # 127.0.0.1 by a name that is not in the server's certificate: the machine's own.
        ("another host name", "for another host name; .* zookeeperVerifyHostname to false"),
        # The switch still wants a certificate that is trusted.
        ("another name and a foreign authority", "is not trusted"),
        ("no certificate", "options zookeeperCertFile and zookeeperKeyFi"),
        ("a foreign certificate", "options zookeeperCertFile and zookeeperKeyFi"),
        ("tls on the plain port", "contains the secure port"),
    ],
)
def test_a_connection_that_cannot_be_made_secure_is_refused_at_once(
    case: str,
    says: str,
    tls_zookeeper: SecureZookeeper,
    certificate_zookeeper: SecureZookeeper,
    tmp_path: Path,
) -> None:
    """The error names the option that helps."""
    foreign = Authority(tmp_path, "foreign")
    tls = tls_zookeeper.tls
    own: dict[str, Any] = {"tls": True, "ca_file": tls_zookeeper.authority.file}
    misnamed = f"{MISNAMED}:{tls.rpartition(':')[2]}"
    wanting, theirs = certificate_zookeeper.tls, certificate_zookeeper.authority.file
    shown = dict(zip(("cert_file", "key_file"), foreign.issue("client"), strict=True))
    cases: dict[str, tuple[str, dict[str, Any]]] = {
        "a foreign authority": (tls, {"ca_file": foreign.file}),
        "the machine's authorities": (tls, {"ca_file": None}),
        "another host name": (misnamed, {}),
        "another name and a foreign authority": (
            misnamed,
            {"verify_hostname": False, "ca_file": foreign.file},
        ),
        "no certificate": (wanting, {"ca_file": theirs}),
        "a foreign certificate": (wanting, {"ca_file": theirs} | shown),
        "tls on the plain port": (tls_zookeeper.plain, {}),
    }
    address, changes = cases[case]
    store = store_of(address, ZookeeperSecurity(**own | changes), connect_timeout_s=120.0)
    with closing(store), pytest.raises(StoreAccessError, match=says):
        store.ownership.holders()


def test_a_certificate_for_another_host_is_taken_by_the_explicit_switch(
    tls_zookeeper: SecureZookeeper,
) -> None:
    security = ZookeeperSecurity(
        tls=True, ca_file=tls_zookeeper.authority.file, verify_hostname=False
    )
    address = f"{MISNAMED}:{tls_zookeeper.tls.rpartition(':')[2]}"
    with closing(store_of(address, security)) as store:
        assert store.ownership.holders() == {}


def test_a_client_without_an_identity_or_tls_is_told_of_the_option(
    tls_zookeeper: SecureZookeeper, tmp_path: Path
) -> None:
    address = f"{tls_zookeeper.plain}/closed-{tmp_path.name}"
    digest = ZookeeperSecurity(auth="digest", user=USER, password=PASSWORD)
    with closing(store_of(address, digest)) as store:
        use(store)
    nobody = store_of(address, ZookeeperSecurity())
    without = r"client without an identity \(option zookeeperAuth"
    with closing(nobody), pytest.raises(StoreAccessError, match=without):
        nobody.shard_states.load()
    plain = store_of(tls_zookeeper.tls, ZookeeperSecurity(), connect_timeout_s=1.0)
    needs = r"if the server requires TLS"
    with closing(plain), pytest.raises(StoreUnavailableError, match=needs):
        plain.ownership.holders()


SHARD = "shardId-000000000000"


@pytest.fixture
def open_to_all(zookeeper_chroot: str) -> Iterator[ZookeeperStateStore]:
    with closing(ZookeeperStateStore(zookeeper_chroot, application="etl", stream="s")) as opened:
        opened.ownership.acquire(OWNER, timeout_s=0)
        opened.identity.bind(IDENTITY)
        opened.shard_states.save([StateChange(None, state_at(7))])
        yield opened


def test_lists_that_were_changed_by_hand_are_read(
    open_to_all: ZookeeperStateStore, zookeeper: str, zookeeper_chroot: str
) -> None:
    """And an owner that may not write a state is refused."""
    access = open_to_all.view.read_access([SHARD])
    assert {one.writers for one in access.values()} == {frozenset({"anyone"})}
    (path,) = (one for one in access if one.endswith("/state"))
    assert any(one.endswith("/epoch") for one in access)
    ann = make_digest_acl("ann", "secret", read=True, write=True)
    with kazoo_client(zookeeper) as client:
        client.set_acls(path, [ann, *READ_ACL_UNSAFE])
    changed = open_to_all.view.read_access([SHARD])[path]
    assert (changed.writers, changed.keepers) == (frozenset({"digest ann"}), frozenset())
    assert path.startswith("/" + zookeeper_chroot.partition("/")[2])
    (stored,) = open_to_all.shard_states.load().values()
    with pytest.raises(StoreAccessError, match="denies access"):
        open_to_all.shard_states.save([StateChange(stored, state_at(9))])


@pytest.fixture
def schema() -> StructType:
    from pyspark.sql.types import StructType  # noqa: PLC0415  # seconds of import

    return StructType().add("messageId", "string")


def test_a_task_has_the_password_though_its_machine_has_no_such_file(
    tls_zookeeper: SecureZookeeper,
    stream: StreamUnderTest,
    schema: StructType,
    tmp_path: Path,
) -> None:
    """The reader, planned on the driver, is pickled as Spark does it. Then the file is gone."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    stream.put(20)
    source = stream.source(
        zookeeper=f"{tls_zookeeper.tls}/task-{tmp_path.name}",
        zookeeper_tls=True,
        zookeeper_ca_file=tls_zookeeper.authority.file,
        zookeeper_auth="sasl",
        zookeeper_user=USER,
        zookeeper_password_file=str(file),
    )
    reader = RegisteredSource(dict(source.options())).streamReader(schema)
    start = offset_of({}, names_streams=False)
    try:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        planned = pickle.dumps((reader, list(reader.partitions(start, end))))
        file.unlink()
        sent, partitions = pickle.loads(planned)  # noqa: S301  # our own bytes
        rows = [
            row
            for partition in partitions
            for batch in sent.read(partition)
            for row in batch.to_pylist()
        ]
        assert {row["messageId"] for row in rows} == {f"{record}:1" for record in stream.ids()}
        assert PASSWORD not in repr(sent._query)
    finally:
        reader.stop()
        ProcessServices.forget_all()
