"""Which drills to run, from the names that a user gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinesis_spout.config import did_you_mean
from kinesis_spout.drills.scenarios import DRILLS
from kinesis_spout.drills.soak import SOAK, soak
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.drills.drill import Drill
    from kinesis_spout.drills.setting import Setting

ALL = "all"


def choose(
    names: Sequence[str], setting: Setting, *, minutes: float
) -> tuple[list[Drill], list[ConfigError]]:
    """The drills of these names, each once; and why drills of `all` are left out. `minutes`: how
    long a soak disturbs.

    Raises `ConfigError` for an unknown name, and for a drill that is not possible in this setting.
    """
    chosen: dict[str, Drill] = {}
    left_out = []
    drills = DRILLS | {SOAK: soak(setting, minutes)}
    for name in names:
        if name not in drills and name != ALL:
            hint = did_you_mean(name, [*DRILLS, ALL, SOAK], "list the drills with --list")
            raise ConfigError(f"there is no drill {name!r}", hint)
        wanted = [one for one in drills.values() if one.of_all] if name == ALL else [drills[name]]
        for one in wanted:
            refusal = one.refusal(setting)
            if refusal is None:
                chosen[one.name] = one
            elif name == ALL:
                left_out.append(refusal)
            else:
                raise refusal
    return list(chosen.values()), left_out
