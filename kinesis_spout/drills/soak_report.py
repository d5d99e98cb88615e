"""The table of a soak's figures."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING

from kinesis_spout.drills.history.events import Step
from kinesis_spout.drills.history.measures import commit_delays, deliveries_s, handovers_s, repeats
from kinesis_spout.drills.world.use import MIB, levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.drills.soak import Outcome
    from kinesis_spout.drills.world.use import Level

_MINUTE_S = 60.0
_JUST_BEFORE_NS = 3_000_000_000  # a kill


def table(outcome: Outcome, broken: Sequence[str]) -> str:
    """All figures, then what was broken."""
    return "\n".join(
        [
            *_events(outcome),
            *_of_deliveries(outcome),
            *_of_kills(outcome),
            *_of_commits(outcome),
            *_by_minute(outcome),
            *(_verdict(level) for level in outcome_levels(outcome)),
            *(f"BROKEN: {one}" for one in broken),
            f"{len(broken)} promises broken",
        ]
    )


def outcome_levels(outcome: Outcome) -> list[Level]:
    """Of the process that was never killed, while it was disturbed."""
    return levels(outcome.use, outcome.steady_run)


def _events(outcome: Outcome) -> Iterator[str]:
    told = outcome.history.told
    steps = {step: sum(one.step is step for one in told) for step in Step}
    faults = {name: n for name, n in outcome.counts.items() if name.startswith("fault: ")}
    yield _row(len(outcome.history.puts), "records put")
    yield _row(steps[Step.GOT], "deliveries")
    yield _row(steps[Step.FAIL] + steps[Step.REJECT], "failures")
    yield _row(len({one.record for one in told if one.step is Step.LETTER}), "dead letters")
    yield _row(sum(faults.values()), "faults of Kinesis")
    for name, number in sorted(faults.items()):
        yield _row(number, f"  {name.removeprefix('fault: ')}")
    for name, number in sorted(outcome.counts.items() - faults.items()):
        yield _row(number, name)
    yield _row(len(outcome.history.faults), "kills of spouts")
    yield _row(len(outcome.closing_s), "spouts closed in order")
    yield _row(f"{max(outcome.closing_s, default=0.0):.1f}", "s: the longest closing")
    yield _row(f"{outcome.drained_s:.1f}", "s to drain at the end")


def _of_deliveries(outcome: Outcome) -> Iterator[str]:
    took_s = deliveries_s(outcome.history)
    if took_s:
        most = took_s[len(took_s) * 99 // 100]
        yield _row(
            f"{median(took_s):.2f}",
            f"s from a put to its first delivery; 99 % within {most:.1f}, most {took_s[-1]:.1f}",
        )


def _of_kills(outcome: Outcome) -> Iterator[str]:
    found = repeats(outcome.history)
    if not found:
        return
    counts = [one.records for one in found]
    yield _row(
        f"{median(counts):.0f}", f"records repeated per kill, in the middle; most {max(counts)}"
    )
    away: list[float] = []
    there: list[float] = []
    for one in found:
        killed_ns = one.fault.began_ns
        was_away = outcome.was_away(killed_ns - _JUST_BEFORE_NS, killed_ns)
        (away if was_away else there).append(one.oldest_s)
    if there:
        yield _row(f"{max(there):.2f}", "s: resolved so long before a kill, at most, came again")
    if away:
        yield _row(f"{max(away):.2f}", "s: the same where ZooKeeper was away just before the kill")
    for waits, name in ((False, "from its start"), (True, "from the end of the old session")):
        took = [s for fault, s in handovers_s(outcome.history).items() if fault.waits is waits]
        if took:
            yield _row(
                f"{median(took):.1f}",
                f"s to a successor's first record, {name}; most {max(took):.1f}",
            )


def _of_commits(outcome: Outcome) -> Iterator[str]:
    delays = commit_delays(outcome.history)
    if not delays:
        return
    is_away = [outcome.was_away(begin_ns, end_ns) for begin_ns, end_ns in delays]
    took_s = [(end_ns - begin_ns) / 1e9 for begin_ns, end_ns in delays]
    others = [s for s, away in zip(took_s, is_away, strict=True) if not away]
    in_away = [s for s, away in zip(took_s, is_away, strict=True) if away]
    if others:
        yield _row(
            f"{median(others):.2f}",
            f"s from the oldest outcome that was not stored to its commit; most {max(others):.2f}",
        )
    if in_away:
        longest_s = max(ended - began for began, ended in outcome.away) / 1e9
        yield _row(
            f"{max(in_away):.2f}",
            f"s: the most where ZooKeeper was away meanwhile, for up to {longest_s:.1f} s",
        )


def _by_minute(outcome: Outcome) -> Iterator[str]:
    yield "memory (RSS, MiB), threads and open files: first of the process that was never killed"
    yield (
        f"{'minute':6}  {'memory':20}  {'threads':12}  {'files':12}  {'znodes':>6}  {'states':>6}"
        f"  {'shards':>6}"
    )
    minutes: dict[int, list[int]] = defaultdict(list)
    for index, sample in enumerate(outcome.use):
        minutes[int(sample.at_s // _MINUTE_S)].append(index)
    for minute, indexes in minutes.items():
        sample = outcome.use[indexes[-1]]
        use = sorted(sample.processes.items(), key=lambda one: one[0] != outcome.steady_run)
        znodes = next(
            (n for at in reversed(indexes) if (n := outcome.use[at].znodes) is not None), "-"
        )
        memory = " ".join(f"{each.rss / MIB:6.1f}" for _, each in use)
        threads = " ".join(f"{each.threads:3}" for _, each in use)
        files = " ".join(f"{each.files:3}" for _, each in use)
        yield (
            f"{minute + 1:6}  {memory:20}  {threads:12}  {files:12}  {znodes:>6}  {sample.states:6}"
            f"  {sample.shards:6}"
        )


def _verdict(level: Level) -> str:
    verdict = "level" if level.is_level else "GROWS"
    return (
        f"{verdict}: {level.name} {level.before:.1f} {level.unit} in the second quarter, "
        f"{level.after:.1f} in the last"
    )


def _row(number: object, what: str) -> str:
    return f"{number!s:>10}  {what}"
