"""Stored samples of reports."""

from __future__ import annotations

from state.codec.reports import decode_header, decode_report

PATH = "/root/app/stream/batches/1-ab/report"


def test_a_report_of_a_version_that_said_whole_of_nothing_is_of_whole_records() -> None:
    """It is settled after an update, when its batch was cut off before it."""
    of_earlier = (
        b'{"token":"t","status":"done","report":{"failed":2},"outcomes":{"shards":[{"shardId":"s",'
        b'"unresolved":[["13",1,9],["14.4",2,9]]}]%s},"format":1}'
    )
    for rest, expected in ((b"", [True, False]), (b',"userRecords":true', [False, False])):
        header = decode_header(of_earlier % rest, PATH)
        (shard,) = decode_report(header, [], PATH).shards
        assert [one.whole for one in shard.unresolved] == expected
