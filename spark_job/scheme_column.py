"""The column `parsed` of a source whose option `scheme` is set: the scheme's outcome of each row.

The reader makes it on the executors of the payloads that it has just read. A record is one row,
whatever the scheme: of one whose records give many rows the column is an array. So retries, limits
and outcomes are those of the records.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import pyarrow as pa

from kinesis_spout.errors import ConfigError
from scheme.ddl import array_of, arrow_struct
from scheme.errors import SchemeError
from scheme.named import FORMS, scheme_of
from scheme.payload_scheme import PayloadScheme, WrappingScheme
from scheme.record_scheme import RecordScheme, gives_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_PICKLED = "pickle:"


def text_of(scheme: RecordScheme) -> str:
    """The option's text for an object. It has the secrets that the object has."""
    from pyspark import cloudpickle  # noqa: PLC0415  # takes classes of notebooks and scripts by value

    return _PICKLED + b64encode(cloudpickle.dumps(scheme)).decode()  # type: ignore[no-untyped-call]  # it has no hints


def scheme_of_option(option: str, text: str) -> RecordScheme:
    """The scheme of the option's text, which `text_of` or the user has written. Raises
    `ConfigError`, which does not show a text of `text_of`.
    """
    try:
        if not text.startswith(_PICKLED):
            return scheme_of(text)
        found = pickle.loads(b64decode(text.removeprefix(_PICKLED)))  # noqa: S301  # the options are the job's own, as its code is
    except SchemeError as exc:
        raise ConfigError.about(option, f": {exc.message}", exc.remedy) from exc
    except Exception as exc:
        raise ConfigError.about(
            option,
            f": the scheme cannot be created on this machine ({type(exc).__name__}: {exc})",
            "install the scheme's dependencies on the driver and on every executor",
        ) from exc
    if not isinstance(found, RecordScheme):
        raise ConfigError.about(option, ": the value is not a scheme (decoder)", f"use {FORMS}")
    return found


def column_type(scheme: RecordScheme) -> pa.DataType:
    outcome = pa.struct([("value", arrow_struct(scheme.schema_ddl)), ("malformed", pa.string())])
    return array_of(outcome) if gives_many(scheme) else outcome


def with_outcomes(
    batches: Iterable[pa.RecordBatch], scheme: RecordScheme, columns: Sequence[str], *, name: str
) -> Iterator[pa.RecordBatch]:
    """The rows with these columns, of which `name` is the scheme's. The batches have the others,
    and `data`. A row stays a row; a batch may become several.

    Raises `SchemeUnavailableError`; nothing else, whatever the payloads are.
    """
    decoding = scheme if isinstance(scheme, PayloadScheme) else WrappingScheme(scheme)
    for batch in batches:
        start = 0
        for outcomes in decoding.outcomes(batch.column("data")):
            part = batch.slice(start, len(outcomes))
            start += len(outcomes)
            yield pa.RecordBatch.from_arrays(
                [outcomes if one == name else part.column(one) for one in columns],
                names=list(columns),
            )
