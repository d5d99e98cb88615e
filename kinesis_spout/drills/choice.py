"""Which drills to run, from the names that a user gave."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.config import did_you_mean
from kinesis_spout.drills.drill import Drilled, run_drill
from kinesis_spout.drills.scenarios import DRILLS
from kinesis_spout.drills.soak import SOAK, random_soak, spout_soak
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kinesis_spout.drills.setting import Setting

ALL = "all"


class Chosen(NamedTuple):
    """A drill, or a soak. `run` gets a directory for its files, and a function that shows a
    sentence; it blocks, and raises `DrillError`, `KinesisError` or `StateError`.
    """

    name: str
    sentence: str
    run: Callable[[Path, Callable[[str], object]], Drilled]


def choose(
    names: Sequence[str], setting: Setting, *, minutes: float
) -> tuple[list[Chosen], list[ConfigError]]:
    """The drills of these names, each once; and why drills of `all` are left out. `minutes`: how
    long a soak disturbs.

    Raises `ConfigError` for an unknown name, and for a drill that is not possible in this setting.
    """
    chosen: dict[str, Chosen] = {}
    left_out = []
    for name in names:
        if name == SOAK:
            # The spout has a soak of its own, with a process that is never killed, where our own
            # Kinesis can forget old shards.
            is_spouts = setting.spout and setting.is_fake and not setting.ensemble
            soak = partial(spout_soak if is_spouts else random_soak, setting, minutes)
            chosen[SOAK] = Chosen(SOAK, f"disturbs the job at random for {minutes:g} minutes", soak)
            continue
        if name not in DRILLS and name != ALL:
            hint = did_you_mean(name, [*DRILLS, ALL, SOAK], "see all with --list")
            raise ConfigError(f"there is no drill {name!r}", hint)
        wanted = [one for one in DRILLS.values() if one.of_all] if name == ALL else [DRILLS[name]]
        for one in wanted:
            refusal = one.refusal(setting)
            if refusal is None:
                chosen[one.name] = Chosen(one.name, one.sentence, partial(run_drill, one, setting))
            elif name == ALL:
                left_out.append(refusal)
            else:
                raise refusal
    return list(chosen.values()), left_out
