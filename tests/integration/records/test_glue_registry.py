"""GlueRegistry on moto's Glue, with records that another implementation of the public frame format
wrote and registered.
"""

from __future__ import annotations

import os
import pickle
import re
from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from aws_schema_registry.avro import AvroSchema
from aws_schema_registry.codec import encode
from aws_schema_registry.jsonschema import JsonSchema

from kinesis_spout.config import AwsConfig
from kinesis_spout.service.glue_registry import GlueRegistry
from scheme import (
    AvroScheme,
    GlueScheme,
    JsonScheme,
    MalformedRecordError,
    SchemeDefinitionError,
    SchemeUnavailableError,
)
from scheme.glue_scheme import UNKNOWN_VERSION
from tests.support.kinesis.stub_kinesis import Answer, StubKinesis, error
from tests.support.outcomes.glue_cases import AWS, ORDER_1, ORDER_2, Producer, nowhere
from tests.support.outcomes.scheme_agreement import columns, record_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def producer(moto_endpoint: str) -> Producer:
    return Producer(moto_endpoint)


@pytest.fixture
def registry(moto_endpoint: str, producer: Producer) -> GlueRegistry:
    return GlueRegistry(aws=AWS, endpoint_url=moto_endpoint, registry_name=producer.name)


def test_records_of_another_implementation_are_read_by_the_versions_that_they_name(
    producer: Producer, registry: GlueRegistry
) -> None:
    """Each Avro record by its writer's version, as rows of one schema; JSON by its fields."""
    first = producer.record("avro", {"id": 7, "note": "x"}, AvroSchema(ORDER_1))
    second = producer.record("avro", {"id": 8, "total": 2.5}, AvroSchema(ORDER_2))
    scheme = GlueScheme(AvroScheme(registry.latest("avro").definition), registry)
    assert scheme.fields == ("id", "total")
    assert scheme.decode(record_of(first)) == (7, 0.0)
    assert scheme.decode(record_of(second)) == (8, 2.5)
    written = producer.record("json", {"id": 1}, JsonSchema('{"type": "object"}'))
    assert GlueScheme(JsonScheme("id BIGINT"), registry).decode(record_of(written)) == (1,)


def test_a_version_is_looked_up_once_in_a_process(
    producer: Producer, registry: GlueRegistry
) -> None:
    """It is known also when the registry has it no more. Another process looks it up for itself."""
    record = record_of(producer.record("once", {"id": 7, "note": "x"}, AvroSchema(ORDER_1)))
    scheme = GlueScheme(AvroScheme(ORDER_1), registry)
    assert scheme.decode(record) == (7, "x")
    producer.glue.delete_schema(SchemaId={"SchemaName": "once", "RegistryName": producer.name})
    copy = pickle.loads(pickle.dumps(scheme))  # noqa: S301  # our own bytes
    assert copy.decode(record) == (7, "x")
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.write(write, repr(scheme.decode(record)).encode())
        except MalformedRecordError as exc:
            os.write(write, exc.reason.encode())
        finally:
            os._exit(0)
    assert os.read(read, 1000).decode() == UNKNOWN_VERSION


def test_a_version_that_is_not_in_the_registry_is_unknown(
    moto_endpoint: str, producer: Producer, registry: GlueRegistry
) -> None:
    """Also one of another registry, where the registry is named; and a schema by its name."""
    record = producer.record("mine", {"id": 7, "note": "x"}, AvroSchema(ORDER_1))
    other = GlueRegistry(aws=AWS, endpoint_url=moto_endpoint, registry_name="another")
    for frame, asked in ((encode(b"", UUID(int=99)), registry), (record, other)):
        with pytest.raises(MalformedRecordError) as caught:
            GlueScheme(AvroScheme(ORDER_1), asked).decode(record_of(frame))
        assert caught.value.reason == UNKNOWN_VERSION
    with pytest.raises(SchemeDefinitionError, match="no schema ordres"):
        registry.latest("ordres")


def test_an_unreachable_registry_is_an_outage_in_one_sentence() -> None:
    url = nowhere()
    scheme = GlueScheme(AvroScheme(ORDER_1), GlueRegistry(aws=AWS, endpoint_url=url, attempts=1))
    with pytest.raises(SchemeUnavailableError) as caught:
        scheme.decode(record_of(encode(b"", UUID(int=1))))
    assert url in str(caught.value)
    assert "e-s3cret" not in f"{caught.value} {scheme!r}"


@pytest.mark.parametrize(
    ("status", "body", "remedy"),
    [
        (503, b"", "check the network"),
        (400, b'{"__type": "ExpiredTokenException"}', "get new temporary AWS credentials"),
        (400, b'{"__type": "AccessDeniedException"}', "allow glue:GetSchemaVersion"),
        (200, b"<html>a proxy's page</html>", "check the endpoint's URL"),
        (200, b"[]", "check the endpoint's URL"),
        (200, b"{}", "check the endpoint's URL"),
        (200, b'{"SchemaArn": "x:schema/shop/orders"}', "check the endpoint's URL"),
    ],
)
def test_an_answer_that_is_not_the_registrys_is_an_outage(
    stub_kinesis: StubKinesis, status: int, body: bytes, remedy: str
) -> None:
    """No record is malformed by it, and the error says where and what to do."""
    stub_kinesis.answers("GetSchemaVersion", Answer(status, body))
    url = stub_kinesis.url
    registry = GlueRegistry(aws=AWS, endpoint_url=url, registry_name="shop", attempts=1)
    with pytest.raises(SchemeUnavailableError, match=remedy) as caught:
        GlueScheme(AvroScheme(ORDER_1), registry).decode(record_of(encode(b"", UUID(int=97))))
    assert url in str(caught.value)


@pytest.mark.spark
def test_executors_ask_with_the_credentials_and_the_region_of_the_job(
    spark: SparkSession, stub_kinesis: StubKinesis
) -> None:
    stub_kinesis.answers("GetSchemaVersion", error("EntityNotFoundException"))
    aws = AwsConfig(
        region="eu-west-3", access_key_id="AKID", secret_access_key="secret", session_token="tok"
    )
    scheme = GlueScheme(AvroScheme(ORDER_1), GlueRegistry(aws=aws, endpoint_url=stub_kinesis.url))
    found = columns(spark, scheme, [encode(b"", UUID(int=98))])
    assert found == [(None, UNKNOWN_VERSION)]
    (call,) = [request.headers for request in stub_kinesis.requests]
    assert re.search(r"Credential=AKID/\d{8}/eu-west-3/glue/aws4_request", call["Authorization"])
    assert call["X-Amz-Security-Token"] == "tok"
    assert call["X-Amz-Target"] == "AWSGlue.GetSchemaVersion"
