"""The door to `kinesis_spout_native`, the page decoder in Rust (`native/`).

It is a wheel of its own, which nothing needs: where it is not installed, the decoders in Python
read the pages, and a log line says so, once per process. Where it is, it takes the pages that are
as the service writes them, without the GIL and, unless lists are asked for, without an object per
record. It declines all others, and the decoders in Python read those: so their errors are the only
ones, and they say what is wrong with a malformed body.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from importlib import import_module
from typing import Any

import pyarrow as pa

from kinesis_spout.service.get_records_decoder import (
    ARRIVAL_TYPE,
    NO_RECORDS,
    DecodedPage,
    RecordColumns,
)
from state.errors import InvalidSequenceNumberError
from state.sequence_number import SequenceNumber

log = logging.getLogger("kinesis_spout")
_INTERFACE = 1  # of the wheel: counted up when it changes
_SLOWER = (
    "records are decoded in Python, which takes more CPU; to use the native decoder, run pip "
    "install ./native in a checkout"
)
_SAID = threading.Lock()  # taken by the thread that logs, and never given back


def decode_natively(body: bytes, *, is_cbor: bool, as_lists: bool = False) -> DecodedPage | None:
    """The page of a body; None where a decoder in Python has to read it. Raises for no body.

    `as_lists`: for a caller that reads record by record. The columns are lists then, else Arrow,
    whose memory is used for another page as soon as nobody holds any part of it.
    """
    native = _module()
    page = None if native is None else native.decode(body, is_cbor=is_cbor, as_lists=as_lists)
    if page is None:
        return None
    try:
        first, last, continuation = (
            None if number is None else SequenceNumber.parse(number)
            for number in (page.first, page.last, page.continuation)
        )
    except InvalidSequenceNumberError:
        return None
    columns = NO_RECORDS
    if page.count and page.lists is None:
        columns = RecordColumns.of(pa.record_batch(page))
    elif page.count:
        numbers, keys, data, micros = page.lists
        buffers = [None, pa.py_buffer(micros)]
        arrivals = pa.Array.from_buffers(ARRIVAL_TYPE, page.count, buffers)
        columns = RecordColumns(numbers, keys, data, arrivals)
    return DecodedPage(
        columns=columns,
        count=page.count,
        first=first,
        last=last,
        last_arrival_ms=page.last_arrival_ms,
        millis_behind_latest=page.millis_behind_latest,
        next_iterator=page.next_iterator,
        continuation=continuation,
    )


@cache
def _module() -> Any:
    """The module; None where it is missing or does not fit."""
    try:
        native = import_module("kinesis_spout_native")
        if native.INTERFACE == _INTERFACE:
            return native
        reason = "the installed kinesis_spout_native does not match this version of kinesis_spout"
    except ImportError as exc:
        reason = f"kinesis_spout_native cannot be imported ({exc})"
    if _SAID.acquire(blocking=False):
        log.info("%s; %s", reason, _SLOWER)
    return None
