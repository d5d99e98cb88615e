"""The native decoder gives the pages that the decoders in Python give, or declines the body.

`make fuzz` runs the first property for an hour.
"""

from __future__ import annotations

import json
import struct
from operator import itemgetter
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinesis_spout.errors import MalformedResponseError
from kinesis_spout.service.get_records_decoder import DecodedPage
from kinesis_spout.service.native_decoder import decode_natively
from tests.contract.test_page_decoders import decoded_in_python
from tests.property.test_get_records import bodies, pages
from tests.support.shell.tools import NATIVE_DECODER

_NAMES = (
    *("SequenceNumber", "Data", "PartitionKey", "NextShardIterator", "MillisBehindLatest"),
    *("ChildShards", "Records", "ContinuationSequenceNumber"),
)
_TIME = "ApproximateArrivalTimestamp"
# What a decoder may take for something else.
_JSON_TOKENS = tuple(
    token.encode()
    for token in (
        *(f'"{name}"' for name in (*_NAMES, _TIME)),
        *("null", "true", "1", "-0", "1.5e3", "01", "1e400", "9" * 25, "[]", "{}", '""', "[[["),
        *('"a"', "\\u0041", "\\ud83d", "\\ude00", "\\x", "\\", '"', ",", ":", "{", "}", "=", "=="),
        *(" ", "\t", "QQ==", "QR==", "QQ=", "Q", "\x00", "\x7f", "\xff", "\ufeff", "é"),
    )
)
_CBOR_TOKENS = (
    *(bytes([0x60 + len(name)]) + name.encode() for name in _NAMES[:-1]),
    b"\x78\x1b" + _TIME.encode(),
    *(bytes([head]) for head in (0x00, 0x17, 0x18, 0x1B, 0x20, 0x3B, 0x40, 0x5F, 0x60, 0x7F, 0x80)),
    *(bytes([head]) for head in (0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xD8, 0xF4, 0xF6, 0xF7, 0xF9, 0xFA)),
    *(b"\xfb" + struct.pack(">d", time) for time in (float("nan"), float("inf"), 1e11, 1.5)),
    *(b"\x1b" + b"\xff" * 8, b"\x7b" + b"\xff" * 8, b"\xff", b"\xfe", b"\x9f\xff", b"\xbf\xff"),
    *(b"\x5f\x41a\xff", b"\x7f\x61a\xff", b"\xc1\xf6", b"\x61\xff", b"\xc2\x41\x01"),
)
_WHOLE = {False: bodies(), True: pages().map(itemgetter(0))}
_TOKENS = {False: _JSON_TOKENS, True: _CBOR_TOKENS}
either = pytest.mark.parametrize("is_cbor", [False, True], ids=["json", "cbor"])


@pytest.fixture(autouse=True, scope="module")
def native_decoder() -> None:
    NATIVE_DECODER.path()


def difference(body: bytes, *, is_cbor: bool) -> str | None:
    """How the native decoder's page, in Arrow or as lists, is not the one that the decoder in
    Python gives. None also for a body that it declines.
    """
    native = decode_natively(body, is_cbor=is_cbor)
    as_lists = decode_natively(body, is_cbor=is_cbor, as_lists=True)
    if native is None:
        return "it is taken as lists" if as_lists else None
    try:
        plain = decoded_in_python(body, is_cbor=is_cbor)
    except MalformedResponseError as exc:
        return f"it is refused in Python: {exc}"
    native.records.validate(full=True)
    if native.records.schema != plain.records.schema:
        return f"the schema is {native.records.schema}"
    if not native.records.equals(plain.records):
        return f"the records are {native.records.to_pylist()}, not the {plain.records}"
    if as_lists and as_lists.columns.lists() != plain.columns.lists():
        return f"the lists are {as_lists.columns.lists()}"
    for page in (native, as_lists or native):
        for name in DecodedPage.__dataclass_fields__.keys() - {"columns"}:
            ours, theirs = getattr(page, name), getattr(plain, name)
            if ours != theirs:
                return f"{name} is {ours!r}, not {theirs!r}"
    return None


@either
@given(data=st.data())
def test_a_body_that_it_takes_is_the_same_page_in_python(
    data: st.DataObject,
    is_cbor: bool,  # noqa: FBT001  # a parameter
) -> None:
    """Whole bodies in any form, ones with several faults, and noise. A body that is refused in
    Python is never taken, so the error is the same one.
    """
    whole = _WHOLE[is_cbor]
    body = data.draw(st.one_of(whole, whole, whole, st.binary(max_size=60)))
    for _ in range(data.draw(st.integers(0, 4))):
        body = data.draw(damaged(body, _TOKENS[is_cbor]))
    assert difference(body, is_cbor=is_cbor) is None


@st.composite
def damaged(draw: st.DrawFn, body: bytes, tokens: tuple[bytes, ...]) -> bytes:
    """With one fault more."""
    at = draw(st.integers(0, len(body)))
    end = min(len(body), at + draw(st.sampled_from((0, 1, 1, 2, 4, 9, 40))))
    new = draw(st.sampled_from(tokens) | st.binary(max_size=1))
    there = [token for token in tokens if len(token) > 1 and token in body]
    match draw(st.sampled_from(("other", "twice", "cut off", "another token"))):
        case "twice":
            return body[:end] + body[at:]
        case "cut off":
            return body[:at]
        case "another token" if there:
            return body.replace(draw(st.sampled_from(there)), new, 1)
        case _:
            return body[:at] + new + body[end:]


@pytest.mark.parametrize(
    "time",
    [
        *("1.5", "yesterday", 0.0000005, -1.5, 1e11, 253_402_300_800, None),
        *(b"\xfa" + struct.pack(">f", 1.7e9), b"\xf9\x3c\x00", b"\xf6", b"\xc1\xf6"),
        *(b"\x1b" + struct.pack(">q", time) for time in (2**53, 253_402_300_800_000)),
        *(b"\xfb" + struct.pack(">d", time) for time in (-62_135_596_800_001, 1.5, -1.0)),
    ],
    ids=repr,
)
def test_an_arrival_time_in_any_form_is_declined_or_the_same(time: Any) -> None:
    """In bytes, it is CBOR."""
    record = {"SequenceNumber": "7", "Data": "", "PartitionKey": "k"}
    if not isinstance(time, bytes):
        body = json.dumps({"Records": [record | {_TIME: time}] * 2}).encode()
    else:
        records = [record | {"Data": b"", _TIME: "when"}] * 2
        body = cbor2.dumps({"Records": records}).replace(b"\x64when", time)
    assert difference(body, is_cbor=isinstance(time, bytes)) is None


@either
def test_what_the_properties_are_made_of_is_taken(is_cbor: bool) -> None:  # noqa: FBT001  # a parameter
    """Else they would compare nothing."""
    taken: list[bool] = []

    @given(_WHOLE[is_cbor])
    def look(body: bytes) -> None:
        taken.append(decode_natively(body, is_cbor=is_cbor) is not None)

    look()
    assert sum(taken) > len(taken) / 10
