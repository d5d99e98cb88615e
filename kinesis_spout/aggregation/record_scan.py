"""The user records of aggregates, read side by side by numpy, without a loop over them. Pure.

On the wire a `Record` (see `message`) is a sequence of fields, each a tag and a value. Producers
write each field once, in the order of their numbers: `08 <index> [10 <index>] 1a <length> <data>`.
The scan reads records of this form, and marks the others, which protobuf parses one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

NO_INDEX = -1
_PARTITION_KEY, _EXPLICIT_HASH_KEY, _DATA = 0x08, 0x10, 0x1A  # tags: field number and wire type
_MORE = 0x80  # in each byte of a varint but the last one
_MAX_VARINT = 5  # bytes that are read; an index or a length in an aggregate needs four
_PADDING = b"\0" * 32  # more than all that is before the data, so that no read is out of bounds


class ScannedUserRecords(NamedTuple):
    """An entry for each record: where its data begins and ends in `octets`, and the indices of its
    keys in the tables of its aggregate (`NO_INDEX`: it has no explicit hash key).

    Where `is_regular` is false, the others mean nothing.
    """

    octets: bytes
    begins: Numbers
    ends: Numbers
    partition_keys: Numbers
    explicit_hash_keys: Numbers
    is_regular: NDArray[np.bool_]


def scan_user_records(records: Sequence[bytes]) -> ScannedUserRecords:
    """Read encoded `Record` messages, of 2 GiB at most together."""
    octets = b"".join((*records, _PADDING))
    view = np.frombuffer(octets, np.uint8)
    ends = np.cumsum(np.fromiter(map(len, records), np.int64, len(records)))
    starts = np.empty_like(ends)
    starts[:1], starts[1:] = 0, ends[:-1]
    is_regular = view[starts] == _PARTITION_KEY
    keys, at = _varints(view, starts + 1)
    explicit = np.full(len(records), NO_INDEX, np.int64)
    with_explicit = np.flatnonzero(view[at] == _EXPLICIT_HASH_KEY)
    if len(with_explicit):
        explicit[with_explicit], at[with_explicit] = _varints(view, at[with_explicit] + 1)
    is_regular &= view[at] == _DATA
    sizes, begins = _varints(view, at + 1)
    # What follows the last byte of a varint that was too long to read is no end of a record.
    is_regular &= (begins + sizes == ends) & (sizes >= 0) & (keys >= 0) & (explicit >= NO_INDEX)
    return ScannedUserRecords(octets, begins, ends, keys, explicit, is_regular)


def _varints(view: NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers that begin at these places, and where they end. A number that is longer than the
    scan reads is far below 0.
    """
    octets = view[at]
    values = (octets & 0x7F).astype(np.int64)
    ends = at + 1
    longer = np.flatnonzero(octets >= _MORE)
    for shift in range(7, 7 * _MAX_VARINT, 7):
        if not len(longer):
            return values, ends
        octets = view[ends[longer]]
        values[longer] |= (octets & 0x7F).astype(np.int64) << shift
        ends[longer] += 1
        longer = longer[octets >= _MORE]
    values[longer] = np.iinfo(np.int64).min // 2
    return values, ends
