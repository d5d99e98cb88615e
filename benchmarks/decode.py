"""GetRecords bodies to Arrow: our decoder against botocore's parser, on the same bodies, in one
run.

    python benchmarks/decode.py [--json] [--rounds N]

MB are millions of bytes of payload (decoded record data). botocore's result is a dict per record,
as boto3 returns them; ours is an Arrow record batch. The best of the rounds counts, on one core.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from botocore.parsers import JSONParser
from botocore.session import get_session

from kinesis_spout.service.get_records_decoder import decode_get_records

if TYPE_CHECKING:
    from collections.abc import Callable

# Record size in bytes -> records per body (the service sends at most 10,000 records, and 10 MB),
# and the target for the speed-up.
CASES = {100: (10_000, 20.0), 1_024: (9_000, 8.0), 10_240: (1_000, None)}


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


def botocore_parse() -> Callable[[bytes], Any]:
    shape: Any = (
        get_session().get_service_model("kinesis").operation_model("GetRecords").output_shape
    )
    parser = JSONParser()
    return lambda body: parser.parse({"body": body, "status_code": 200, "headers": {}}, shape)


def best_s(decode: Callable[[bytes], Any], body: bytes, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = perf_counter()
        decode(body)
        times.append(perf_counter() - started)
    return min(times)


def measure(record_bytes: int, rounds: int) -> dict[str, Any]:
    count, aim = CASES[record_bytes]
    body = make_body(record_bytes, count)
    ours_s = best_s(lambda given: decode_get_records(given).records, body, 4 * rounds)
    botocore_s = best_s(botocore_parse(), body, rounds)
    payload_mb = record_bytes * count / 1e6
    return {
        "record_bytes": record_bytes,
        "records": count,
        "ours_mb_per_s": round(payload_mb / ours_s, 1),
        "ours_records_per_s": round(count / ours_s),
        "botocore_mb_per_s": round(payload_mb / botocore_s, 1),
        "botocore_records_per_s": round(count / botocore_s),
        "times_faster": round(botocore_s / ours_s, 1),
        "aim": aim,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare the GetRecords decoder with botocore's parser."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        help="rounds of botocore; ours runs four times as many (default 5)",
    )
    arguments = parser.parse_args()
    results = [measure(record_bytes, max(1, arguments.rounds)) for record_bytes in CASES]
    if arguments.json:
        print(json.dumps({"benchmark": "decode", "results": results}))
        return
    print(
        f"{'record':>8} {'ours MB/s':>10} {'records/s':>12} {'botocore MB/s':>14} "
        f"{'records/s':>12} {'faster':>8}"
    )
    for row in results:
        print(
            f"{row['record_bytes']:>7}B {row['ours_mb_per_s']:>10} "
            f"{row['ours_records_per_s']:>12,} "
            f"{row['botocore_mb_per_s']:>14} {row['botocore_records_per_s']:>12,} "
            f"{row['times_faster']:>7}x"
        )


if __name__ == "__main__":
    main()
