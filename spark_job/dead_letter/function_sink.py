"""Dead letters to a user's function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.errors import ConfigError
from spark_job.dead_letter.letter import Letter, in_chunks, letter_of, letters_with_plain_times

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

CHUNK_LETTERS = 500


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """Calls the function on the driver, chunk by chunk."""

    function: Callable[[list[Letter]], object]

    @classmethod
    def of(cls, function: Callable[[list[Letter]], object]) -> FunctionSink:
        if not callable(function):
            raise ConfigError(
                f"DeadLetter.to takes a function, not a {type(function).__name__}; give one that "
                "takes a list"
            )
        return cls(function)

    def __str__(self) -> str:
        return f"function {getattr(self.function, '__name__', type(self.function).__name__)}"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:  # noqa: ARG002  # a function tells repetitions by message id
        rows = letters_with_plain_times(letters).toLocalIterator()
        for chunk in in_chunks(map(letter_of, rows), CHUNK_LETTERS):
            self.function(chunk)

    def without_secrets(self, text: str) -> str:
        return text
