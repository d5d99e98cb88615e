"""Which drills to run, from the names that a user gave."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.config import nearest_name
from kinesis_spout.drills import random_soak
from kinesis_spout.drills.catalog import DRILLS
from kinesis_spout.drills.drill import Drilled, run_drill
from kinesis_spout.drills.soak import spout_soak
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kinesis_spout.drills.drill import Drill
    from kinesis_spout.drills.world.setting import Setting

ALL, SOAK = "all", random_soak.NAME


class Chosen(NamedTuple):
    """A drill, or a soak. `run` gets a directory for its files, and a function that shows a
    sentence; it blocks, and raises `DrillError`, `KinesisError` or `StateError`.
    """

    name: str
    sentence: str
    run: Callable[[Path, Callable[[str], object]], Drilled]


class Choice(NamedTuple):
    """`left_out`: why drills of `all` are not among the chosen."""

    chosen: list[Chosen]
    left_out: list[str]


def choose(names: Sequence[str], setting: Setting, *, minutes: float) -> Choice:
    """The drills of these names, each once. `minutes`: how long a soak disturbs.

    Raises `ConfigError` for an unknown name, and for a drill that is not possible in this setting.
    """
    chosen: dict[str, Chosen] = {}
    left_out = []
    for name in names:
        if name == SOAK:
            chosen[SOAK] = _soak(setting, minutes)
        elif name == ALL:
            for one in DRILLS.values():
                if one.of_all and (refusal := one.refusal(setting)) is None:
                    chosen[one.name] = _drill(one, setting)
                elif one.of_all and refusal is not None:
                    left_out.append(str(refusal))
        else:
            one = _named(name)
            if refusal := one.refusal(setting):
                raise refusal
            chosen[name] = _drill(one, setting)
    return Choice(list(chosen.values()), left_out)


def _named(name: str) -> Drill:
    if name not in DRILLS:
        nearest = nearest_name(name, [*DRILLS, ALL, SOAK])
        hint = f"did you mean {nearest}?" if nearest else "see all with --list"
        raise ConfigError(f"there is no drill {name!r}", hint)
    return DRILLS[name]


def _drill(one: Drill, setting: Setting) -> Chosen:
    return Chosen(one.name, one.sentence, partial(run_drill, one, setting))


def _soak(setting: Setting, minutes: float) -> Chosen:
    """The standalone spout has a soak of its own, with a process that is never killed, where our
    own Kinesis can forget old shards.
    """
    is_spouts = setting.spout and setting.is_fake and not setting.ensemble
    run = spout_soak if is_spouts else random_soak.run_soak
    return Chosen(
        SOAK, f"disturbs the job at random for {minutes:g} minutes", partial(run, setting, minutes)
    )
