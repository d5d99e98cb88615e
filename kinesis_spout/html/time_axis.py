"""Round times for an axis, and their names."""

from __future__ import annotations

from math import floor, log10
from typing import NamedTuple

MAX_TICKS = 10
SHORTEST_S = 1e-6  # no clock tells times apart that are closer
_STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


class Tick(NamedTuple):
    at_s: float
    name: str


def ticks(span_s: float) -> list[Tick]:
    """Round times from 0 to `span_s`, both inclusive, at most `MAX_TICKS` and one."""
    if span_s < SHORTEST_S:
        return [Tick(0.0, "0")]
    step_s = _step(span_s / MAX_TICKS)
    last = floor(span_s / step_s + 1e-9)
    times = (min(index * step_s, span_s) for index in range(last + 1))
    return [Tick(at_s, _name(at_s, step_s)) for at_s in times]


def _step(least_s: float) -> float:
    if least_s > 30:
        named = next((one for one in _STEPS_S if one >= least_s), None)
        return named or _DAY_S * _decimal(least_s / _DAY_S)
    return 15.0 if 10 < least_s <= 15 else 30.0 if least_s > 15 else _decimal(least_s)


def _decimal(least: float) -> float:
    """The next number of 1, 2, 5, 10, 20, 50 ..."""
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999999)


def _name(at_s: float, step_s: float) -> str:
    if step_s < 1:
        digits = -floor(log10(step_s) + 1e-9)
        return f"{at_s:.{digits}f} s" if at_s else "0"
    return _whole_name(round(at_s), step_s) if at_s else "0"


def _whole_name(whole: int, step_s: float) -> str:
    if step_s >= _DAY_S:
        return f"{whole // _DAY_S} d"
    if whole >= _HOUR_S:
        hours, minutes = whole // _HOUR_S, whole % _HOUR_S // _MINUTE_S
        return f"{hours}:{minutes:02} h" if minutes else f"{hours} h"
    if whole < _MINUTE_S:
        return f"{whole} s"
    minutes, rest = divmod(whole, _MINUTE_S)
    return f"{minutes}:{rest:02} min" if rest else f"{minutes} min"
