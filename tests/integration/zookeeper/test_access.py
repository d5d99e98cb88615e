"""Who may write an application's nodes, as ZooKeeper's own access control lists say."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE, make_digest_acl

from state.errors import StoreAccessError
from state.store.shard_states import StateChange
from state.zookeeper.store import ZookeeperStateStore
from tests.support.state.state_stores import IDENTITY, OWNER, state_at

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARD = "shardId-000000000000"


@pytest.fixture
def store(zookeeper_chroot: str) -> Iterator[ZookeeperStateStore]:
    with closing(ZookeeperStateStore(zookeeper_chroot, application="etl", stream="s")) as opened:
        opened.ownership.acquire(OWNER, timeout_s=0)
        opened.identity.bind(IDENTITY)
        opened.shard_states.save([StateChange(None, state_at(7))])
        yield opened


def test_lists_that_were_changed_by_hand_are_read(
    store: ZookeeperStateStore, zookeeper: str, zookeeper_chroot: str
) -> None:
    """And an owner that may not write a state is refused."""
    access = store.view.read_access([SHARD])
    assert {one.writers for one in access.values()} == {frozenset({"anyone"})}
    (path,) = (one for one in access if one.endswith("/state"))
    assert any(one.endswith("/epoch") for one in access)
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        ann = make_digest_acl("ann", "secret", read=True, write=True)
        client.set_acls(path, [ann, *READ_ACL_UNSAFE])
        changed = store.view.read_access([SHARD])[path]
        assert (changed.writers, changed.keepers) == (frozenset({"digest ann"}), frozenset())
    finally:
        client.stop()
        client.close()
    assert path.startswith("/" + zookeeper_chroot.partition("/")[2])
    (stored,) = store.shard_states.load().values()
    with pytest.raises(StoreAccessError, match="denies access"):
        store.shard_states.save([StateChange(stored, state_at(9))])
