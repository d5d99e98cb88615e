"""The contract of schemes, for all of them alike: rows out of each record, or a fixed reason; the
same record by record and in columns; and no payload that ends a worker.
"""

from __future__ import annotations

import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheme import Compressed, MalformedRecordError, PayloadScheme, RawScheme, parsed
from scheme.compressed import MAX_BYTES
from scheme.record_scheme import KPL_AGGREGATE, gives_many
from tests.support.outcomes.payload_cases import gzipped
from tests.support.outcomes.scheme_agreement import (
    columns,
    decoded,
    disagreements,
    plain_outcome,
    record_of,
)
from tests.support.outcomes.scheme_case import AGGREGATE, SchemeCase
from tests.support.outcomes.scheme_cases import CASES, NOISE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

every_scheme = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_scheme_in_python = pytest.mark.parametrize(
    "case",
    [case for case in CASES if isinstance(case.scheme, PayloadScheme)],
    ids=lambda case: case.name,
)


def payloads_of(case: SchemeCase) -> list[bytes]:
    return [*case.good, *case.damaged, *case.hostile, *NOISE, AGGREGATE]


def in_columns(scheme: PayloadScheme, payloads: list[bytes]) -> list[tuple[Any, str | None]]:
    array = pa.array(payloads, pa.binary())
    return [
        plain_outcome(scheme, element)
        for part in scheme.outcomes(array)
        for element in part.to_pylist()
    ]


@every_scheme
def test_a_good_payload_gives_its_values(case: SchemeCase) -> None:
    """A row has a value for each field. Also on workers, to which schemes are sent."""
    scheme = pickle.loads(pickle.dumps(case.scheme))  # noqa: S301  # our own bytes
    assert scheme == case.scheme
    assert hash(scheme) == hash(case.scheme)
    for payload, value in case.good.items():
        assert repr(decoded(scheme, payload)) == repr((value, None))
        for row in value if gives_many(scheme) else [value]:
            assert len(row) == len(scheme.fields)


@every_scheme
def test_a_damaged_payload_has_a_fixed_reason_and_names_its_record(case: SchemeCase) -> None:
    """No row of it is passed on. Neither the error nor what it prints has a byte of the payload,
    which may be secret.
    """
    for payload, reason in {**case.damaged, AGGREGATE: KPL_AGGREGATE}.items():
        record = record_of(payload)
        with pytest.raises(MalformedRecordError) as caught:
            case.scheme.decode(record)
        assert caught.value.reason == reason
        assert str(caught.value) == f"record {record.message_id}: {reason}"
        assert "secret" not in "".join(traceback.format_exception_only(caught.value))
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own bytes
        assert (copy.reason, copy.message_id) == (reason, record.message_id)


@every_scheme
def test_no_payload_ends_a_worker(case: SchemeCase) -> None:
    """Noise, deep nesting, long numbers and bombs have a value, or a reason of one short line."""
    for payload in payloads_of(case):
        value, reason = decoded(case.scheme, payload)
        assert (value is None) == bool(reason)
        assert reason is None or (len(reason) < 120 and reason.isprintable())


@every_scheme_in_python
@given(st.data())
def test_any_payload_has_one_outcome_in_both_halves(case: SchemeCase, data: st.DataObject) -> None:
    """Of good payloads, some bytes of which were changed, cut or added, and of any bytes."""
    good = [one for one in [*case.good, *case.damaged] if len(one) < 10_000]  # no bombs
    payloads = data.draw(st.lists(st.one_of(st.binary(max_size=60), edited(good)), max_size=6))
    scheme = case.scheme
    assert isinstance(scheme, PayloadScheme)
    assert disagreements(scheme, payloads, in_columns(scheme, payloads)) == []


@st.composite
def edited(draw: st.DrawFn, payloads: list[bytes]) -> bytes:
    payload = draw(st.sampled_from(payloads))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(payload)))
        cut = draw(st.integers(0, 3))
        payload = payload[:at] + draw(st.binary(max_size=3)) + payload[at + cut :]
    return payload


@every_scheme_in_python
def test_the_outcomes_of_an_array_are_those_of_its_payloads_in_order(case: SchemeCase) -> None:
    """Whatever stands beside a payload: a damaged one does not spoil a good one."""
    scheme = case.scheme
    assert isinstance(scheme, PayloadScheme)
    payloads = payloads_of(case) * 2
    assert disagreements(scheme, payloads, in_columns(scheme, payloads)) == []


def test_payloads_that_grow_are_handed_on_in_small_parts() -> None:
    """One Arrow batch of small payloads, each of which is just below the limit when it is
    decompressed, is never in memory as a whole.
    """
    scheme = Compressed(RawScheme())
    payload = gzipped(bytes(MAX_BYTES))
    sizes = [part.nbytes for part in scheme.outcomes(pa.array([payload] * 30, pa.binary()))]
    assert len(sizes) == 30
    assert max(sizes) < 2 * MAX_BYTES


@pytest.mark.spark
@every_scheme
def test_spark_gives_the_same_as_python(spark: SparkSession, case: SchemeCase) -> None:
    """Value by value, class by class, reason by reason; a record without data has a reason, too,
    though Kinesis never delivers it. The frame of `parsed` has a row for each row of a record, with
    the record's columns, or one with its reason. Its `value` has the types of `schema_ddl` and the
    names of `fields`.
    """
    payloads = payloads_of(case)
    scheme = case.scheme
    found = columns(spark, scheme, payloads)
    assert disagreements(scheme, payloads, found) == []
    frame = spark.createDataFrame(
        [(-1, None), *((index, bytearray(payload)) for index, payload in enumerate(payloads))],
        "i INT, data BINARY",
    )
    outcome = parsed(frame, scheme)
    declared = f"value STRUCT<{scheme.schema_ddl}>, malformed STRING"
    expected = spark.createDataFrame([], declared).schema
    assert [one.dataType.simpleString() for one in outcome.select("parsed.*").schema] == [
        one.dataType.simpleString() for one in expected
    ]
    assert tuple(expected["value"].dataType.names) == scheme.fields  # type: ignore[attr-defined]  # a StructType
    rows = outcome.selectExpr("i", "parsed.malformed", "parsed.value IS NULL").collect()
    wanted = [(-1, "the record has no data", True)] + [
        (index, reason, reason is not None)
        for index, (value, reason) in enumerate(found)
        for _ in (value if gives_many(scheme) and reason is None else [reason])
    ]
    assert sorted(map(tuple, rows), key=repr) == sorted(wanted, key=repr)
