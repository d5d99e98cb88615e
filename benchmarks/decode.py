"""GetRecords bodies to Arrow: the native decoder and those in Python, beside botocore's parser, on
the same bodies, in one run.

    python benchmarks/decode.py [--json] [--rounds N]

CPU of one core, per record; MB are millions of bytes of payload (decoded record data). The decoders
take turns, and the best round of each counts. "no scan" is CBOR in Python by cbor2 alone, as it
reads a page that the scan by numpy cannot. botocore's result is a dict per record, as boto3
returns them; all others are Arrow record batches.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import cbor2
import msgspec
from botocore.parsers import JSONParser
from botocore.session import get_session

from kinesis_spout.service import get_records_cbor, get_records_decoder, native_decoder

if TYPE_CHECKING:
    from collections.abc import Callable

# Record size in bytes -> records per body: the service sends at most 10,000 records, and 10 MB.
CASES = {100: 10_000, 1_024: 9_000, 10_240: 1_000}


def make_body(record_bytes: int, count: int) -> bytes:
    rng = random.Random(record_bytes)  # noqa: S311  # the same bodies in every run
    first = 49590338271490256608559692538361571095921575989136588898
    records = [
        {
            "SequenceNumber": str(first + 7 * i),
            "ApproximateArrivalTimestamp": 1_718_000_000.123 + i / 1000,
            "Data": base64.b64encode(rng.randbytes(record_bytes)).decode(),
            "PartitionKey": f"carrier-{rng.randrange(1000)}",
        }
        for i in range(count)
    ]
    return json.dumps(
        {"Records": records, "NextShardIterator": "A" * 200, "MillisBehindLatest": 0}
    ).encode()


def as_cbor(body: bytes) -> bytes:
    page = json.loads(body)
    for record in page["Records"]:
        record["Data"] = base64.b64decode(record["Data"])
        milliseconds = round(record["ApproximateArrivalTimestamp"] * 1000)
        record["ApproximateArrivalTimestamp"] = cbor2.CBORTag(1, milliseconds)
    encoded: bytes = cbor2.dumps(page)
    return encoded


def botocore_parse() -> Callable[[bytes], Any]:
    shape: Any = (
        get_session().get_service_model("kinesis").operation_model("GetRecords").output_shape
    )
    parser = JSONParser()
    return lambda body: parser.parse({"body": body, "status_code": 200, "headers": {}}, shape)


def natively(body: bytes, *, is_cbor: bool) -> Any:
    page = native_decoder.decode_natively(body, is_cbor=is_cbor)
    assert page is not None, "kinesis_spout_native is not installed"
    return page.records


def without_scan(body: bytes) -> Any:
    parsed = msgspec.convert(get_records_cbor.decode_cbor(body), get_records_decoder.Body)
    return get_records_decoder.page_of_rows(parsed, get_records_cbor._row_micros).records  # noqa: SLF001  # what it does without the scan


DECODERS: dict[str, dict[str, Callable[[bytes], Any]]] = {
    "json": {
        "native": lambda body: natively(body, is_cbor=False),
        "python": lambda body: get_records_decoder.decode_get_records(body).records,
        "botocore": botocore_parse(),
    },
    "cbor": {
        "native": lambda body: natively(body, is_cbor=True),
        "python": lambda body: get_records_cbor.decode_get_records_cbor(body).records,
        "no scan": without_scan,
    },
}


def measure(record_bytes: int, encoding: str, rounds: int) -> list[dict[str, Any]]:
    count = CASES[record_bytes]
    body = make_body(record_bytes, count)
    body = as_cbor(body) if encoding == "cbor" else body
    best_s = dict.fromkeys(DECODERS[encoding], float("inf"))
    for _ in range(rounds):
        for name, decode in DECODERS[encoding].items():
            started = process_time()
            decode(body)
            best_s[name] = min(best_s[name], process_time() - started)
    return [
        {
            "record_bytes": record_bytes,
            "encoding": encoding,
            "decoder": name,
            "cpu_us": round(1e6 * seconds / count, 3),
            "mb_per_s": round(record_bytes * count / 1e6 / seconds, 1),
            "of_python": round(seconds / best_s["python"], 2),
        }
        for name, seconds in best_s.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the decoders of GetRecords bodies.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=20, help="of each decoder (default 20)")
    arguments = parser.parse_args()
    results = [
        row
        for record_bytes in CASES
        for encoding in DECODERS
        for row in measure(record_bytes, encoding, max(1, arguments.rounds))
    ]
    if arguments.json:
        print(json.dumps({"benchmark": "decode", "results": results}))
        return
    print(f"{'record':>8} {'decoder':>14} {'CPU-us':>8} {'MB/s':>8} {'of python':>10}")
    for row in results:
        name = f"{row['encoding']} {row['decoder']}"
        print(
            f"{row['record_bytes']:>7}B {name:>14} {row['cpu_us']:>8} {row['mb_per_s']:>8} "
            f"{row['of_python']:>10}"
        )


if __name__ == "__main__":
    main()
