"""A scheme with good, damaged and hostile payloads; an aggregate, which every scheme refuses."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheme import KPL_MAGIC

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheme import RecordScheme

AGGREGATE = KPL_MAGIC + b"\x0a\x03key" + hashlib.md5(b"\x0a\x03key", usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeCase:
    """A scheme, and payloads.

    - `good`: their values as `decode` returns them: a row, or a tuple of rows.
    - `damaged`: their reasons.
    - `hostile`: they may have a value or a reason, in little time and memory.
    """

    name: str
    scheme: RecordScheme
    good: Mapping[bytes, tuple[Any, ...]]
    damaged: Mapping[bytes, str]
    hostile: Sequence[bytes] = ()
