"""Reading shards through HTTP: resharding, expiry and limits as the services have them."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import ReadRate, StreamRef
from kinesis_spout.reading.buffered_getter import BufferedGetter, ByteBudget
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.round_robin import RoundRobinReader
from kinesis_spout.reading.shard_getter import KinesisShardGetter
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.testing.manual_clock import ManualClock
from kinesis_spout.testing.settings import FakeKinesisSettings
from state.position import TRIM_HORIZON
from tests.support.kinesis.services import create_stream, kinesis_client, wait_until_active
from tests.support.kinesis.services import serve as serve_fake
from tests.support.kinesis.stub_kinesis import config_of, seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

SHARD = "shardId-000000000000"
MIB = 1024 * 1024


@contextmanager
def reading(url: str, stream: str, clock: Clock) -> Iterator[KinesisClient]:
    with closing(
        KinesisClient(config_of(url, region="us-east-1"), StreamRef(stream), clock=clock)
    ) as client:
        yield client


def getter_of(
    client: KinesisClient, clock: Clock, shard_id: str = SHARD, **rate: float
) -> KinesisShardGetter:
    return KinesisShardGetter(
        client, shard_id, TRIM_HORIZON, pacer=Pacer(ReadRate(**rate)), clock=clock
    )


def test_a_split_parent_is_read_to_its_end_and_names_its_children(
    kinesis_service: str, request: pytest.FixtureRequest
) -> None:
    """All of its records, then the end with both children; they list it as their parent."""
    name, clock = f"split-{seeded(request.node.nodeid).randrange(10**9)}", SystemClock()
    with kinesis_client(kinesis_service) as vendor, reading(kinesis_service, name, clock) as client:
        create_stream(vendor, name)
        for number in range(7):
            vendor.put_record(StreamName=name, PartitionKey="k", Data=b"%d" % number)
        vendor.split_shard(StreamName=name, ShardToSplit=SHARD, NewStartingHashKey=str(2**127))
        wait_until_active(vendor, name)
        getter, datas = getter_of(client, clock, reads_per_second=100), []
        for _ in range(50):
            page = getter.fetch(3)
            datas += page.records.column("data").to_pylist()
            if page.ended:
                break
        children = {listed.shard_id for listed in client.list_shards() if SHARD in listed.parents}
    assert datas == [b"%d" % number for number in range(7)]
    assert {child.shard_id for child in page.child_shards} == children
    assert all(child.parents == (SHARD,) for child in page.child_shards)
    assert len(children) == 2


def test_an_iterator_that_has_expired_goes_on_after_the_last_record() -> None:
    """More than five minutes pass without a fetch. Before the first record, it goes on at the
    start.
    """
    clock = ManualClock()
    with serve_fake(clock=clock) as fake, reading(fake.endpoint_url, "s", clock) as client:
        fake.model.create("s")
        getter = getter_of(client, clock)
        assert getter.fetch(10).count == 0
        clock.advance(400)
        fake.model.put("s", "k", b"a")
        fake.model.put("s", "k", b"b")
        assert getter.fetch(1).records.column("data").to_pylist() == [b"a"]
        clock.advance(400)
        assert getter.fetch(10).records.column("data").to_pylist() == [b"b"]


def test_pacing_keeps_within_the_limits_so_that_nothing_is_throttled() -> None:
    """Pages of 0 to 3 MB, as fast as the pace allows: the service never refuses a call."""
    clock = ManualClock()
    with (
        serve_fake(clock=clock, settings=FakeKinesisSettings(limits=True)) as fake,
        reading(fake.endpoint_url, "s", clock) as client,
    ):
        fake.model.create("s")
        for _ in range(20):
            fake.model.put("s", "k", b"x" * MIB)
        pacer = Pacer(ReadRate())
        getter = KinesisShardGetter(client, SHARD, TRIM_HORIZON, pacer=pacer, clock=clock)
        started_s, count = clock.monotonic_s(), 0
        for limit in (1, 3, 2, 1, 1, 1, 3, 3, 3, 2, *([10] * 20)):
            clock.sleep(getter.ready_at_s() - clock.monotonic_s())
            count += getter.fetch_unless_throttled(limit).count
        took_s = clock.monotonic_s() - started_s
    assert (count, pacer.refused_in_a_row) == (20, 0)
    assert took_s < 20 / 2 + 20 / 5 + 1


def test_a_page_of_ten_mebibytes_stops_its_shard_for_five_seconds_and_is_never_throttled() -> None:
    """Records of the largest size, one after the other, in JSON and in CBOR."""
    clock = ManualClock()
    with (
        serve_fake(clock=clock, settings=FakeKinesisSettings(limits=True)) as fake,
        reading(fake.endpoint_url, "s", clock) as client,
    ):
        fake.model.create("s", max_record_kib=10_240)
        payloads = [bytes([n]) * (10 * MIB - 1) for n in range(3)]
        for payload in payloads:
            fake.model.put("s", "k", payload)
        pacer = Pacer(ReadRate())
        getter = KinesisShardGetter(client, SHARD, TRIM_HORIZON, pacer=pacer, clock=clock)
        started_s = clock.monotonic_s()
        found: list[bytes] = []
        while len(found) < len(payloads):
            clock.sleep(getter.ready_at_s() - clock.monotonic_s())
            found += getter.fetch_unless_throttled(10).records.column("data").to_pylist()
        took_s = clock.monotonic_s() - started_s
    assert found == payloads
    assert pacer.refused_in_a_row == 0
    assert 9.9 < took_s < 10.5  # twice five


def test_keys_count_towards_the_limits_as_the_data_does() -> None:
    """Small records with long keys: the pace of their data alone would be refused at each page."""
    clock = ManualClock()
    with (
        serve_fake(clock=clock, settings=FakeKinesisSettings(limits=True)) as fake,
        reading(fake.endpoint_url, "s", clock) as client,
    ):
        fake.model.create("s")
        for number in range(20_000):
            fake.model.put("s", f"{number:0256}", bytes(10))
        pacer = Pacer(ReadRate())
        getter = KinesisShardGetter(client, SHARD, TRIM_HORIZON, pacer=pacer, clock=clock)
        count = 0
        while count < 20_000:
            clock.sleep(getter.ready_at_s() - clock.monotonic_s())
            count += getter.fetch_unless_throttled(10_000).count
    assert pacer.refused_in_a_row == 0


def test_many_shards_are_read_ahead_to_their_tips() -> None:
    """Every record once, in each shard's order, through a budget that is far smaller
    than the data.
    """
    clock = ManualClock()
    with serve_fake(clock=clock) as fake, reading(fake.endpoint_url, "s", clock) as client:
        fake.model.create("s", shards=6)
        for number in range(600):
            fake.model.put("s", f"k{number}", b"%d" % number)
        budget = ByteBudget(20 * MIB)
        getters = [
            BufferedGetter(getter_of(client, clock, listed.shard_id), max_records=40, budget=budget)
            for listed in client.list_shards()
        ]
        read: dict[str, list[int]] = {getter.shard_id: [] for getter in getters}
        with RoundRobinReader(getters, max_concurrent=4, clock=clock) as reader:
            while not reader.idle:
                for getter in reader.step(10.0):
                    while (page := getter.take()) is not None:
                        read[getter.shard_id] += [
                            int(data) for data in page.records.column("data").to_pylist()
                        ]
                    if getter.at_tip:
                        getter.close()
    assert sorted(number for numbers in read.values() for number in numbers) == list(range(600))
    assert all(numbers == sorted(numbers) for numbers in read.values())
    assert budget.held_bytes == 0
