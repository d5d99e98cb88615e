"""Payload formats: each scheme against the Python UDF that people write for its format.

    python benchmarks/schemes.py [--records N] [--rounds N] [--only NAME] [--no-spark] [--json]

`rows a core-second`: payloads to Arrow columns, in this process, by its CPU time, the best of the
rounds: with the scheme, and with the UDF and what Spark's worker does around it. Their ratio is
`times`, which is to be 3. `--no-spark` ends there.

Then Spark (`local[1]`) makes columns of the same payloads, from memory to the noop sink: with the
scheme, and with the UDF, as `F.udf` makes it without more arguments. The rounds alternate after
one of each that does not count. The ratios are those of the medians: of the CPU of Spark's Python
workers, of the time, and of the CPU of the JVM and its workers, of which a part is Spark's own in
both. Before that, both give the same number of rows.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import sys
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from io import BytesIO
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fastavro
import psutil
import pyarrow as pa
from boto3.dynamodb.types import TypeDeserializer
from google.protobuf import text_format, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation writes it
from pyspark.sql.conversion import LocalDataToArrowConversion
from pyspark.sql.pandas.types import from_arrow_type

from scheme import (
    AvroScheme,
    CloudWatchLogsScheme,
    Compressed,
    DynamoDbScheme,
    GlueScheme,
    JsonScheme,
    PayloadScheme,
    ProtobufScheme,
    RawScheme,
    SchemaVersion,
    parsed,
)
from scheme.ddl import arrow_struct

if TYPE_CHECKING:
    from collections.abc import Callable

LOG_EVENTS = 100
BATCH_RECORDS = 10_000  # of an Arrow batch of Spark, by default
TARGET_RATIO = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """`payload` makes one of a random number generator. `udf` is the function that people write,
    and `udf_ddl` what it returns. `share`: one record for so many log events. `then`: the scheme
    that Spark's expressions read what this one gives with.
    """

    name: str
    scheme: PayloadScheme
    payload: Callable[[random.Random], bytes]
    udf: Callable[[bytes], Any]
    udf_ddl: str
    target: int
    share: int = 10
    then: JsonScheme | None = None


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


DESERIALIZER = TypeDeserializer()


def order_images(data: bytes) -> dict[str, Any]:
    record = json.loads(data)
    deserialize = DESERIALIZER.deserialize

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


def order_texts(data: bytes) -> dict[str, Any]:
    images = order_images(data)
    return {
        name: json.dumps(value, default=float) if isinstance(value, dict) else value
        for name, value in images.items()
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


AVRO_NESTED = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {
            "name": "total",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        },
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "coupon", "type": ["null", "string"]},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [
                        {"name": "sku", "type": "string"},
                        {"name": "count", "type": "int"},
                        {"name": "price", "type": "double"},
                    ],
                },
            },
        },
        {"name": "labels", "type": {"type": "map", "values": "string"}},
    ],
}
AVRO_WANTED = AVRO_NESTED | {
    "fields": [
        *(field for field in AVRO_NESTED["fields"] if field["name"] not in ("total", "labels")),  # type: ignore[index]  # a list of dicts
        {"name": "currency", "type": "string", "default": "EUR"},
    ]
}
NESTED_PARSED, WANTED_PARSED = map(fastavro.parse_schema, (AVRO_NESTED, AVRO_WANTED))


def nested_order(rng: random.Random) -> bytes:
    target = BytesIO()
    order = {
        "id": rng.getrandbits(40),
        "customer": f"customer {rng.randrange(10**6)}",
        "total": Decimal(rng.randrange(10**6)).scaleb(-2),
        "placed": datetime.fromtimestamp(1_769_860_800 + rng.randrange(10**6), UTC),
        "coupon": rng.choice([None, "SUMMER"]),
        "items": [
            {"sku": f"{rng.getrandbits(32):08x}", "count": rng.randrange(9), "price": rng.random()}
            for _ in range(rng.choice([1, 2, 2, 3]))
        ],
        "labels": {"channel": "web", "campaign": f"c{rng.randrange(100)}"},
    }
    fastavro.schemaless_writer(target, NESTED_PARSED, order)
    return target.getvalue()


def nested_fields(data: bytes) -> Any:
    return fastavro.schemaless_reader(BytesIO(data), NESTED_PARSED)


def wanted_fields(data: bytes) -> Any:
    return fastavro.schemaless_reader(BytesIO(data), NESTED_PARSED, WANTED_PARSED)


@dataclass(frozen=True)
class Registered:
    """A registry with one version."""

    version_id: str
    version: SchemaVersion

    def schema_version(self, version_id: str) -> SchemaVersion | None:
        return self.version if version_id == self.version_id else None


VERSION_ID = UUID(int=7)
DEFINITIONS = {VERSION_ID.bytes: NESTED_PARSED}  # what a UDF has looked up


def framed_order(rng: random.Random) -> bytes:
    return b"\x03\x00" + VERSION_ID.bytes + nested_order(rng)


def framed_fields(data: bytes) -> Any:
    if data[:1] != b"\x03":
        raise ValueError("no frame")
    payload = zlib.decompress(data[18:]) if data[1] == 5 else data[18:]
    return fastavro.schemaless_reader(BytesIO(payload), DEFINITIONS[data[2:18]], WANTED_PARSED)


PROTO_FILE = """
name: "order.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
enum_type { name: "Currency" value { name: "EUR" number: 0 } value { name: "USD" number: 1 } }
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "customer" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "total" number: 3 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "currency" number: 4 type: TYPE_ENUM type_name: ".shop.Currency"
          label: LABEL_OPTIONAL }
  field { name: "placed" number: 5 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp"
          label: LABEL_OPTIONAL }
  field { name: "coupon" number: 6 type: TYPE_STRING label: LABEL_OPTIONAL proto3_optional: true
          oneof_index: 0 }
  field { name: "items" number: 7 type: TYPE_MESSAGE type_name: ".shop.Item" label: LABEL_REPEATED }
  oneof_decl { name: "_coupon" }
}
message_type {
  name: "Item"
  field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "count" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "price" number: 3 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
}
"""


@cache
def proto_descriptors() -> bytes:
    times = FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(times)
    order = text_format.Parse(PROTO_FILE, FileDescriptorProto())
    return bytes(FileDescriptorSet(file=[times, order]).SerializeToString())


@cache
def proto_class() -> Any:
    """What an import of a generated module gives."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(proto_descriptors()).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def proto_order(rng: random.Random) -> bytes:
    order = proto_class()(
        id=rng.getrandbits(40),
        customer=f"customer {rng.randrange(10**6)}",
        total=rng.random() * 1000,
        currency=rng.randrange(2),
        items=[
            {"sku": f"{rng.getrandbits(32):08x}", "count": rng.randrange(9), "price": rng.random()}
            for _ in range(rng.choice([1, 2, 2, 3]))
        ],
    )
    order.placed.seconds = 1_769_860_800 + rng.randrange(10**6)
    if rng.random() < 0.5:
        order.coupon = "SUMMER"
    return bytes(order.SerializeToString())


