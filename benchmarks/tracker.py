"""Cost of the in-flight tracker: time per event with few and with many records in flight, and
memory.

    python benchmarks/tracker.py [--json] [--in-flight N] [--events N]

O(1) means that the ratio of the times stays near 1. The machine causes some growth: a million
records do not fit into its caches.
"""

from __future__ import annotations

import argparse
import gc
import json
import tracemalloc
from random import Random
from time import thread_time_ns
from typing import TYPE_CHECKING

from state.position import TRIM_HORIZON
from state.retry_policy import RetryPolicy
from state.sequence_number import SequenceNumber
from state.shard_state import ShardState
from state.tracker.inflight_record_tracker import InflightRecordTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FEW = 1_000
# As long as the service's numbers, and with gaps like theirs.
FIRST_NUMBER = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
STEP = 65_537
ROUNDS = 3
BATCH = 500


def numbers(count: int, start: int = 0) -> list[SequenceNumber]:
    return [SequenceNumber(FIRST_NUMBER + STEP * i) for i in range(start, start + count)]


def fresh_tracker(random: Random) -> InflightRecordTracker:
    state = ShardState(shard_id="shardId-000000000000", read_position=TRIM_HORIZON)
    return InflightRecordTracker(state, retry_policy=RetryPolicy(), random=random)


def ns_of(event: Callable[[SequenceNumber], object], sequences: Sequence[SequenceNumber]) -> int:
    # The time of this thread only, without other load on the machine.
    started = thread_time_ns()
    for sequence in sequences:
        event(sequence)
    return thread_time_ns() - started


def take_any(pool: list[SequenceNumber], count: int, random: Random) -> list[SequenceNumber]:
    """Take `count` records out of the pool at random: outcomes come in any order."""
    taken = []
    for _ in range(count):
        i = random.randrange(len(pool))
        pool[i], pool[-1] = pool[-1], pool[i]
        taken.append(pool.pop())
    return taken


def one_round(in_flight: int, events: int, random: Random) -> dict[str, float]:
    """Nanoseconds per event while `in_flight` records stay in flight: each ack follows an emit."""
    tracker = fresh_tracker(random)
    pool = numbers(in_flight)
    for sequence in pool:
        tracker.emit(sequence)
    total_ns = dict.fromkeys(("emit", "fail", "ack", "late_ack"), 0)
    for start in range(in_flight, in_flight + events, BATCH):
        new = numbers(BATCH, start)
        total_ns["emit"] += ns_of(tracker.emit, new)
        pool += new
        failed, acked = take_any(pool, BATCH // 2, random), take_any(pool, BATCH // 2, random)
        total_ns["fail"] += ns_of(lambda sequence: tracker.fail(sequence, 1, 0), failed)
        total_ns["ack"] += ns_of(lambda sequence: tracker.ack(sequence, 1), acked)
        total_ns["late_ack"] += ns_of(lambda sequence: tracker.ack(sequence, 1), failed)
    return {
        event: ns / (events if event == "emit" else events / 2) for event, ns in total_ns.items()
    }


def best_of(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The fastest time of each event, which is the least disturbed."""
    return {event: min(times[event] for times in rounds) for event in rounds[0]}


def memory(in_flight: int, random: Random) -> dict[str, int]:
    """Bytes that the tracker holds: empty, full, and after all was acked in random order."""
    sequences = numbers(in_flight)
    order = random.sample(sequences, in_flight)
    tracker = fresh_tracker(random)
    gc.collect()
    tracemalloc.start()
    empty, _ = tracemalloc.get_traced_memory()
    for sequence in sequences:
        tracker.emit(sequence)
    full, _ = tracemalloc.get_traced_memory()
    nodes_full = len(list(tracker._nodes))  # noqa: SLF001  # memory follows them
    for sequence in order:
        tracker.ack(sequence, 1)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tracker.checkpoint == sequences[-1]
    return {
        "empty_bytes": empty,
        "full_bytes": full,
        "bytes_per_record": (full - empty) // in_flight,
        "after_bytes": after,
        "full_nodes": nodes_full,
        "after_nodes": len(list(tracker._nodes)),  # noqa: SLF001  # memory follows them
    }


def measure(in_flight: int, events: int) -> dict[str, object]:
    random = Random(1)  # noqa: S311  # the order of acks, the same in every run
    few = best_of([one_round(FEW, events, random) for _ in range(ROUNDS)])
    many = best_of([one_round(in_flight, events, random) for _ in range(ROUNDS)])
    return {
        "in_flight": {"few": FEW, "many": in_flight},
        "events": events,
        "ns_few": {event: round(ns) for event, ns in few.items()},
        "ns_many": {event: round(ns) for event, ns in many.items()},
        "ratio": {event: round(many[event] / few[event], 2) for event in few},
        "memory": memory(in_flight, random),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--in-flight", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=20_000)
    options = parser.parse_args()
    result = measure(options.in_flight, options.events)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{'event':<10}{f'at {FEW:,}':>14}{f'at {options.in_flight:,}':>16}{'ratio':>8}")
    few, many, ratio, held = (result[key] for key in ("ns_few", "ns_many", "ratio", "memory"))
    assert isinstance(few, dict)
    assert isinstance(many, dict)
    assert isinstance(ratio, dict)
    assert isinstance(held, dict)
    for event in few:
        print(f"{event:<10}{few[event]:>11,} ns{many[event]:>13,} ns{ratio[event]:>8}")
    print(
        f"memory: {held['empty_bytes']:,} bytes empty, {held['full_bytes']:,} full, "
        f"{held['after_bytes']:,} after all were acked"
    )


if __name__ == "__main__":
    main()
