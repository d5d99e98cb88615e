"""Records framed for Glue Schema Registry, good, damaged and hostile, for the contract of schemes;
and a producer that registers its schemas. The frames are made by `aws-glue-schema-registry`,
another implementation of the format.
"""

from __future__ import annotations

import json
import socket
import zlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from aws_schema_registry.codec import encode
from botocore.session import get_session

from kinesis_spout.config import AwsConfig
from scheme import AvroScheme, Compressed, GlueScheme, JsonScheme, ProtobufScheme, SchemaVersion
from scheme.avro_scheme import NOT_AVRO, NOT_RESOLVED
from scheme.compressed import TOO_LARGE, UNKNOWN_CODEC
from scheme.glue_scheme import (
    CUT_OFF,
    NO_FRAME,
    OTHER_FORMAT,
    OTHER_MESSAGE,
    UNKNOWN_COMPRESSION,
    UNKNOWN_VERSION,
    UNUSABLE,
)
from scheme.json_rules import NOT_JSON
from tests.support.outcomes.avro_cases import written
from tests.support.outcomes.protobuf_cases import Old
from tests.support.outcomes.scheme_case import SchemeCase

V1, V2, RECURSIVE, JSON, PROTO, UNKNOWN = (UUID(int=number) for number in range(1, 7))
ORDER_1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}],
}
ORDER_2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": "double", "default": 0},
    ],
}
LIST = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Order"]}],
}
OLD_PROTO = """
syntax = "proto2"; // message Comment {}
package old;
message Old {
  required int64 id = 1; optional double size = 2; optional string text = 3;
  enum Kind { NONE = 0; }
  message Alone { map<string, int32> by_name = 1; string message = 2; }
}
message Aardvark { option (about) = { text: "message X {" }; }
"""


AWS = AwsConfig(region="us-east-1", access_key_id="a", secret_access_key="e-s3cret")


class Producer:
    """A producer by the other implementation, which registers schemas in a registry of its own."""

    def __init__(self, endpoint: str) -> None:
        self.name = f"registry-{uuid4().hex[:8]}"
        self.glue: Any = get_session().create_client(
            "glue",
            region_name="us-east-1",
            endpoint_url=endpoint,
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )
        self.glue.create_registry(RegistryName=self.name)
        self._names: set[str] = set()

    def version(self, name: str, data_format: str, definition: str) -> UUID:
        """The id of this schema, which becomes the latest version of this name."""
        if name in self._names:
            version = self.glue.register_schema_version(
                SchemaId={"SchemaName": name, "RegistryName": self.name},
                SchemaDefinition=definition,
            )
        else:
            version = self.glue.create_schema(
                RegistryId={"RegistryName": self.name},
                SchemaName=name,
                DataFormat=data_format,
                Compatibility="NONE",
                SchemaDefinition=definition,
            )
        self._names.add(name)
        return UUID(version["SchemaVersionId"])

    def record(self, name: str, value: Any, schema: Any) -> bytes:
        """A framed record. The schema becomes the latest version of this name."""
        version_id = self.version(name, schema.data_format, str(schema))
        return bytes(encode(schema.write(value), version_id, compression=len(name) % 2))


