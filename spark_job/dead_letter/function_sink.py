"""Sink that calls a user's function with dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.errors import ConfigError
from spark_job.dead_letter.letter import Letter, in_chunks, letter_of, letters_with_plain_times

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class FunctionSink:
    """Calls the function on the driver, with a chunk of letters at a time."""

    function: Callable[[list[Letter]], object]

    @classmethod
    def of(cls, function: Callable[[list[Letter]], object]) -> FunctionSink:
        if not callable(function):
            raise ConfigError(
                f"DeadLetter.to takes a function, not a {type(function).__name__}; give a function "
                "that takes a list of letters"
            )
        return cls(function)

    def __str__(self) -> str:
        return f"function {getattr(self.function, '__name__', type(self.function).__name__)}"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:  # noqa: ARG002  # a function detects repetitions by message id
        rows = letters_with_plain_times(letters).toLocalIterator()
        for chunk in in_chunks(map(letter_of, rows), lambda letter: letter):
            self.function(chunk)

    def without_secrets(self, text: str) -> str:
        return text
