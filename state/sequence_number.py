r"""Sequence numbers, ordered as integers and then by sub-sequence number.

Kinesis returns them as decimal texts of up to 129 digits without leading zeros (`SequenceNumber` in
the service's API: pattern `0|([1-9]\d{0,128})`). Their lengths differ, so they must not be compared
as texts. The records of one aggregate share its sequence number and have a sub-sequence number
each.
"""

from __future__ import annotations

import re
from functools import total_ordering
from typing import TYPE_CHECKING

from state.errors import InvalidSequenceNumberError

if TYPE_CHECKING:
    from collections.abc import Callable

_LIMIT = 10**129
_SUB_LIMIT = 10**10
_GRAMMAR = re.compile(r"(0|[1-9][0-9]{0,128})(?:\.(0|[1-9][0-9]{0,9}))?", re.ASCII)


@total_ordering
class SequenceNumber:
    """An immutable sequence number with its sub-sequence number, which is 0 for a record that is
    not part of an aggregate.
    """

    __slots__ = ("_hash", "sequence", "sub")

    sequence: int
    sub: int

    def __init__(self, sequence: int, sub: int = 0) -> None:
        if not (0 <= sequence < _LIMIT and 0 <= sub < _SUB_LIMIT):
            raise InvalidSequenceNumberError(
                f"{sequence}.{sub} is not a sequence number, because it is negative or too long; "
                "use the number that Kinesis returned"
            )
        _keep(self, sequence, sub)

    @classmethod
    def parse(cls, text: str) -> SequenceNumber:
        """Read `<digits>` or `<digits>.<sub>`; raises `InvalidSequenceNumberError`."""
        match = _GRAMMAR.fullmatch(text)
        if match is None:
            raise InvalidSequenceNumberError(
                f"{text!r} is not a sequence number; use the digits that Kinesis returned"
            )
        number = object.__new__(cls)  # the grammar has the limits that `__init__` checks
        _keep(number, int(match[1]), int(match[2] or 0))
        return number

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"SequenceNumber is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"SequenceNumber is immutable; {name} cannot be deleted")

    def __reduce__(self) -> tuple[type[SequenceNumber], tuple[int, int]]:
        return SequenceNumber, (self.sequence, self.sub)

    def __hash__(self) -> int:
        hashed: int = self._hash  # type: ignore[attr-defined]  # a slot without annotation: not part of the value
        return hashed

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceNumber):
            return NotImplemented
        return self.sequence == other.sequence and self.sub == other.sub

    def __lt__(self, other: SequenceNumber) -> bool:
        if not isinstance(other, SequenceNumber):
            return NotImplemented
        return (self.sequence, self.sub) < (other.sequence, other.sub)

    def __str__(self) -> str:
        return f"{self.sequence}.{self.sub}" if self.sub else str(self.sequence)

    def __repr__(self) -> str:
        return f"SequenceNumber({self})"


def _keep(
    number: SequenceNumber,
    sequence: int,
    sub: int,
    set_slot: Callable[[object, str, object], None] = object.__setattr__,
) -> None:
    set_slot(number, "sequence", sequence)
    set_slot(number, "sub", sub)
    set_slot(number, "_hash", hash((sequence, sub)))
