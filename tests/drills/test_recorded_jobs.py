"""Spark jobs make the calls that their permissions name, and no other.

botocore tells of every call of every process, Spark's workers included. Other uses are in
`tests/integration/service/test_recorded_calls.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.service.permissions import Use
from tests.support.kinesis.recorded_calls import allowed
from tests.support.kinesis.services import (
    fields_of,
    options_of,
    words_of,
)
from tests.support.shell.command_line import run_cli
from tests.support.spark import executors_elsewhere
from tests.support.spark.job_process import ROOT, JobProcess
from tests.support.spark.session import COMMAND_OPTIONS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kinesis.recorded_calls import RecordedCalls
    from tests.support.kinesis.services import ServedFake

pytestmark = pytest.mark.spark


def test_a_job_reads_dead_letters_and_writes_each_with_its_own_policy(
    fake_kinesis: ServedFake,
    zookeeper_chroot: str,
    tmp_path: Path,
    recorded_calls: RecordedCalls,
) -> None:
    """One of the payloads is larger than every stream takes."""
    for name in ("orders", "letters", "copies"):
        fake_kinesis.model.create(name, max_record_kib=2048)
    for data in (b"small", bytes(1_200_000)):
        fake_kinesis.model.put("orders", "key", data)
    where = {
        **fields_of(fake_kinesis.endpoint_url),
    }
    job = JobProcess(
        {
            "source": where
            | {
                "stream": "orders",
                "application": "etl",
                "zookeeper": zookeeper_chroot,
                "starting_position": "TRIM_HORIZON",
            },
            "letters": where | {"payload_only": True},
            "poison": "",
            "sink": options_of(fake_kinesis.endpoint_url) | {"streamName": "copies"},
            "directory": str(tmp_path),
        },
        tmp_path,
        program=executors_elsewhere.__file__,
        env={"PYTHONPATH": f"{recorded_calls.folder}:{ROOT}"},
    )
    job.start()
    assert job.wait() == 0, job.tail()
    by_stream = {
        Use.READ: "orders",
        Use.DEAD_LETTERS: "letters",
        Use.SINK: "copies",
    }
    # A call with an iterator alone names no stream.
    nameless = {"kinesis:GetRecords"}
    called = {use: recorded_calls.actions(stream=name) for use, name in by_stream.items()}
    assert recorded_calls.actions(stream="") == nameless
    assert called == {use: allowed(use) - nameless for use in by_stream}


def test_a_redrive_only_puts(
    fake_kinesis: ServedFake, tmp_path: Path, recorded_calls: RecordedCalls
) -> None:
    fake_kinesis.model.create("orders")
    folder = tmp_path / "dead"
    folder.mkdir()
    letter = {
        "messageId": "shardId-000000000000:1000:4",
        "streamName": "orders",
        "shardId": "shardId-000000000000",
        "sequenceNumber": "1000",
        "subSequenceNumber": 0,
        "partitionKey": "key",
        "data": "b25l",
        "attempts": 4,
        "firstFailure": "2026-01-02T03:04:05.678901Z",
        "lastFailure": "2026-01-02T04:04:05.678901Z",
        "reason": "it failed",
        "application": "etl",
    }
    (folder / "letters.json").write_text(json.dumps(letter) + "\n")
    ended = run_cli(
        *("redrive", "dead", "--format", "json", "--yes"),
        *(*words_of(fake_kinesis.endpoint_url), *COMMAND_OPTIONS),
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    assert recorded_calls.actions() == allowed(Use.REDRIVE)
