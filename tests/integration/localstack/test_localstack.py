"""LocalStack's pip runtime: on loopback only, and seeded."""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

import pytest

from localstack import seed
from tests.support.kinesis.services import kinesis_client

pytestmark = [pytest.mark.emulator, pytest.mark.localstack]


def test_nobody_else_on_the_network_reaches_it(localstack_endpoint: str) -> None:
    """It accepts any credentials. On every interface it would also hold 127.0.0.2, and the port
    could not be bound there.
    """
    port = urlsplit(localstack_endpoint).port
    with socket.socket() as elsewhere:
        elsewhere.bind(("127.0.0.2", port))


def test_the_seed_script_puts_records_before_and_after_a_split(
    localstack_endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice on one stream: the second run finds it and adds to it."""
    name = f"seeded-{time.time_ns()}"
    where = ["--endpoint", localstack_endpoint, "--stream", name]
    arguments = [*where, "--shards", "1", "--records", "20", "--split"]
    assert seed.main(arguments) == 0
    assert "shardId-000000000000 is split" in capsys.readouterr().out
    assert seed.main(arguments) == 0
    with kinesis_client(localstack_endpoint) as client:
        shards = client.list_shards(StreamName=name)["Shards"]
        assert sum("EndingSequenceNumber" in one["SequenceNumberRange"] for one in shards) == 2
        assert len(shards) == 5
        client.delete_stream(StreamName=name)
