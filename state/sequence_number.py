r"""Sequence numbers, ordered as integers and then by sub-sequence number.

Kinesis returns them as decimal texts of up to 129 digits without leading zeros (`SequenceNumber` in
the service's API: pattern `0|([1-9]\d{0,128})`). Their lengths differ, so they must not be compared
as texts. The user records of one KPL aggregate share its sequence number, and are numbered from 0
by a sub-sequence number each. Positions and checkpoints count whole Kinesis records.
"""

from __future__ import annotations

import re
from functools import total_ordering
from typing import Final

from state.errors import InvalidSequenceNumberError

_LIMIT = 10**129
_SUB_LIMIT = 10**10
_GRAMMAR = re.compile(r"(0|[1-9][0-9]{0,128})(?:\.(0|[1-9][0-9]{0,9}))?", re.ASCII)


@total_ordering
class SequenceNumber:
    """An immutable sequence number; its sub-sequence number is 0 outside of an aggregate."""

    __slots__ = ("_hash", "sequence", "sub")

    def __init__(self, sequence: int, sub: int = 0) -> None:
        if not (0 <= sequence < _LIMIT and 0 <= sub < _SUB_LIMIT):
            raise InvalidSequenceNumberError(
                f"{sequence}.{sub} is not a sequence number, because it is negative or too long",
                "use a sequence number that Kinesis returned",
            )
        self.sequence: Final = sequence
        self.sub: Final = sub
        self._hash: Final = hash((sequence, sub))

    @classmethod
    def parse(cls, text: str) -> SequenceNumber:
        """Read `<digits>` or `<digits>.<sub>`; raises `InvalidSequenceNumberError`."""
        match = _GRAMMAR.fullmatch(text)
        if match is None:
            raise InvalidSequenceNumberError(
                f"{text!r} is not a sequence number",
                "use the decimal digits of a sequence number that Kinesis returned",
            )
        digits, sub = match.groups()
        return cls(int(digits), 0 if sub is None else int(sub))

    @property
    def whole(self) -> SequenceNumber:
        """The number of the Kinesis record that it lies in, without a sub-sequence number."""
        return SequenceNumber(self.sequence) if self.sub else self

    def shares_record(self, other: SequenceNumber) -> bool:
        """Whether both lie in one Kinesis record, as user records of one aggregate do."""
        return self.sequence == other.sequence

    def __reduce__(self) -> tuple[type[SequenceNumber], tuple[int, int]]:
        return SequenceNumber, (self.sequence, self.sub)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceNumber):
            return NotImplemented
        return self.sequence == other.sequence and self.sub == other.sub

    def __lt__(self, other: SequenceNumber) -> bool:
        if not isinstance(other, SequenceNumber):
            return NotImplemented
        if self.sequence != other.sequence:
            return self.sequence < other.sequence
        return self.sub < other.sub

    def __str__(self) -> str:
        return f"{self.sequence}.{self.sub}" if self.sub else str(self.sequence)

    def __repr__(self) -> str:
        return f"SequenceNumber({self})"
