"""Payload formats: each scheme against the Python UDF that people write for its format.

    python benchmarks/schemes.py [--records N] [--rounds N] [--only NAME] [--json]

`rows a core-second`: payloads to Arrow columns, in this process, by its CPU time; the best of the
rounds. Then Spark (`local[1]`) makes columns of the same payloads, from memory to the noop sink:
with the scheme, and with the UDF, as `F.udf` makes it without more arguments. The rounds alternate
after one of each that does not count. The ratios are those of the medians: of the time, and of the
CPU of the JVM and its workers. Before that, both give the same number of rows.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fastavro
import psutil
import pyarrow as pa
from boto3.dynamodb.types import TypeDeserializer
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it

from scheme import AvroScheme, CloudWatchLogsScheme, DynamoDbScheme, PayloadScheme, parsed

if TYPE_CHECKING:
    from collections.abc import Callable

LOG_EVENTS = 100
TARGET_RATIO = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """`payload` makes one of a random number generator. `udf` is the function that people write,
    and `udf_ddl` what it returns. `share`: one record for so many log events.
    """

    name: str
    scheme: PayloadScheme
    payload: Callable[[random.Random], bytes]
    udf: Callable[[bytes], Any]
    udf_ddl: str
    target: int
    share: int = 10


def log_events(rng: random.Random, message: Callable[[random.Random], str]) -> bytes:
    events = [
        {
            "id": str(31953106606966983378809025079804211143289615424298221568 + n),
            "timestamp": 1_769_860_800_000 + n,
            "message": message(rng),
        }
        for n in range(LOG_EVENTS)
    ]
    record = {
        "messageType": "DATA_MESSAGE",
        "owner": "123456789012",
        "logGroup": "/aws/lambda/orders",
        "logStream": "2026/01/31/[$LATEST]0123456789abcdef",
        "subscriptionFilters": ["Destination"],
        "logEvents": events,
    }
    return gzip.compress(json.dumps(record).encode())


def text_message(rng: random.Random) -> str:
    return (
        f"2026-01-31T12:00:00Z INFO request {rng.getrandbits(128):032x} "
        f"GET /orders/{rng.randrange(10**6)} 200 {rng.random():.3f}"
    )


def json_message(rng: random.Random) -> str:
    return json.dumps(
        {
            "level": "INFO",
            "requestId": f"{rng.getrandbits(128):032x}",
            "path": f"/orders/{rng.randrange(10**6)}",
            "status": 200,
            "ms": round(rng.random(), 3),
        }
    )


def log_rows(data: bytes) -> list[dict[str, Any]]:
    record = json.loads(gzip.decompress(data))
    if record["messageType"] != "DATA_MESSAGE":
        return []
    return [
        {
            "owner": record["owner"],
            "logGroup": record["logGroup"],
            "logStream": record["logStream"],
            "subscriptionFilters": record["subscriptionFilters"],
            "id": event["id"],
            "timestamp": event["timestamp"],
            "message": event["message"],
        }
        for event in record["logEvents"]
    ]


def order_change(rng: random.Random) -> bytes:
    order = {
        "id": {"S": f"{rng.getrandbits(64):016x}"},
        "customer": {"S": f"customer {rng.randrange(1000)}"},
        "total": {"N": f"{rng.random() * 1000:.2f}"},
        "items": {"N": str(rng.randrange(10))},
        "tags": {"SS": ["paid", "express"]},
    }
    record = {
        "awsRegion": "us-east-1",
        "eventID": f"{rng.getrandbits(128):032x}",
        "eventName": "MODIFY",
        "userIdentity": None,
        "recordFormat": "application/json",
        "tableName": "orders",
        "dynamodb": {
            "ApproximateCreationDateTime": 1_769_860_800_000_000 + rng.randrange(10**6),
            "Keys": {"id": order["id"]},
            "NewImage": order,
            "OldImage": {**order, "total": {"N": "0"}},
            "SizeBytes": 200,
            "ApproximateCreationDateTimePrecision": "MICROSECOND",
        },
        "eventSource": "aws:dynamodb",
    }
    return json.dumps(record).encode()


def order_images(data: bytes) -> dict[str, Any]:
    record = json.loads(data)
    deserialize = TypeDeserializer().deserialize

    def image(name: str) -> dict[str, Any]:
        values = {k: deserialize(v) for k, v in record["dynamodb"].get(name, {}).items()}
        return {**values, "tags": list(values.get("tags", ()))}

    return {
        "eventName": record["eventName"],
        "keys": image("Keys"),
        "newImage": image("NewImage"),
        "oldImage": image("OldImage"),
        "createdAt": record["dynamodb"]["ApproximateCreationDateTime"],
    }


AVRO_ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "total", "type": "double"},
        {"name": "currency", "type": {"type": "enum", "name": "C", "symbols": ["EUR", "USD"]}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "coupon", "type": ["null", "string"]},
        {"name": "quantity", "type": "int"},
        {"name": "paid", "type": "boolean"},
    ],
}
AVRO_PARSED = fastavro.parse_schema(AVRO_ORDER)


def avro_order(rng: random.Random) -> bytes:
    target = BytesIO()
    order = {
        "id": rng.getrandbits(40),
        "customer": f"customer {rng.randrange(10**6)}",
        "total": rng.random() * 1000,
        "currency": rng.choice(["EUR", "USD"]),
        "placed": 1_769_860_800_000 + rng.randrange(10**9),
        "coupon": rng.choice([None, "SUMMER"]),
        "quantity": rng.randrange(100),
        "paid": rng.random() < 0.5,
    }
    fastavro.schemaless_writer(target, AVRO_PARSED, order)
    return target.getvalue()


def avro_fields(data: bytes) -> Any:
    return fastavro.schemaless_reader(BytesIO(data), AVRO_PARSED)


_LOG_DDL = (
    "array<struct<owner string, logGroup string, logStream string, subscriptionFilters "
    "array<string>, id string, timestamp bigint, message string>>"
)
_ORDER = "id STRING, customer STRING, total DECIMAL(12,2), items DECIMAL(12,0), tags ARRAY<STRING>"
_IMAGE = f"struct<{_ORDER}>"
FORMATS = (
    Format(
        name="cloudwatch, text",
        scheme=CloudWatchLogsScheme(),
        payload=lambda rng: log_events(rng, text_message),
        udf=log_rows,
        udf_ddl=_LOG_DDL,
        target=200_000,
    ),
    Format(
        name="cloudwatch, JSON",
        scheme=CloudWatchLogsScheme(),
        payload=lambda rng: log_events(rng, json_message),
        udf=log_rows,
        udf_ddl=_LOG_DDL,
        target=200_000,
    ),
    Format(
        name="dynamodb",
        scheme=DynamoDbScheme(_ORDER),
        payload=order_change,
        udf=order_images,
        udf_ddl=(
            f"struct<eventName string, keys {_IMAGE}, newImage {_IMAGE}, oldImage {_IMAGE}, "
            "createdAt bigint>"
        ),
        target=0,
    ),
    Format(
        name="avro",
        scheme=AvroScheme(AVRO_ORDER),
        payload=avro_order,
        udf=avro_fields,
        udf_ddl=(
            "struct<id bigint, customer string, total double, currency string, placed timestamp, "
            "coupon string, quantity int, paid boolean>"
        ),
        target=150_000,
        share=2,
    ),
)


def core_rate(found: Format, payloads: list[bytes], rounds: int) -> tuple[int, float]:
    """The number of rows, and how many of them a second of CPU makes."""
    array, best = pa.array(payloads, pa.binary()), 0.0
    rows = 0
    for _ in range(rounds):
        start = process_time()
        parts = list(found.scheme.outcomes(array))
        taken_s = process_time() - start
        rows = sum(len(part.flatten()) if found.scheme.many else len(part) for part in parts)
        best = max(best, rows / taken_s)
    return rows, best


def spark_ratios(
    spark: SparkSession, found: Format, payloads: list[bytes], rounds: int
) -> tuple[float, float, float]:
    """How many times as fast Spark is with the scheme as with the UDF, in time and in CPU, and how
    many rows a second of that CPU makes.
    """
    table = pa.table({"data": pa.array(payloads, pa.binary())})
    frame = spark.createDataFrame(table).coalesce(1).cache()
    frame.count()
    by_udf = F.udf(found.udf, found.udf_ddl)(frame["data"])
    frames = {
        "scheme": parsed(frame, found.scheme).select("parsed.value.*"),
        "udf": frame.select((F.explode(by_udf) if found.scheme.many else by_udf).alias("row")),
    }
    rows = frames["scheme"].count()
    assert rows == frames["udf"].count()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
    for _ in range(rounds + 1):
        for name, each in frames.items():
            start, start_cpu = perf_counter(), children_cpu_s()
            each.write.format("noop").mode("overwrite").save()
            times[name].append((perf_counter() - start, children_cpu_s() - start_cpu))
    frame.unpersist()
    (time_s, cpu_s), (udf_s, udf_cpu_s) = (
        [median(values) for values in zip(*times[name][1:], strict=True)] for name in frames
    )
    return udf_s / time_s, udf_cpu_s / cpu_s, rows / cpu_s


def children_cpu_s() -> float:
    """The CPU of the JVM and of its Python workers."""
    total = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that has just ended
            times = child.cpu_times()
            total += times.user + times.system
    return total


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--records", type=int, default=200_000, help="log events; of changes a tenth, of Avro half"
    )
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="formats whose name begins so")
    arguments.add_argument("--json", action="store_true")
    chosen = arguments.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    results = []
    if not chosen.json:
        print(f"{'format':<18}{'rows a core-s':>15}{'in Spark':>12}{'times':>8}{'less CPU':>10}")
    for found in FORMATS:
        if not found.name.startswith(chosen.only):
            continue
        rng = random.Random(1)  # noqa: S311  # the same in every run
        count = chosen.records // (LOG_EVENTS if found.scheme.many else found.share)
        payloads = [found.payload(rng) for _ in range(count)]
        rows, rate = core_rate(found, payloads, chosen.rounds)
        ratio, cpu_ratio, spark_rate = spark_ratios(spark, found, payloads, chosen.rounds)
        results.append(
            {
                "format": found.name,
                "rows": rows,
                "rows_per_core_s": round(rate),
                "target": found.target,
                "spark_rows_per_core_s": round(spark_rate),
                "times_as_fast_as_udf": round(ratio, 2),
                "times_less_cpu_than_udf": round(cpu_ratio, 2),
                "target_times": TARGET_RATIO,
            }
        )
        if not chosen.json:
            print(
                f"{found.name:<18}{rate:>15,.0f}{spark_rate:>12,.0f}{ratio:>8.2f}{cpu_ratio:>10.2f}",
                flush=True,
            )
    if chosen.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