def proto_fields(data: bytes) -> Any:
    order = proto_class().FromString(data)
    currencies = order.DESCRIPTOR.file.enum_types_by_name["Currency"].values_by_number
    return {
        "id": order.id,
        "customer": order.customer,
        "total": order.total,
        "currency": currencies[order.currency].name,
        "placed": order.placed.ToDatetime() if order.HasField("placed") else None,
        "coupon": order.coupon if order.HasField("coupon") else None,
        "items": [
            {"sku": item.sku, "count": item.count, "price": item.price} for item in order.items
        ],
    }


def click(rng: random.Random) -> bytes:
    found = {
        "id": rng.getrandbits(40),
        "customer": f"customer {rng.randrange(10**6)}",
        "total": round(rng.random() * 1000, 2),
        "paid": rng.random() < 0.5,
        "tags": ["web", "mobile"],
        "note": "x" * 40,
    }
    return gzip.compress(json.dumps(found).encode())


def click_fields(data: bytes) -> Any:
    return json.loads(gzip.decompress(data))


_CLICK = "id bigint, customer string, total double, paid boolean, tags array<string>"
_ITEMS = "array<struct<sku string, count int, price double>>"
_NESTED_DDL = (
    "struct<id bigint, customer string, total decimal(12,2), placed timestamp, coupon string, "
    f"items {_ITEMS}, labels map<string, string>>"
)
_WANTED_DDL = (
    "struct<id bigint, customer string, placed timestamp, coupon string, "
    f"items {_ITEMS}, currency string>"
)
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
        name="dynamodb, texts",
        scheme=DynamoDbScheme(),
        payload=order_change,
        udf=order_texts,
        udf_ddl=(
            "struct<eventName string, keys string, newImage string, oldImage string, "
            "createdAt bigint>"
        ),
        target=0,
    ),
    Format(
        name="gzip, JSON",
        scheme=Compressed(RawScheme()),
        then=JsonScheme(_CLICK),
        payload=click,
        udf=click_fields,
        udf_ddl=f"struct<{_CLICK}>",
        target=0,
        share=4,
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
    Format(
        name="avro, nested",
        scheme=AvroScheme(AVRO_NESTED),
        payload=nested_order,
        udf=nested_fields,
        udf_ddl=_NESTED_DDL,
        target=150_000,
        share=4,
    ),
    Format(
        name="avro, resolved",
        scheme=AvroScheme(AVRO_NESTED, AVRO_WANTED),
        payload=nested_order,
        udf=wanted_fields,
        udf_ddl=_WANTED_DDL,
        target=150_000,
        share=4,
    ),
    Format(
        name="glue, avro",
        scheme=GlueScheme(
            AvroScheme(AVRO_WANTED),
            Registered(str(VERSION_ID), SchemaVersion("AVRO", json.dumps(AVRO_NESTED))),
        ),
        payload=framed_order,
        udf=framed_fields,
        udf_ddl=_WANTED_DDL,
        target=150_000,
        share=4,
    ),
    Format(
        name="protobuf",
        scheme=ProtobufScheme(proto_descriptors(), "shop.Order"),
        payload=proto_order,
        udf=proto_fields,
        udf_ddl=(
            "struct<id bigint, customer string, total double, currency string, placed timestamp, "
            f"coupon string, items {_ITEMS}>"
        ),
        target=0,
        share=4,
    ),
)


