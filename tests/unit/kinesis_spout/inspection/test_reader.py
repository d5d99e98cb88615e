"""A look at an application whose stream is not there any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import StreamNotFoundError
from kinesis_spout.inspection.reader import read_snapshot
from kinesis_spout.testing.service import requests
from tests.support.simulated.simulated_driver import next_plan, one_batch
from tests.support.simulated.simulated_job import STREAM

if TYPE_CHECKING:
    from tests.support.simulated.simulated_job import SimulatedJob


def test_a_stream_that_was_deleted_is_told_from_one_that_never_was(one: SimulatedJob) -> None:
    """The application's state says that it was there."""
    one.put(3)
    driver = one.coordinator()
    one_batch(one, driver, "", next_plan(driver))
    with one.fake.lock:
        one.fake.delete_stream(requests.DeleteStream(stream_name=STREAM))
    one.clock.advance(60)
    client = one.services(one.settings()).client
    with pytest.raises(StreamNotFoundError, match=r"application app has state .* it was deleted"):
        read_snapshot(client, one.store(), application="app", clock=one.clock)
    with pytest.raises(StreamNotFoundError, match="check the stream's name"):
        read_snapshot(client, None, application="app", clock=one.clock)