def nowhere() -> str:
    """The URL of a port at which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@dataclass(frozen=True)
class FixedRegistry:
    """A registry that holds these versions only."""

    versions: tuple[tuple[str, SchemaVersion], ...]

    def schema_version(self, version_id: str) -> SchemaVersion | None:
        return dict(self.versions).get(version_id)


REGISTRY = FixedRegistry(
    (
        (str(V1), SchemaVersion("AVRO", json.dumps(ORDER_1))),
        (str(V2), SchemaVersion("AVRO", json.dumps(ORDER_2))),
        (str(RECURSIVE), SchemaVersion("AVRO", json.dumps(LIST))),
        (str(JSON), SchemaVersion("JSON", '{"type": "object"}')),
        (str(PROTO), SchemaVersion("PROTOBUF", OLD_PROTO)),
    )
)
FIRST = written(ORDER_1, {"id": 7, "note": "secret"})
SECOND = written(ORDER_2, {"id": 1 << 40, "total": 2.5})
OLD = Old(id=3, text="x").SerializeToString()
BOMB = zlib.compress(b"\x00" * (64 * 1024 * 1024), 9)

GLUE_CASES = (
    SchemeCase(
        name="glue avro",
        scheme=GlueScheme(AvroScheme(ORDER_2), REGISTRY),
        good={
            encode(FIRST, V1): (7, 0.0),
            encode(FIRST, V1, compression="ZLIB"): (7, 0.0),
            encode(SECOND, V2): (1 << 40, 2.5),
            encode(SECOND, V2, compression="ZLIB"): (1 << 40, 2.5),
        },
        damaged={
            b"": NO_FRAME,
            SECOND: NO_FRAME,
            b"\x03": CUT_OFF,
            encode(SECOND, V2)[:17]: CUT_OFF,
            b"\x03\x01" + encode(SECOND, V2)[2:]: UNKNOWN_COMPRESSION,
            encode(SECOND, UNKNOWN): UNKNOWN_VERSION,
            encode(SECOND, V2)[:18]: NOT_AVRO,
            encode(SECOND, V2) + b"\x00": NOT_AVRO,
            encode(SECOND, RECURSIVE): UNUSABLE,
            encode(b"{}", JSON): OTHER_FORMAT,
            encode(SECOND, V2, compression="ZLIB")[:-1]: (
                "the zlib data is damaged, cut off or followed by other data"
            ),
            b"\x03\x05" + encode(BOMB, V2)[2:]: TOO_LARGE,
        },
        hostile=[encode(b"\xff" * 100_000, V1), encode(b"\x00" * 100_000, RECURSIVE)],
    ),
    SchemeCase(
        name="glue avro or raw",
        scheme=GlueScheme(AvroScheme(ORDER_1), REGISTRY, unframed="raw"),
        good={encode(FIRST, V1): (7, "secret"), FIRST: (7, "secret")},
        damaged={b"": NOT_AVRO, encode(SECOND, V2): NOT_RESOLVED, b"\x03\x00": CUT_OFF},
    ),
    SchemeCase(
        name="glue json",
        scheme=GlueScheme(JsonScheme("id BIGINT NOT NULL"), REGISTRY),
        good={encode(b'{"id": 1}', JSON, compression="ZLIB"): (1,)},
        damaged={
            encode(b"secret", JSON): NOT_JSON,
            encode(b"{}", JSON): "field 'id' is missing",
            encode(SECOND, V2): OTHER_FORMAT,
        },
    ),
    SchemeCase(
        name="glue compressed",
        scheme=GlueScheme(Compressed(JsonScheme("id BIGINT NOT NULL")), REGISTRY, unframed="raw"),
        good={encode(zlib.compress(b'{"id": 1}'), JSON): (1,), zlib.compress(b'{"id": 2}'): (2,)},
        damaged={
            encode(b'{"id": 1}', JSON): UNKNOWN_CODEC,
            encode(zlib.compress(b"{}"), JSON): "field 'id' is missing",
            encode(BOMB, JSON): TOO_LARGE,
            encode(BOMB, UNKNOWN): UNKNOWN_VERSION,
            BOMB: TOO_LARGE,
        },
    ),
    SchemeCase(
        name="glue protobuf",
        scheme=GlueScheme(ProtobufScheme(Old), REGISTRY),
        # Aardvark, Old, Old.Alone, Old.Alone.ByNameEntry
        good={encode(b"\x01" + OLD, PROTO): (3, None, "x")},
        damaged={
            encode(b"\x00" + OLD, PROTO): OTHER_MESSAGE,
            encode(b"\x02" + OLD, PROTO): OTHER_MESSAGE,
            encode(b"\xff\xff\x7f" + OLD, PROTO): OTHER_MESSAGE,
            encode(b"", PROTO): "the record has no Protobuf message index",
        },
        hostile=[encode(b"\x80" * 100_000, PROTO)],
    ),
)
