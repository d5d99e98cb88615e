"""The export's document."""

from __future__ import annotations

import json

import pytest

from state.codec.exported import ExportedApplication, decode_export, encode_export
from state.errors import StoredDataError
from state.position import TRIM_HORIZON
from state.shard_state import ShardState

EXPORTED = ExportedApplication(
    application="etl",
    exported_ms=5,
    states=(ShardState(shard_id="shardId-000000000001", read_position=TRIM_HORIZON),),
)


def test_what_there_is_not_is_left_out() -> None:
    """The parts are what the znodes hold."""
    assert json.loads(encode_export(EXPORTED)) == {
        "format": 1,
        "application": "etl",
        "exportedMs": 5,
        "states": {"shardId-000000000001": {"readPosition": "TRIM_HORIZON", "format": 1}},
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "file has format 2, written by a newer version"),
        ({"format": 0}, "file has format 0, which never was"),
        ({"application": 1}, "file holds .* which is not a checkpoint export"),
        ({"states": {"s": {"format": 9}}}, "file: s has format 9, written by a newer version"),
        ({"start": {}}, "file: start holds"),
    ],
)
def test_damaged_and_newer_documents_are_refused(change: dict[str, object], said: str) -> None:
    """The error names the file, and the part."""
    document = json.loads(encode_export(EXPORTED)) | change
    with pytest.raises(StoredDataError, match=said):
        decode_export(json.dumps(document).encode(), "file")
