"""What each decoder of GetRecords bodies promises: those in Python, and the native one before them.

Each body is given in JSON or in CBOR, with what it is read as. `taken`: the native decoder reads it
itself; it leaves all others to the decoders in Python, so that both give the same page, or the same
error.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import cbor2
import pytest

from kinesis_spout.errors import MalformedResponseError
from kinesis_spout.service.get_records_cbor import decode_get_records_cbor
from kinesis_spout.service.get_records_decoder import EVENT, decode_get_records
from kinesis_spout.service.native_decoder import decode_natively
from state.sequence_number import SequenceNumber
from tests.support.shell.tools import NATIVE_DECODER, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from kinesis_spout.service.get_records_decoder import DecodedPage

    Decode = Callable[[bytes, bool], DecodedPage]

HUGE = bytes(range(256)) * 40_960  # 10 MiB, the largest record there is
TIME = "ApproximateArrivalTimestamp"
RECORD = {
    "SequenceNumber": "49590338271490256608559692538361571095921575989136588898",
    "ApproximateArrivalTimestamp": 1_718_000_000.123,
    "Data": b"payload",
    "PartitionKey": "carrier-17",
    "EncryptionType": "NONE",
}
NULLS = {"SequenceNumber": "7", "Data": None, "PartitionKey": None}


@dataclass(frozen=True)
class Case:
    """`records`: key, payload and arrival (ms) of each. `rest`: other fields of the page."""

    name: str
    body: bytes
    records: list[tuple[str | None, bytes | None, int | None]]
    rest: dict[str, Any]
    is_cbor: bool = False
    taken: bool = True


def in_json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, default=lambda data: base64.b64encode(data).decode()).encode()


def in_cbor(body: dict[str, Any]) -> bytes:
    records = [
        record | ({TIME: round(record[TIME] * 1000)} if TIME in record else {})
        for record in body["Records"]
    ]
    return cbor2.dumps(body | {"Records": records})


def both(
    name: str, body: dict[str, Any], *expected: Any, rest: dict[str, Any], taken: bool = True
) -> list[Case]:
    return [
        Case(f"{name}, {encoding}", encode(body), list(expected), rest, encoding == "cbor", taken)
        for encoding, encode in (("json", in_json), ("cbor", in_cbor))
    ]


def written(key: str, more: str = "") -> bytes:
    record = f'{{"SequenceNumber":"1","Data":"YQ==","PartitionKey":{key}{more}}}'
    return f'{{"Records":[{record}]}}'.encode()


FOUND = ("carrier-17", b"payload", 1_718_000_000_123)
NO_REST: dict[str, Any] = {"millis_behind_latest": None, "next_iterator": None}
A = ("a", b"a", None)
READ = [
    *both(
        "a page",
        {"Records": [RECORD] * 3, "NextShardIterator": "AAA", "MillisBehindLatest": 17},
        *[FOUND] * 3,
        rest={"millis_behind_latest": 17, "next_iterator": "AAA"},
    ),
    *both("an empty page", {"Records": [], "NextShardIterator": "A"}, rest={"next_iterator": "A"}),
    *both("no lag", {"Records": [RECORD]}, FOUND, rest=NO_REST),
    *both("nulls", {"Records": [NULLS]}, (None, None, None), rest=NO_REST),
    *both(
        "child shards",
        {"Records": [RECORD], "ChildShards": [{"ShardId": "s", "ParentShards": ["p"]}]},
        FOUND,
        rest=NO_REST,
        taken=False,
    ),
    *both(
        "a huge record",
        {"Records": [RECORD | {"Data": HUGE}, RECORD]},
        ("carrier-17", HUGE, 1_718_000_000_123),
        FOUND,
        rest=NO_REST,
    ),
    *both("an unknown field", {"Records": [RECORD], "New": {"a": [1]}}, FOUND, rest=NO_REST),
    Case(
        "indefinite lengths of containers",
        b"\xbf\x67Records\x9f\xbf\x6eSequenceNumber\x611\x64Data\x41a\x6cPartitionKey\x61a\xff\xff\xff",
        [A],
        NO_REST,
        is_cbor=True,
    ),
    Case(
        "indefinite lengths of strings",
        b"\xa1\x67Records\x81\xa3\x6eSequenceNumber\x611\x64Data\x5f\x41a\xff\x6cPartitionKey\x7f\x61a\xff",
        [A],
        NO_REST,
        is_cbor=True,
        taken=False,
    ),
    Case("a field twice", written('"b"', ',"PartitionKey":"a"'), [A], NO_REST, taken=False),
    Case("escapes", written(r'"\u00e9\n\ud83d\ude00\/"'), [("é\n😀/", b"a", None)], NO_REST),
    Case("an escape in a name", written('"a"', r',"\u0041":1'), [A], NO_REST, taken=False),
    Case("white space", b" " + written('"a"', ' , \n"B" : [ ] ') + b"\r\n\t", [A], NO_REST),
]
# fmt: off
REFUSED = {
    "no body": b"",
    "invalid UTF-8 in a key": written('"%s"').replace(b"%s", b"\xff\xfe"),
    "an overlong NUL": written('"%s"').replace(b"%s", b"\xc0\x80"),
    "half of a surrogate pair": written(r'"\ud83d"'),
    "a control character": written('"\n"'),
    "trailing bytes": written('"a"') + b"x",
    "a second answer": written('"a"') * 2,
    "base64 without its end": written('"a"').replace(b"YQ==", b"YQ="),
    "base64 of another alphabet": written('"a"').replace(b"YQ==", b"_-=="),
    "a time of another planet": written('"a"', ',"ApproximateArrivalTimestamp":1e300'),
    "a list": b"[]",
    "no records": b'{"message":"hello from a proxy"}',
    "records that are null": b'{"Records":null}',
    "records that are a map": b'{"Records":{}}',
    "HTML": b"<html>502</html>",
    "a record without a number": written('"a"').replace(b"SequenceNumber", b"Number"),
    "a number below zero": written('"a"').replace(b'"1"', b'"-1"'),
    "base64 of a secret, cut off": written('"secret"').replace(b"YQ==", b"dG9wLXNlY3JldA"),
    "a time that is none": written('"a"', f',"{TIME}":"tomorrow"'),
}
ONE = in_cbor({"Records": [RECORD]})
REFUSED_CBOR = {
    "no body": b"",
    "invalid UTF-8": ONE.replace(b"carrier", b"c\xffrrier"),
    "an endless string": ONE.replace(b"\x47payload", b"\x5b" + b"\xff" * 8),
    "more records than there are": in_cbor({"Records": []}).replace(b"\x80", b"\x9b" + b"\xff" * 8),
    "a list": b"\x80",
    "no records": cbor2.dumps({"message": "hello from a proxy"}),
    "a bare break": b"\xff",
    "a number that is none": in_cbor({"Records": [RECORD | {"SequenceNumber": "one"}]}),
    "a time that is a text": cbor2.dumps({"Records": [RECORD | {TIME: "yesterday"}]}),
    "times of another planet": cbor2.dumps({"Records": [RECORD | {TIME: 2**60}] * 500}),
    "a key that is a number": in_cbor({"Records": [RECORD] * 500 + [RECORD | {"PartitionKey": 7}]}),
}
# fmt: on


def decoded_in_python(body: bytes, *, is_cbor: bool) -> DecodedPage:
    return decode_get_records_cbor(body) if is_cbor else decode_get_records(body)


@pytest.fixture(params=["python", "native", "native, as lists"])
def decode(request: pytest.FixtureRequest) -> Decode:
    if request.param == "python":
        return lambda body, is_cbor: decoded_in_python(body, is_cbor=is_cbor)
    NATIVE_DECODER.path()
    as_lists = request.param != "native"
    return lambda body, is_cbor: (
        decode_natively(body, is_cbor=is_cbor, as_lists=as_lists)
        or decoded_in_python(body, is_cbor=is_cbor)
    )


@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_a_page_is_read(decode: Decode, case: Case) -> None:
    page = decode(case.body, case.is_cbor)
    page.records.validate(full=True)
    table = page.records.to_pydict()
    times = table["approximateArrivalTimestamp"]
    arrivals = [time and round(time.timestamp() * 1000) for time in times]
    assert list(zip(table["partitionKey"], table["data"], arrivals, strict=True)) == case.records
    assert {name: getattr(page, name) for name in case.rest} == case.rest
    assert page.count == len(case.records)
    assert [str(end) for end in (page.first, page.last) if end] == [
        table["sequenceNumber"][at] for at in (0, -1) if table["sequenceNumber"]
    ]


@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_the_native_decoder_takes_what_the_service_sends(case: Case) -> None:
    NATIVE_DECODER.path()
    assert (decode_natively(case.body, is_cbor=case.is_cbor) is not None) is case.taken


@pytest.mark.parametrize(
    ("body", "is_cbor"),
    [
        *(pytest.param(body, False, id=f"{name}, json") for name, body in REFUSED.items()),
        *(pytest.param(body, True, id=f"{name}, cbor") for name, body in REFUSED_CBOR.items()),
    ],
)
def test_a_malformed_body_is_an_error(
    decode: Decode,
    body: bytes,
    is_cbor: bool,  # noqa: FBT001  # a parameter
) -> None:
    """As a whole: half a page would silently lose the other half, and a proxy's answer would look
    like an empty page at the shard's end. The error holds none of the data.
    """
    said = "GetRecords response cannot be read" + (" as CBOR" if is_cbor else "")
    with pytest.raises(MalformedResponseError, match=said) as caught:
        decode(body, is_cbor)
    assert "secret" not in str(caught.value)
    assert "dG9w" not in str(caught.value)


@pytest.mark.parametrize("encode", [in_json, in_cbor])
def test_a_body_that_ends_early_is_an_error(
    decode: Decode, encode: Callable[[dict[str, Any]], bytes]
) -> None:
    """Wherever it ends: half a page would silently lose the other half."""
    body = encode({"Records": [RECORD, NULLS], "NextShardIterator": "A", "MillisBehindLatest": 1})
    for end in range(len(body)):
        with pytest.raises(MalformedResponseError):
            decode(body[:end], encode is in_cbor)


def test_memory_is_used_again_only_when_nobody_holds_a_part_of_it() -> None:
    """A slice, a column, or the memory of one keep the page as it is."""
    NATIVE_DECODER.path()

    def page(payload: bytes) -> pa.RecordBatch:
        body = in_cbor({"Records": [RECORD | {"Data": payload}] * 500})
        decoded = decode_natively(body, is_cbor=True)
        assert decoded is not None
        return decoded.records

    def payloads_at(records: pa.RecordBatch) -> int:
        address: int = records.column("data").buffers()[2].address
        return address

    first = page(b"first")
    part, column, address = first.slice(1, 2), first.column("data"), payloads_at(first)
    del first
    assert payloads_at(page(b"other")) != address
    assert part.column("data").to_pylist() == [b"first"] * 2
    del part
    assert payloads_at(page(b"other")) != address
    assert column.to_pylist() == [b"first"] * 500
    del column
    pages = [page(b"other") for _ in range(3)]
    assert address in map(payloads_at, pages)


@pytest.mark.parametrize("continuation", ["7", None, "x"])
def test_an_event_of_a_subscription_says_where_the_next_one_continues(
    continuation: str | None,
) -> None:
    """With a number that is none, the event is an error in Python."""
    NATIVE_DECODER.path()
    event = in_json({"Records": [RECORD], "ContinuationSequenceNumber": continuation})
    found = decode_natively(event, is_cbor=False)
    if continuation == "x":
        assert found is None
        with pytest.raises(MalformedResponseError, match="SubscribeToShard event"):
            decode_get_records(event, what=EVENT)
        return
    assert found is not None
    for page in (found, decode_get_records(event)):
        assert page.records.column("data").to_pylist() == [b"payload"]
        assert page.continuation == (continuation and SequenceNumber.parse(continuation))


def test_records_are_handed_over_once() -> None:
    """Two owners of one memory would both release it. Capsules that nobody takes release it,
    too.
    """
    NATIVE_DECODER.path()
    native: Any = import_module("kinesis_spout_native")
    page = native.decode(in_cbor({"Records": [RECORD]}), is_cbor=True)
    schema, array = page.__arrow_c_array__()
    with pytest.raises(ValueError, match="handed over"):
        page.__arrow_c_array__()
    del schema, array
    assert native.decode(memoryview(in_json({"Records": []})), is_cbor=False).count == 0
    with pytest.raises(BufferError, match="not contiguous"):
        native.decode(memoryview(b"abcd")[::2], is_cbor=False)


_WITHOUT = """
import logging, sys, types
from concurrent.futures import ThreadPoolExecutor
from kinesis_spout.clock import SystemClock
from kinesis_spout.service.wire import RAW_BODY, Wire

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
sys.modules["kinesis_spout_native"] = MODULE
wires = [Wire("json", clock=SystemClock()) for _ in range(8)]
with ThreadPoolExecutor(8) as threads:
    pages = list(threads.map(lambda wire: wire.decode({RAW_BODY: b'{"Records": []}'}), wires * 9))
print(len(pages), sum(page.count for page in pages))
"""


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("None", "kinesis_spout_native cannot be imported (import of kinesis_spout_native halted"),
        ("types.SimpleNamespace(INTERFACE=0)", "the installed kinesis_spout_native does not match"),
    ],
)
def test_without_the_native_decoder_one_line_of_the_log_says_so(module: str, reason: str) -> None:
    """At INFO, in each process, whichever of its threads and connections is first. Pages are read
    all the same.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _WITHOUT.replace("MODULE", module)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    line, counts = ended.stdout.splitlines()
    assert line.startswith(f"INFO {reason}")
    assert line.endswith("run pip install ./native in a checkout")
    assert counts == "72 0"
