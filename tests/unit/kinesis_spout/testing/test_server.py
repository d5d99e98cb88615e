"""FakeKinesis behind its protocol: JSON, credentials, faults, HTTP; and the events of
SubscribeToShard, as boto3 reads them.
"""

from __future__ import annotations

import json
from contextlib import closing
from http.client import HTTPConnection, IncompleteRead
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing import (
    FakeKinesisProtocol,
    TransportFaultError,
    timeout,
    truncate,
)
from tests.support.kinesis.fake_calls import SHARD, STREAM, new_fake

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake

TARGET = "Kinesis_20131202."


def call(
    protocol: FakeKinesisProtocol, operation: str, **members: Any
) -> tuple[int, dict[str, Any]]:
    answer = protocol.answer(TARGET + operation, json.dumps(members).encode(), authorization=None)
    return answer.status, json.loads(answer.body or b"{}")


@pytest.mark.parametrize("processed", [True, False])
def test_a_timeout_takes_its_time_and_gives_no_answer(processed: bool) -> None:  # noqa: FBT001  # pytest's way
    """The plan says whether the put is processed."""
    fake, clock = new_fake()
    protocol = FakeKinesisProtocol(fake)
    fake.faults.add(timeout(30, processed=processed), operation="PutRecord")
    with pytest.raises(TransportFaultError):
        call(protocol, "PutRecord", StreamName=STREAM, PartitionKey="key", Data="eA==")
    assert clock.monotonic_s() == 30
    assert len(fake.records(STREAM, SHARD)) == int(processed)


def test_an_answer_that_breaks_off_has_a_part_of_its_body(fake_kinesis: ServedFake) -> None:
    """The headers promise all of it. The next request gets a whole answer."""
    fake_kinesis.model.create("orders")
    fake_kinesis.model.faults.add(truncate())
    with closing(
        HTTPConnection(fake_kinesis.endpoint_url.removeprefix("http://"), timeout=5)
    ) as connection:
        asked = {"X-Amz-Target": TARGET + "ListStreams"}
        connection.request("POST", "/", body=b"{}", headers=asked)
        with pytest.raises(IncompleteRead) as broken:
            connection.getresponse().read()
        assert broken.value.partial
        connection.close()
        connection.request("POST", "/", body=b"{}", headers=asked)
        whole = connection.getresponse().read()
    assert whole == b'{"StreamNames":["orders"],"HasMoreStreams":false}'
    assert whole.startswith(broken.value.partial)
    assert len(broken.value.partial) < len(whole)
