"""The report of `kinesis-spout shards`: its lines, their JSON, and their tree. Pure.

`--json` prints a list of `ShardLine.as_json`: the shards, oldest first, then the holes. A hole is a
range of hash keys that no open shard covers. All objects have the same members:

    shardId         the shard; null for a hole
    state           with an application: new, readable, draining, waiting, drained, finished,
                    vanished, past (defined in `kinesis_spout.shards.lineage`);
                    without one: open, closed, past; for a hole: hole
    parents         ids of the parents, the first parent first
    waitsFor        ids of the parents that must be read to their ends first
    hashKeys        [first, last], inclusive, as strings, because they have up to 39 digits;
                    null if the shard is not listed
    hashPercent     the size of that range, in per cent of all hash keys
    readPosition    where the application continues: TRIM_HORIZON, an ISO time,
                    AT:<sequence>, AFTER:<sequence>, SHARD_END
    checkpoint      sequence number up to which everything is acked, or SHARD_END;
                    null before the first checkpoint
    unresolved      number of records that wait for a retry
    lagMs           lag in milliseconds of arrival time; null if unknown or at the end
    lagMeasured     true: measured by the service (`--lag`);
                    false: an upper bound from the application's state
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.tree import Tree

from kinesis_spout.inspection.wording import brief, short_shard, shortened
from kinesis_spout.shards.lineage import HASH_KEYS, ShardLineage, ShardPhase, open_range_holes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from state.shard_state import ShardState

HOLE = "hole"
_COLOURS = {
    "open": "green",
    "readable": "green",
    "draining": "yellow",
    "waiting": "cyan",
    "new": "cyan",
    "drained": "yellow",
    "vanished": "bold red",
    HOLE: "bold red",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLine:
    """One shard, or a hole. The module's docstring defines the fields."""

    shard_id: str | None
    state: str
    parents: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    hash_keys: tuple[int, int] | None = None
    read_position: str | None = None
    checkpoint: str | None = None
    unresolved: int | None = None
    lag_ms: int | None = None
    lag_measured: bool = False

    @property
    def hash_percent(self) -> float | None:
        if self.hash_keys is None:
            return None
        return round((self.hash_keys[1] - self.hash_keys[0] + 1) * 100 / HASH_KEYS, 4)

    def as_json(self) -> dict[str, Any]:
        return {
            "shardId": self.shard_id,
            "state": self.state,
            "parents": list(self.parents),
            "waitsFor": list(self.waits_for),
            "hashKeys": None if self.hash_keys is None else [str(key) for key in self.hash_keys],
            "hashPercent": self.hash_percent,
            "readPosition": self.read_position,
            "checkpoint": self.checkpoint,
            "unresolved": self.unresolved,
            "lagMs": self.lag_ms,
            "lagMeasured": self.lag_measured,
        }


def shard_lines(
    lineage: ShardLineage,
    *,
    has_application: bool,
    is_active: bool,
    now_ms: int,
    measured_ms: Mapping[str, int],
) -> list[ShardLine]:
    """A line for each shard, oldest first, then one for each hole.

    Holes are reported of an active stream only; during a reshard they mean nothing. `now_ms`: the
    service's time. `measured_ms`: the measured lag by shard.
    """
    line_of = _application_line if has_application else _stream_line
    lines = [line_of(lineage, shard_id, now_ms, measured_ms) for shard_id in lineage.oldest_first()]
    holes = open_range_holes(lineage.listed.values()) if is_active else []
    return [*lines, *(ShardLine(shard_id=None, state=HOLE, hash_keys=hole) for hole in holes)]


def _application_line(
    lineage: ShardLineage, shard_id: str, now_ms: int, measured_ms: Mapping[str, int]
) -> ShardLine:
    state, shard = lineage.states.get(shard_id), lineage.listed.get(shard_id)
    return ShardLine(
        shard_id=shard_id,
        state=lineage.phase(shard_id).value,
        parents=lineage.parents(shard_id),
        waits_for=lineage.waits_for(shard_id),
        hash_keys=None if shard is None else shard.hash_key_range,
        read_position=None if state is None else str(state.read_position),
        checkpoint=None if state is None else state.checkpoint_text,
        unresolved=None if state is None else state.unresolved_count,
        lag_ms=measured_ms.get(shard_id, _max_lag_ms(state, now_ms)),
        lag_measured=shard_id in measured_ms,
    )


