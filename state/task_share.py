"""The share of one process, where several processes consume one application together."""

from __future__ import annotations

import re
from dataclasses import dataclass

from state.errors import InvalidStoreSettingError

MAX_TASKS = 1000
_WRITTEN = re.compile(r"(0|[1-9]\d*)-of-([1-9]\d*)")


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Task `index` of `total`, with `index` counted from 0. Its text, `1-of-3`, is also the name of
    its znodes.
    """

    index: int
    total: int

    def __post_init__(self) -> None:
        if not 1 <= self.total <= MAX_TASKS:
            raise InvalidStoreSettingError(
                f"a total of {self.total} tasks is not possible; use 1 to {MAX_TASKS}"
            )
        if not 0 <= self.index < self.total:
            raise InvalidStoreSettingError(
                f"there is no task {self.index} of {self.total}; they are counted from 0, so use 0 "
                f"to {self.total - 1}"
            )

    @classmethod
    def parse(cls, text: str) -> TaskShare:
        """Read a text like `1-of-3`; raises `InvalidStoreSettingError` for any other."""
        written = _WRITTEN.fullmatch(text)
        if written is None:
            raise InvalidStoreSettingError(f"{text!r} is not a task; use the form 1-of-3")
        return cls(int(written[1]), int(written[2]))

    def __str__(self) -> str:
        return f"{self.index}-of-{self.total}"

    @property
    def label(self) -> str:
        """`task 1 of 3`, for messages."""
        return f"task {self.index} of {self.total}"