def core_rates(found: Format, payloads: list[bytes], rounds: int) -> tuple[int, float, float]:
    """The number of rows, and how many of them a second of CPU makes: with the scheme, and with the
    UDF and the conversions around it, as Spark's worker does them for each Arrow batch.
    """
    array = pa.array(payloads, pa.binary())
    arrow_type = arrow_struct(f"row {found.udf_ddl}").field(0).type
    convert: Any = LocalDataToArrowConversion._create_converter(  # noqa: SLF001  # what the worker calls
        from_arrow_type(arrow_type), none_on_identity=True
    )
    rows, best, best_of_udf = 0, 0.0, 0.0
    for _ in range(rounds):
        start = process_time()
        parts = list(found.scheme.outcomes(array))
        taken_s = process_time() - start
        rows = sum(len(part.flatten()) if found.scheme.many else len(part) for part in parts)
        best = max(best, rows / taken_s)
        del parts
        start = process_time()
        for at in range(0, len(array), BATCH_RECORDS):
            values = [found.udf(data) for data in array.slice(at, BATCH_RECORDS).to_pylist()]
            pa.array([convert(value) for value in values], arrow_type)
        best_of_udf = max(best_of_udf, rows / (process_time() - start))
    return rows, best, best_of_udf


def spark_ratios(
    spark: SparkSession, found: Format, payloads: list[bytes], rounds: int
) -> dict[str, float]:
    """How many times as fast Spark is with the scheme as with the UDF, in time and in CPU, and how
    many rows a second of that CPU makes.
    """
    table = pa.table({"data": pa.array(payloads, pa.binary())})
    frame = spark.createDataFrame(table).coalesce(1).cache()
    frame.count()
    by_udf = F.udf(found.udf, found.udf_ddl)(frame["data"])
    rows_of = parsed(frame, found.scheme)
    if found.then is not None:
        rows_of = parsed(rows_of, found.then, data="parsed.value.data")
    frames = {
        "scheme": rows_of.select("parsed.value.*"),
        "udf": frame.select((F.explode(by_udf) if found.scheme.many else by_udf).alias("row")),
    }
    rows = frames["scheme"].count()
    assert rows == frames["udf"].count()
    times: dict[str, list[list[float]]] = {name: [] for name in frames}
    for _ in range(rounds + 1):
        for name, each in frames.items():
            start, start_cpu = perf_counter(), children_cpu_s()
            each.write.format("noop").mode("overwrite").save()
            workers, everything = (
                end - begin for end, begin in zip(children_cpu_s(), start_cpu, strict=True)
            )
            times[name].append([workers, perf_counter() - start, everything])
    frame.unpersist()
    own, udf = (
        [median(values) for values in zip(*times[name][1:], strict=True)] for name in frames
    )
    names = ("times_less_worker_cpu_in_spark", "times_as_fast_in_spark", "times_less_cpu_in_spark")
    ratios = {
        name: by_udf / by_scheme for name, by_udf, by_scheme in zip(names, udf, own, strict=True)
    }
    return ratios | {"spark_rows_per_core_s": rows / own[2]}


