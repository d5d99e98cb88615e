"""The shards as a tree on the screen: children below their parent, and below the first one where
there are two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.tree import Tree

from kinesis_spout.cli.shard_report import HOLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kinesis_spout.cli.shard_report import ShardLine

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
_SHOWN_DIGITS = (
    12  # of a sequence number's 56: shards differ, and records of a shard, in the last ones
)


def shard_tree(title: str, lines: Sequence[ShardLine]) -> Tree:
    """`lines` with parents before children, as `shard_lines` gives them; `title` is plain text."""
    tree = Tree(f"[bold]{escape(title)}[/]")
    branches: dict[str, Tree] = {}
    for line in lines:
        above = next((parent for parent in line.parents if parent in branches), None)
        branch = (tree if above is None else branches[above]).add("  ".join(_parts(line, above)))
        if line.shard_id is not None:
            branches[line.shard_id] = branch
    return tree


def _parts(line: ShardLine, above: str | None) -> Iterator[str]:
    if line.shard_id is None:
        first, last = line.hash_keys or (0, 0)
        yield _coloured(
            line.state,
            f"hole: no open shard takes the hash keys {first} to {last}, {_percent(line)}",
        )
        return
    yield escape(line.shard_id)
    yield _coloured(line.state, line.state)
    if line.hash_percent is not None:
        yield _percent(line)
    if others := [parent for parent in line.parents if parent != above]:
        yield f"also of {_names(others)}"
    if line.waits_for:
        yield _coloured(line.state, f"for {_names(line.waits_for)}")
    if line.read_position is not None:
        yield f"read {_shortened(line.read_position)}"
        yield f"checkpoint {_shortened(line.checkpoint or 'none')}"
        yield f"{line.unresolved or 0} unresolved"
        yield f"lag {_lag(line)}"


def _coloured(state: str, text: str) -> str:
    return f"[{_COLOURS.get(state, 'dim')}]{escape(text)}[/]"


def _names(shard_ids: Iterable[str]) -> str:
    return escape(" and ".join(shard_ids))


def _percent(line: ShardLine) -> str:
    return f"{line.hash_percent or 0:.4g} %"


def _shortened(position: str) -> str:
    """A position with the end of its sequence number, which is what tells it from others."""
    kind, colon, number = position.rpartition(":")
    if not number.isdigit() or len(number) <= _SHOWN_DIGITS:
        return escape(position)
    return f"{kind}{colon}..{number[-_SHOWN_DIGITS:]}"


def _lag(line: ShardLine) -> str:
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
    return text if line.lag_measured else f"at most {text}"
