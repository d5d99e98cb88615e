"""Spark jobs make the calls that their permissions name, and no other: each use on a service of its
own, which counts them. Other uses are in `tests/integration/service/test_recorded_calls.py`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.service.permissions import Use
from tests.support.kinesis.recorded_calls import ServedCalls, allowed
from tests.support.kinesis.services import fields_of, options_of, serve
from tests.support.spark import executors_elsewhere
from tests.support.spark.job_process import JobProcess

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def test_a_job_reads_dead_letters_and_writes_each_with_its_own_policy(
    zookeeper_chroot: str, tmp_path: Path
) -> None:
    """One of the payloads is larger than every stream takes."""
    streams = {Use.READ: "orders", Use.DEAD_LETTERS: "letters", Use.SINK: "copies"}
    with ExitStack() as stack:
        fakes = {use: stack.enter_context(serve()) for use in streams}
        for use, name in streams.items():
            fakes[use].model.create(name, max_record_kib=2048)
        for data in (b"small", bytes(1_200_000)):
            fakes[Use.READ].model.put("orders", "key", data)
        calls = {use: ServedCalls(fake) for use, fake in fakes.items()}
        url = {use: fake.endpoint_url for use, fake in fakes.items()}
        source = {
            "stream": "orders",
            "application": "etl",
            "zookeeper": zookeeper_chroot,
            "starting_position": "TRIM_HORIZON",
        }
        job = JobProcess(
            {
                "source": source | fields_of(url[Use.READ]),
                "letters": fields_of(url[Use.DEAD_LETTERS]) | {"payload_only": True},
                "poison": "",
                "sink": options_of(url[Use.SINK]) | {"streamName": "copies"},
                "directory": str(tmp_path),
            },
            tmp_path,
            program=executors_elsewhere.__file__,
        )
        job.start()
        assert job.wait() == 0, job.tail()
    assert {use: one.actions() for use, one in calls.items()} == {
        use: allowed(use) for use in streams
    }
