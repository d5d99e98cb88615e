"""Bodies of GetRecords, whole and damaged, and what the native decoder makes of them beside the
decoders in Python.

    python -m tests.property.damaged_pages --minutes 60 [--seed 1]

A body is made from a number, so that a line of output is enough to make it again.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import struct
import sys
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

from kinesis_spout.errors import MalformedResponseError
from kinesis_spout.service.get_records_cbor import decode_get_records_cbor
from kinesis_spout.service.get_records_decoder import DecodedPage, decode_event, decode_get_records
from kinesis_spout.service.native_decoder import decode_event_natively, decode_natively

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = ("SequenceNumber", "ApproximateArrivalTimestamp", "Data", "PartitionKey")
_BESIDE = ("NextShardIterator", "MillisBehindLatest", "ChildShards", "Records")
_TEXTS = ("", "a", "carrier-17", "naïve", "日本", "😀", "x" * 70, 'a"b', "a\\b", "\n", "\x00", "/")
# What a decoder may take for something else.
_JSON_TOKENS = (
    *(f'"{name}"' for name in (*_NAMES, *_BESIDE, "ContinuationSequenceNumber")),
    *("null", "true", "1", "-0", "1.5e3", "01", "1e400", "9" * 25, "[]", "{}", '""', '"a"', "[[["),
    *("\\u0041", "\\ud83d", "\\ude00", "\\x", "\\", '"', ",", ":", "{", "}", "=", "==", " ", "\t"),
    *("QQ==", "QR==", "QQ=", "Q", "\x00", "\x7f", "\xff", "\ufeff", "é"),
)
_CBOR_TOKENS = (
    *(bytes([0x60 + len(name)]) + name.encode() for name in (*_NAMES[:1], *_NAMES[2:], *_BESIDE)),
    b"\x78\x1bApproximateArrivalTimestamp",
    *(bytes([head]) for head in (0x00, 0x17, 0x18, 0x1B, 0x20, 0x3B, 0x40, 0x5F, 0x60, 0x7F, 0x80)),
    *(bytes([head]) for head in (0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xD8, 0xF4, 0xF6, 0xF7, 0xF9, 0xFA)),
    *(b"\xfb" + struct.pack(">d", time) for time in (float("nan"), float("inf"), 1e11, 1.5)),
    *(b"\x1b" + b"\xff" * 8, b"\x7b" + b"\xff" * 8, b"\xff", b"\xfe", b"\x9f\xff", b"\xbf\xff"),
    *(b"\x5f\x41a\xff", b"\x7f\x61a\xff", b"\xc1\xf6", b"\x61\xff", b"\xc2\x41\x01"),
)


def body_of(seed: int, *, is_cbor: bool) -> bytes:
    """One of three is whole; others have up to four faults; few are only noise."""
    rng = random.Random(f"{seed} {is_cbor}")  # noqa: S311  # the same body for the same number
    if not rng.randrange(50):
        return rng.randbytes(rng.randrange(60))
    body = _cbor_page(rng) if is_cbor else _json_page(rng)
    tokens = _CBOR_TOKENS if is_cbor else tuple(token.encode() for token in _JSON_TOKENS)
    for _ in range(max(0, rng.randrange(-2, 5))):
        body = _damaged(rng, body, tokens)
    return body


def _damaged(rng: random.Random, body: bytes, tokens: tuple[bytes, ...]) -> bytes:
    at = rng.randrange(len(body) + 1)
    end = min(len(body), at + rng.choice((1, 1, 1, 2, 4, 9, 40)))
    kinds: tuple[Callable[[], bytes], ...] = (
        lambda: body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :],
        lambda: (
            body[:at]
            + bytes(byte ^ 1 << rng.randrange(8) for byte in body[at:end][:1])
            + body[at + 1 :]
        ),
        lambda: body[:at] + body[end:],
        lambda: body[:end] + body[at:],
        lambda: body[:at] + rng.choice(tokens) + body[at:],
        lambda: body[:at] + rng.choice(tokens) + body[end:],
        lambda: _swapped(rng, body, tokens),
        lambda: body[:at],
    )
    return rng.choice(kinds)()


def _swapped(rng: random.Random, body: bytes, tokens: tuple[bytes, ...]) -> bytes:
    """With another token in the place of one that it has."""
    found = [token for token in tokens if len(token) > 1 and token in body]
    return body.replace(rng.choice(found), rng.choice(tokens), 1) if found else body


def _pairs(rng: random.Random, values: dict[str, Any]) -> list[tuple[str, Any]]:
    """Mostly all of them in their order."""
    pairs = list(values.items())
    if not rng.randrange(4):
        rng.shuffle(pairs)
    if not rng.randrange(40):
        pairs = pairs[: rng.randrange(len(pairs) + 1)]
    if not rng.randrange(60) and pairs:
        pairs.append(rng.choice(pairs))
    return pairs


def _number(rng: random.Random) -> str:
    return str(rng.randrange(10 ** rng.choice((1, 5, 56, 128))))


def _payload(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 2, 3, 12, 16, 24, 32, 48, rng.randrange(300))))


def _beside(rng: random.Random, records: Any, children: Any) -> dict[str, Any]:
    of_event = {"ContinuationSequenceNumber": rng.choice(("7", None))}
    return (
        ({} if rng.randrange(4) else of_event)
        | {
            "Records": records,
            "NextShardIterator": rng.choice((*_TEXTS, "A" * 200, None)),
            "MillisBehindLatest": rng.choice((0, 17, 2**31, 2**53 + 1, -1, None)),
        }
        | ({} if rng.randrange(9) else {"ChildShards": children, "Unknown": [1, "a", None]})
    )


def _json_page(rng: random.Random) -> bytes:
    times = (0, 1_718_000_000.123, 1_718_000_000, 0.0000005, 2.5e-6, -1.5, 1e11, None)
    odd_times = ("1.5", 253_402_300_800, "yesterday")
    records = [
        dict(
            _pairs(
                rng,
                {
                    "SequenceNumber": _number(rng),
                    "ApproximateArrivalTimestamp": rng.choice(odd_times)
                    if not rng.randrange(60)
                    else rng.choice((*times, rng.uniform(0, 4e9), round(rng.uniform(0, 4e9), 3))),
                    "Data": base64.b64encode(_payload(rng)).decode(),
                    "PartitionKey": rng.choice((*_TEXTS, None)),
                    "EncryptionType": rng.choice(("NONE", None, {"a": [1, True]})),
                },
            )
        )
        for _ in range(rng.choice((0, 1, 2, 5, 20)))
    ]
    page = dict(_pairs(rng, _beside(rng, records, [{"ShardId": "s", "ParentShards": ["p"]}])))
    text = json.dumps(page, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, None, 1)))
    return text.encode()


def _cbor_page(rng: random.Random) -> bytes:
    records = [_Cbor(_cbor_record(rng)) for _ in range(rng.choice((0, 1, 2, 5, 20, 150)))]
    page = _beside(rng, records, rng.choice(([], None, [{"ShardId": "s"}])))
    return _cbor(rng, page)


class _Cbor(bytes):
    """Encoded already."""

    __slots__ = ()


def _cbor_record(rng: random.Random) -> bytes:
    milliseconds = rng.choice((0, 1_718_000_000_123, 99_999_999_999, 253_402_300_799_999))
    if not rng.randrange(60):
        milliseconds = rng.choice((-62_135_596_800_001, 253_402_300_800_000, 2**53, -1))
    forms = (
        b"\xc1\x1b" + struct.pack(">q", max(0, milliseconds)),
        b"\x1b" + struct.pack(">q", max(0, milliseconds)),
        b"\xc1\xfb" + struct.pack(">d", milliseconds),
        b"\xfb" + struct.pack(">d", rng.uniform(0, 4e9)),
        b"\xfb" + struct.pack(">d", rng.uniform(0, 4e12)),
        b"\xfa" + struct.pack(">f", rng.uniform(0, 4e9)),
        b"\xf6",
        b"\xf9\x3c\x00",  # of two bytes: declined
    )
    return _cbor(
        rng,
        {
            "SequenceNumber": _number(rng),
            "ApproximateArrivalTimestamp": _Cbor(forms[rng.randrange(7 + (rng.random() < 0.1))]),
            "Data": _payload(rng),
            "PartitionKey": rng.choice((*_TEXTS, None)),
        }
        | ({} if rng.randrange(3) else {"EncryptionType": rng.choice(("NONE", None, 1.5, [True]))}),
    )


def _cbor(rng: random.Random, value: Any) -> bytes:
    if isinstance(value, _Cbor):
        return value
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", True: b"\xf5", False: b"\xf4"}[value]
    if isinstance(value, int):
        return _head(rng, 0, value) if value >= 0 else _head(rng, 1, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str | bytes):
        raw, major = (value, 2) if isinstance(value, bytes) else (value.encode(), 3)
        if not rng.randrange(200):
            return bytes([major << 5 | 31]) + _head(rng, major, len(raw)) + raw + b"\xff"
        return _head(rng, major, len(raw)) + raw
    if isinstance(value, list):
        major, count, parts = 4, len(value), [_cbor(rng, item) for item in value]
    else:
        pairs = _pairs(rng, value)
        major, count = 5, len(pairs)
        parts = [_cbor(rng, part) for pair in pairs for part in pair]
    if not rng.randrange(8):
        return bytes([major << 5 | 31]) + b"".join(parts) + b"\xff"
    return _head(rng, major, count) + b"".join(parts)


def _head(rng: random.Random, major: int, value: int) -> bytes:
    """Mostly the shortest one."""
    sizes = [0] * (value < 24) + [size for size in (1, 2, 4, 8) if value < 256**size]
    size = sizes[0] if rng.randrange(20) else rng.choice(sizes)
    if size == 0:
        return bytes([major << 5 | value])
    return bytes([major << 5 | 23 + size.bit_length()]) + value.to_bytes(size, "big")


def decoded_in_python(body: bytes, *, is_cbor: bool) -> DecodedPage:
    return decode_get_records_cbor(body) if is_cbor else decode_get_records(body)


def difference(body: bytes, *, is_cbor: bool) -> tuple[str, str | None]:
    """Whether the native decoder took the body, and how its page, in Arrow or as lists, is not the
    one that the decoder in Python gives.
    """
    native = decode_natively(body, is_cbor=is_cbor)
    as_lists = decode_natively(body, is_cbor=is_cbor, as_lists=True)
    if native is None:
        return "declined", "it is taken as lists" if as_lists else None
    try:
        plain = decoded_in_python(body, is_cbor=is_cbor)
    except MalformedResponseError as exc:
        return "taken", f"it is refused in Python: {exc}"
    native.records.validate(full=True)
    if native.records.schema != plain.records.schema:
        return "taken", f"the schema is {native.records.schema}"
    if not native.records.equals(plain.records):
        return "taken", f"the records are {native.records.to_pylist()}, not the {plain.records}"
    if not is_cbor and (fault := _event_difference(body)):
        return "taken", fault
    if as_lists and as_lists.columns.lists() != plain.columns.lists():
        return "taken", f"the lists are {as_lists.columns.lists()}"
    for page in (native, as_lists or native):
        for name in DecodedPage.__dataclass_fields__.keys() - {"columns"}:
            ours, theirs = getattr(page, name), getattr(plain, name)
            if ours != theirs:
                return "taken", f"{name} is {ours!r}, not {theirs!r}"
    return "taken", None


def _event_difference(body: bytes) -> str | None:
    """The same for a body that is read as an SubscribeToShard event."""
    found = decode_event_natively(body)
    if found is None:
        return None
    try:
        plain = decode_event(body)
    except MalformedResponseError as exc:
        return f"as an event it is refused in Python: {exc}"
    same = found[0].records.equals(plain[0].records) and found[1] == plain[1]
    return None if same else f"the event continues at {found[1]}, not {plain[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the native decoder with those in Python.")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1, help="of the first body (default 1)")
    arguments = parser.parse_args()
    end_s, seed, counts = monotonic() + 60 * arguments.minutes, arguments.seed, Counter[str]()
    while monotonic() < end_s:
        for is_cbor in (False, True):
            verdict, fault = difference(body_of(seed, is_cbor=is_cbor), is_cbor=is_cbor)
            counts[f"{'cbor' if is_cbor else 'json'} {verdict}"] += 1
            if fault:
                counts["different"] += 1
                sys.stdout.write(f"body {seed}, {is_cbor=}: {fault[:500]}\n")
                sys.stdout.flush()
        seed += 1
    sys.stdout.write(f"bodies {arguments.seed} to {seed - 1}: {dict(counts)}\n")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
