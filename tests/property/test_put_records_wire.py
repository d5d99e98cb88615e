"""The body of PutRecords holds what was to be put, and an answer is read as it was written."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.service.put_records_wire import Entry, request_body

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)
HASH_KEYS = st.none() | st.integers(0, 2**128 - 1).map(str)


@given(st.lists(st.tuples(st.binary(max_size=200), KEYS, HASH_KEYS), max_size=20))
def test_the_body_gives_back_data_keys_and_hash_keys(
    records: list[tuple[bytes, str, str | None]],
) -> None:
    """Also keys with quotes, control characters and characters beyond ASCII."""
    body = json.loads(request_body({"StreamName": "s"}, [Entry(*record) for record in records]))
    assert body["StreamName"] == "s"
    found = [
        (base64.b64decode(one["Data"]), one["PartitionKey"], one.get("ExplicitHashKey"))
        for one in body["Records"]
    ]
    assert found == records
    assert all("ExplicitHashKey" not in one or one["ExplicitHashKey"] for one in body["Records"])