def _stream_line(
    lineage: ShardLineage, shard_id: str, _now_ms: int, _measured_ms: Mapping[str, int]
) -> ShardLine:
    shard = lineage.listed.get(shard_id)
    if shard is None:
        return ShardLine(shard_id=shard_id, state=ShardPhase.PAST.value)
    state = "closed" if shard.is_closed else "open"
    return ShardLine(
        shard_id=shard_id,
        state=state,
        parents=lineage.parents(shard_id),
        hash_keys=shard.hash_key_range,
    )


def _max_lag_ms(state: ShardState | None, now_ms: int) -> int | None:
    """An upper bound of the lag: the time since `verified_until_ms`, before which nothing was
    missed.
    """
    if state is None or state.end_was_read or state.verified_until_ms is None:
        return None
    return max(0, now_ms - state.verified_until_ms)


def shard_tree(title: str, lines: Sequence[ShardLine], *, is_narrow: bool = False) -> Tree:
    """The lines as a tree: a child below its parent, or below the first of its two parents.

    `lines`: parents before children, as `shard_lines` gives them. `title` is plain text.
    `is_narrow`: the application's progress stands on a line of its own, in fewer digits.
    """
    tree = Tree(f"[bold]{escape(title)}[/]")
    branches: dict[str, Tree] = {}
    for line in lines:
        above = next((parent for parent in line.parents if parent in branches), None)
        label = _two_lines(line, above) if is_narrow else "  ".join(_parts(line, above))
        branch = (tree if above is None else branches[above]).add(label)
        if line.shard_id is not None:
            branches[line.shard_id] = branch
    return tree


def _parts(line: ShardLine, above: str | None) -> Iterator[str]:
    yield from _about(line, above, _names)
    if line.read_position is not None:
        yield f"read {escape(shortened(line.read_position))}"
        yield f"checkpoint {escape(shortened(line.checkpoint or 'none'))}"
        yield f"{line.unresolved or 0} unresolved"
        yield f"lag {_lag(line, 'at most ')}"


def _two_lines(line: ShardLine, above: str | None) -> str:
    about = [*_about(line, above, lambda names: _names(map(short_shard, names)))]
    if line.unresolved:
        about.append(f"{line.unresolved} unresolved")
    lines = ["  ".join(about)]
    if line.read_position is not None:
        lines.append(
            f"read {escape(brief(line.read_position))}  "
            f"checkpoint {escape(brief(line.checkpoint or 'none'))}  lag {_lag(line, '<')}"
        )
    return "\n".join(lines)


def _about(
    line: ShardLine, above: str | None, named: Callable[[Iterable[str]], str]
) -> Iterator[str]:
    if line.shard_id is None:
        first, last = line.hash_keys or (0, 0)
        yield _coloured(
            line.state,
            f"hole: no open shard covers the hash keys {first} to {last}, {_percent(line)}",
        )
        return
    yield escape(line.shard_id)
    yield _coloured(line.state, line.state)
    if line.hash_percent is not None:
        yield _percent(line)
    if others := [parent for parent in line.parents if parent != above]:
        yield f"also of {named(others)}"
    if line.waits_for:
        yield _coloured(line.state, f"for {named(line.waits_for)}")


def _coloured(state: str, text: str) -> str:
    return f"[{_COLOURS.get(state, 'dim')}]{escape(text)}[/]"


def _names(shard_ids: Iterable[str]) -> str:
    return escape(" and ".join(shard_ids))


def _percent(line: ShardLine) -> str:
    return f"{line.hash_percent or 0:.4g} %"


def _lag(line: ShardLine, at_most: str) -> str:
    if line.lag_ms is None:
        return "-"
    seconds = line.lag_ms / 1000
    text = (
        f"{seconds:.1f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7_200
        else f"{seconds / 3600:.1f} h"
    )
    return text if line.lag_measured else f"{at_most}{text}"
