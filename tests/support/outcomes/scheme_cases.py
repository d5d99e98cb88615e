"""Each scheme with good, damaged and hostile payloads, for the contract of schemes
(`tests/contract/test_schemes.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from scheme import KPL_MAGIC, JsonScheme, PayloadError, PayloadScheme, RawScheme, TextScheme
from scheme.json_rules import NOT_JSON
from scheme.record_scheme import NOT_UTF8
from tests.support.outcomes.avro_cases import AVRO_CASES
from tests.support.outcomes.glue_cases import GLUE_CASES
from tests.support.outcomes.payload_cases import PAYLOAD_CASES
from tests.support.outcomes.protobuf_cases import PROTOBUF_CASES
from tests.support.outcomes.scheme_case import AGGREGATE, SchemeCase


@dataclass(frozen=True, slots=True)
class Readings(PayloadScheme):
    """A scheme of a user's own: `name=number` in each line of a payload."""

    schema_ddl = "name STRING, reading BIGINT"
    many = True

    def read(self, payload: bytes) -> list[tuple[str, float]]:
        rows: list[tuple[str, float]] = []
        for line in payload.splitlines():
            name, equals, number = line.partition(b"=")
            if not equals:
                raise PayloadError("a line has no equals sign")
            value = float(number) if b"." in number else int(number)
            # Arrow has 2 for 2.0, and both halves are compared by the class of a value, too.
            rows.append((name.decode(), int(value) if value == int(value) else value))
        return rows


NOISE = (
    b"\x00" * 100_000,
    b"\xff" * 1000,
    b"[" * 200_000,
    b'{"a":' * 100_000,
    b'"' + b"\\ud800" * 10_000 + b'"',
    b"9" * 500_000,
    # Invalid UTF-8, overlong forms, encoded surrogates; what only resembles an aggregate, and one
    # without records.
    *(b"a\x00b", b"caf\xe9", b"\xe0\x80\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf4\x90\x80\x80"),
    *(b"\xf0\x9f\x98", b"\xf8\x88\x80\x80\x80", b"\xef\xbb\xbfwith a mark"),
    *(KPL_MAGIC, KPL_MAGIC + b"own", KPL_MAGIC + b"\x00" * 16),
    *(AGGREGATE[:-1] + b"\x00", AGGREGATE + b"\x00", b"x" + AGGREGATE),
    KPL_MAGIC + hashlib.md5(b"", usedforsecurity=False).digest(),
)

CASES = (
    SchemeCase(name="raw", scheme=RawScheme(), good={b"": (b"",), b"\xff": (b"\xff",)}, damaged={}),
    SchemeCase(
        name="text",
        scheme=TextScheme(),
        good={
            b"": ("",),
            "Zürich\x00".encode(): ("Zürich\x00",),
            b"\xef\xbb\xbfx": ("\ufeffx",),  # a byte order mark is kept
        },
        damaged=dict.fromkeys((b"\xff", b"secret \xe9", b"\xc0\x80", b"\xed\xa0\x80"), NOT_UTF8),
    ),
    SchemeCase(
        name="json",
        scheme=JsonScheme("id BIGINT NOT NULL, tags ARRAY<STRING>"),
        good={b'{"id": 1}': (1, None), b'{"tags": ["a", null], "id": 2}': (2, ["a", None])},
        damaged={
            b'{"id": "secret"}': "field 'id' is not a BIGINT",
            b"{}": "field 'id' is missing",
            b'{"id": 1}x': NOT_JSON,
        },
    ),
    SchemeCase(
        name="own",
        scheme=Readings(),
        good={b"": (), b"a=1": (("a", 1),), b"a=1\nb=-2": (("a", 1), ("b", -2))},
        damaged={
            b"a=1\nb": "a line has no equals sign",
            b"a=1\nb=secret": "the scheme raised ValueError",
            b"\xff=1": "the scheme raised UnicodeDecodeError",
            b"a=1\nb=1.5": "a value does not fit the type of its field",
            b"a=1\nb=9223372036854775808": "a value does not fit the type of its field",
        },
    ),
    *PAYLOAD_CASES,
    *AVRO_CASES,
    *GLUE_CASES,
    *PROTOBUF_CASES,
)
