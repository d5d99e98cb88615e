"""Every starting position gives the right first record of each shard, with reshards before and
after the start.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import ConfigError, RequestRefusedError
from spark_job.preflight import preflight
from tests.support.simulated.micro_batch_engine import MicroBatchEngine
from tests.support.spark.source import READ_MODES, StreamUnderTest, ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR_S = 3_600.0


@pytest.fixture(params=READ_MODES)
def stream(request: pytest.FixtureRequest, stream: StreamUnderTest) -> StreamUnderTest:
    """Read in both modes."""
    stream.read_mode = READ_MODES[request.param]
    return stream


@pytest.fixture
def start_at(stream: StreamUnderTest) -> Iterator[Callable[..., MicroBatchEngine]]:
    """Engines of applications that start at a position, each with its own name."""
    made: list[MicroBatchEngine] = []

    def start(position: str | dict[str, str], **options: Any) -> MicroBatchEngine:
        settings = stream.settings(
            starting_position=position, application=f"app-{len(made)}", **options
        )
        made.append(MicroBatchEngine(settings))
        return made[-1]

    yield start
    for engine in made:
        engine.stop()


def read(engine: MicroBatchEngine) -> list[str]:
    engine.run_until_idle()
    return ids_of(engine.delivered)


def put_in_hours(stream: StreamUnderTest, hours: int) -> list[set[str]]:
    """Forty records each hour; their ids by hour."""
    found: list[set[str]] = []
    for _ in range(hours):
        before = stream.ids()
        stream.put(40)
        found.append(stream.ids() - before)
        stream.clock.advance(HOUR_S)
    return found


def test_trim_horizon_gives_all_that_the_stream_keeps(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    put_in_hours(stream, 3)
    assert set(read(start_at("TRIM_HORIZON"))) == stream.ids()


def test_latest_gives_what_is_put_after_the_first_start(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    put_in_hours(stream, 2)
    old = stream.ids()
    engine = start_at("LATEST")
    assert read(engine) == []
    stream.put(40)
    assert set(read(engine)) == stream.ids() - old


def test_latest_loses_nothing_that_is_put_between_the_pin_and_the_first_batch(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    """A restart in between does not move the pin."""
    put_in_hours(stream, 1)
    old = stream.ids()
    engine = start_at("LATEST")
    engine.start()
    assert engine.reader is not None
    engine.reader.coordinator.pin_start()
    stream.put(40)
    engine.stop()
    stream.clock.advance(60)
    assert set(read(engine)) == stream.ids() - old


def test_a_time_gives_what_arrived_then_or_later(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    put_in_hours(stream, 2)
    now = datetime.fromtimestamp(stream.clock.now_ms() / 1000, UTC)
    (last,) = put_in_hours(stream, 1)
    assert set(read(start_at(now.isoformat(timespec="milliseconds")))) == last


def test_a_time_ago_counts_from_the_first_start(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    hours = put_in_hours(stream, 4)
    assert set(read(start_at("-150m"))) == hours[2] | hours[3]


def test_a_sequence_number_gives_that_record_or_what_follows_it(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    """The number belongs to one shard, so the other shards have starts of their own."""
    stream.put(80)
    shard, sequences = next(iter(sorted(stream.records.items())))
    others = stream.ids() - {f"{shard}:{sequence}" for sequence in sequences}
    at = read(start_at({"default": "TRIM_HORIZON", shard: f"AT:{sequences[3]}"}))
    assert set(at) == others | {f"{shard}:{sequence}" for sequence in sequences[3:]}
    after = read(start_at({"default": "TRIM_HORIZON", shard: f"AFTER:{sequences[3]}"}))
    assert set(after) == others | {f"{shard}:{sequence}" for sequence in sequences[4:]}


def test_each_shard_can_have_its_own_start(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    """Also one that differs from the default of LATEST."""
    put_in_hours(stream, 2)
    shards = sorted(stream.records)
    engine = start_at({shards[0]: "TRIM_HORIZON", shards[1]: "-90m"})
    ids = read(engine)
    assert {one for one in ids if one.startswith(shards[0])} == {
        f"{shards[0]}:{s}" for s in stream.records[shards[0]]
    }
    assert ids
    assert {one.partition(":")[0] for one in ids} == {shards[0], shards[1]}
    assert (
        0 < len([one for one in ids if one.startswith(shards[1])]) < len(stream.records[shards[1]])
    )


def test_a_sequence_number_of_another_shard_is_refused(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(40)
    first, second = sorted(stream.records)[:2]
    with pytest.raises(RequestRefusedError, match=second):
        read(start_at({"default": "LATEST", second: f"AT:{stream.records[first][0]}"}))


@pytest.mark.parametrize(
    "position", ["EARLIEST", "SHARD_END", "AT:", "AT:x", "2026-13-01", "-2w", '{"default": "NOW"}']
)
def test_a_bad_start_is_refused_before_anything_is_asked(
    position: str, stream: StreamUnderTest
) -> None:
    with pytest.raises(ConfigError, match="startingPosition"):
        stream.source(starting_position=position)


# resharding ---------------------------------------------------------------------------------------
def test_a_stream_with_closed_parents_is_read_from_its_oldest_record_in_order(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(100)
    stream.split()
    stream.put(100)
    stream.merge()
    stream.put(100)
    engine = start_at("TRIM_HORIZON")
    assert sorted(read(engine)) == sorted(stream.ids())
    order = [row["shardId"] for row in engine.delivered]
    for child, state in stream.states("app-0").items():
        for parent in state.parents:
            assert len(order) - order[::-1].index(parent) <= order.index(child), (
                f"{child} came before the end of {parent}"
            )


def test_latest_on_a_stream_with_closed_parents_reads_none_of_their_records(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(100)
    stream.split()
    stream.put(100)
    stream.merge()
    stream.put(100)
    stream.clock.advance(60)
    old = stream.ids()
    engine = start_at("LATEST")
    assert read(engine) == []
    stream.put(100)
    assert sorted(read(engine)) == sorted(stream.ids() - old)


@pytest.mark.parametrize("position", ["LATEST", "-1m"])
def test_children_of_a_split_after_the_start_are_read_from_their_first_record(
    position: str, stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    """Also when the split and the records came while the job was down, and time has
    passed since.
    """
    stream.put(40)
    old = stream.ids()
    stream.clock.advance(HOUR_S)
    engine = start_at(position)
    assert read(engine) == []
    engine.stop()
    stream.split()
    stream.put(40)
    stream.clock.advance(HOUR_S)
    stream.split(index=1)
    stream.put(40)
    assert sorted(read(engine)) == sorted(stream.ids() - old)


def test_a_start_in_the_middle_of_a_closed_parent_goes_on_through_its_children(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    (_, second) = put_in_hours(stream, 2)
    before = stream.ids()
    stream.split()
    stream.put(40)
    assert set(read(start_at("-90m"))) == second | (stream.ids() - before)


# stored state -------------------------------------------------------------------------------------
def test_stored_state_wins_over_the_starting_position_and_it_is_said(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    stream.put(40)
    engine = start_at("TRIM_HORIZON")
    assert len(read(engine)) == 40
    engine.stop()
    changed = stream.settings(application="app-0", starting_position="LATEST")
    (warning,) = preflight(changed, master="local")
    assert "startingPosition LATEST has no effect" in warning
    assert "kinesis-spout reset --application app-0" in warning
    engine.settings = changed
    stream.put(40)
    assert len(set(read(engine))) == 80


def test_the_same_start_and_the_default_are_not_worth_a_warning(
    stream: StreamUnderTest, start_at: Callable[..., MicroBatchEngine]
) -> None:
    read(start_at("TRIM_HORIZON"))
    assert (
        preflight(
            stream.settings(application="app-0", starting_position="TRIM_HORIZON"), master="local"
        )
        == []
    )
    assert (
        preflight(stream.settings(application="app-0", starting_position=None), master="local")
        == []
    )
    assert preflight(stream.settings(application="never-ran"), master="local") == []