def children_cpu_s() -> tuple[float, float]:
    """The CPU of Spark's Python workers, and that with the JVM's."""
    workers = total = 0.0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # one that has just ended
            times = child.cpu_times()
            total += times.user + times.system
            if child.name().startswith("python"):
                workers += times.user + times.system
    return workers, total


def new_session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument(
        "--records", type=int, default=200_000, help="log events; of changes a tenth, of Avro half"
    )
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="", help="formats whose name begins so")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--no-spark", action="store_true")
    chosen = arguments.parse_args()
    spark = None if chosen.no_spark else new_session()
    results = []
    if not chosen.json:
        print(f"{'format':<18}{'rows a core-s':>14}{'UDF':>10}{'times':>7}", end="")
        print(f"{'in Spark: less in workers':>27}{'as fast':>9}{'less CPU':>10}")
    for found in FORMATS:
        if not found.name.startswith(chosen.only):
            continue
        rng = random.Random(1)  # noqa: S311  # the same in every run
        count = chosen.records // (LOG_EVENTS if found.scheme.many else found.share)
        payloads = [found.payload(rng) for _ in range(count)]
        rows, rate, udf_rate = core_rates(found, payloads, chosen.rounds)
        ratios = {} if spark is None else spark_ratios(spark, found, payloads, chosen.rounds)
        results.append(
            {
                "format": found.name,
                "rows": rows,
                "rows_per_core_s": round(rate),
                "target": found.target,
                "udf_rows_per_core_s": round(udf_rate),
                "times": round(rate / udf_rate, 2),
                "target_times": TARGET_RATIO,
            }
            | {name: round(ratio, 2) for name, ratio in ratios.items()}
        )
        if not chosen.json:
            shown = "".join(f"{ratio:>12.2f}" for ratio in list(ratios.values())[:3])
            print(
                f"{found.name:<18}{rate:>14,.0f}{udf_rate:>10,.0f}{rate / udf_rate:>7.2f}{shown}",
                flush=True,
            )
    if chosen.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
