"""How much memory a task takes that reads records of 10 MiB."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_job.options import OPTIONS
from tests.support.kinesis import memory_of_reading
from tests.support.kinesis.large_records import MIB, largest
from tests.support.kinesis.services import fields_of

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake

MEMORY_OF_READING = Path(memory_of_reading.__file__)
ROOT = MEMORY_OF_READING.parents[3]


@pytest.mark.parametrize(
    ("kind", "wire_format"), [("source", "json"), ("source", "cbor"), ("batch", "json")]
)
def test_a_task_holds_some_of_them_however_many_it_reads(
    fake_kinesis: ServedFake, zookeeper_chroot: str, kind: str, wire_format: str
) -> None:
    """One task reads 64 of them from 8 shards. docs/operate.md says how much memory that takes."""
    model = fake_kinesis.model
    model.create("orders", shards=8, max_record_kib=10_240)
    payload = largest(0)
    for key in [key for key in map(str, range(8)) for _ in range(8)]:
        model.put("orders", key, payload, explicit_hash_key=int(key) * 2**125)
    fields: dict[str, object] = {
        **fields_of(fake_kinesis.endpoint_url),
        "reads_per_second": 1000,
        "read_bytes_per_second": "1GiB",
        "max_tasks": 1,
        "wire_format": wire_format,
    }
    if kind == "source":
        fields |= {
            "stream": "orders",
            "application": "large",
            "zookeeper": zookeeper_chroot,
            "starting_position": "TRIM_HORIZON",
            "max_bytes_per_task": "1GiB",
            "max_fetch_time": "1m",
        }
    else:
        fields = {OPTIONS[name].name: str(value) for name, value in fields.items()}
        fields["streamName"] = "orders"
    program = [sys.executable, str(MEMORY_OF_READING), kind, json.dumps(fields)]
    answer = json.loads(subprocess.check_output(program, cwd=ROOT, text=True))
    assert answer["read"] == 64 * len(payload)
    assert answer["risen"] < 500 * MIB
