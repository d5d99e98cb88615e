"""Enhanced fan-out over HTTP: real sockets, threads of their own, and a server that cuts them."""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.clock import SystemClock
from kinesis_spout.config import StreamRef
from kinesis_spout.drills.zookeeper import Link
from kinesis_spout.errors import (
    ConsumerNotFoundError,
    ServiceUnavailableError,
    ShardNotFoundError,
    SubscriptionInUseError,
    ThrottledError,
)
from kinesis_spout.reading.subscriptions import ThreadFeed
from kinesis_spout.service import subscription as subscription_module
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.consumers import ConsumerRegistry, OwnConsumer
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer
from state.position import TRIM_HORIZON
from tests.support.certificates import Authority
from tests.support.kinesis.services import served_over_tls
from tests.support.kinesis.stub_kinesis import config_of
from tests.support.spout.spouts import spout_on

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake

SHARD = "shardId-000000000000"
PATIENCE_S = 20.0


@pytest.fixture
def orders(fake_kinesis: ServedFake) -> ServedFake:
    fake_kinesis.model.create("orders")
    return fake_kinesis


@pytest.fixture
def client(orders: ServedFake) -> Iterator[KinesisClient]:
    config = config_of(orders.endpoint_url)
    with closing(KinesisClient(config, StreamRef("orders"), random=Random(0))) as found:  # noqa: S311  # jitter
        yield found


def own(client: KinesisClient, **named: Any) -> OwnConsumer:
    return OwnConsumer(client, **({"name": "me", "arn": None} | named), clock=SystemClock())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_subscription_is_closed_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """A read that waits ends at once; over TLS as often as not in the middle of a read."""
    authority = Authority(tmp_path, "authority")
    monkeypatch.setenv("AWS_CA_BUNDLE", authority.file)
    fake = FakeKinesis()
    fake.create("orders")
    with ExitStack() as stack:
        if scheme == "https":
            url = stack.enter_context(served_over_tls(fake, authority))
        else:
            url = stack.enter_context(FakeKinesisServer(fake)).endpoint_url
        client = KinesisClient(config_of(url), StreamRef("orders"))
        consumer = own(stack.enter_context(closing(client)))
        news = threading.Event()
        feed = ThreadFeed.start(SHARD, lambda: consumer.subscribe(SHARD, TRIM_HORIZON), news.set)
        assert news.wait(PATIENCE_S)
        assert feed.take() is not None
        feed.close()
        feed.thread.join(3)
        assert not feed.thread.is_alive()
        assert feed.error is None


def test_a_half_open_connection_counts_as_broken(
    orders: ServedFake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes and nothing closes it, as when a network drops all packets."""
    monkeypatch.setattr(subscription_module, "SILENT_S", 0.5)
    with Link(orders.endpoint_url.removeprefix("http://")) as link:
        url = f"http://{link.address}"
        with closing(KinesisClient(config_of(url), StreamRef("orders"))) as client:
            subscription = own(client).subscribe(SHARD, TRIM_HORIZON)
            assert subscription.next_event() is not None
            link.stall()
            orders.model.put("orders", "k", b"unseen")
            with pytest.raises(ServiceUnavailableError, match="broke"):
                subscription.next_event()
            subscription.release()


def test_what_the_service_refuses_has_its_class(orders: ServedFake, client: KinesisClient) -> None:
    """A second subscription, a shard and a consumer that are not there or were removed, one
    consumer too many.
    """
    consumer = own(client)
    subscription = consumer.subscribe(SHARD, TRIM_HORIZON)
    with pytest.raises(SubscriptionInUseError, match="five seconds must pass"):
        consumer.subscribe(SHARD, TRIM_HORIZON)
    with pytest.raises(ShardNotFoundError):
        consumer.subscribe("shardId-000000000009", TRIM_HORIZON)
    arn = f"{orders.model.stream('orders').arn}/consumer/nobody:1"
    with pytest.raises(ConsumerNotFoundError, match="consumers list"):
        own(client, name=None, arn=arn).subscribe(SHARD, TRIM_HORIZON)
    registry = ConsumerRegistry(client, retry=False)
    registry.deregister(consumer.active_arn())
    with pytest.raises(ShardNotFoundError, match=r"Consumer .* not found.*consumers list"):
        list(iter(subscription.next_event, None))
    for number in range(20):
        registry.register(f"other-{number}")
    with pytest.raises(ThrottledError, match="consumers remove"):
        registry.register("too-many")
    subscription.release()


def test_a_server_that_ends_breaks_the_subscription() -> None:
    fake = FakeKinesis()
    fake.create("orders")
    news = threading.Event()
    with FakeKinesisServer(fake) as server:
        config = config_of(server.endpoint_url)
        client = KinesisClient(config, StreamRef("orders"))
        consumer = own(client)
        feed = ThreadFeed.start(SHARD, lambda: consumer.subscribe(SHARD, TRIM_HORIZON), news.set)
        assert news.wait(PATIENCE_S)
        news.clear()
        assert feed.take() is not None
    assert news.wait(PATIENCE_S)
    feed.thread.join(PATIENCE_S)
    assert not feed.thread.is_alive()
    assert feed.is_over
    assert isinstance(feed.error, ServiceUnavailableError)
    client.close()


def test_a_spout_reads_by_subscription_over_a_split(orders: ServedFake) -> None:
    fake = orders.model
    came: list[bytes] = []
    wanted = [f"{number}".encode() for number in range(60)]
    spout = spout_on(orders, read_mode="efo", consumer_name="me", shard_refresh_interval_s=0.2)
    with closing(spout):
        spout.open()
        for data in wanted[:20]:
            fake.put("orders", data.decode(), data)
        for emission in spout.emissions(lambda: len(came) >= 60):
            came.append(emission.data)
            emission.ack()
            if len(came) == 10:
                fake.split("orders", SHARD)
                for data in wanted[20:]:
                    fake.put("orders", data.decode(), data)
        metrics = spout.metrics()
    assert sorted(came) == sorted(wanted)
    assert metrics.subscriptions is not None
    assert metrics.subscriptions.opened == 3
    assert metrics.subscriptions.polled_shards == 0
    for thread in threading.enumerate():
        if thread.name.startswith("kinesis-subscription"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
