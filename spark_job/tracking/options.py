"""The arguments of `KinesisSource.tracked`, checked: how a query treats failed records, and that it
does so in a session that can count outcomes.

Spark Connect sends the function of `foreachBatch` to its server, into a process without a JVM.
Outcomes need that of the query, for the run's id and for the metrics of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pickle import PickleError
from typing import TYPE_CHECKING, TypeVar

from kinesis_spout.config import did_you_mean, parse_duration_ms
from kinesis_spout.errors import ConfigError
from state.report import OnFailure, OutcomePolicy
from state.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from spark_job.dead_letter.dead_letter import DeadLetter

Duration = str | int | float
_Choice = TypeVar("_Choice", bound=StrEnum)
MAX_RETRIES = 1_000_000


class OnExhausted(StrEnum):
    """The treatment of a record that may not be tried again.

    It is dead-lettered, it is dropped (counted and logged), or the query stops.
    """

    DEAD_LETTER = "dead_letter"
    DROP = "drop"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackOptions:
    """The checked arguments. `check` makes them."""

    policy: OutcomePolicy
    on_exhausted: OnExhausted
    dead_letter: DeadLetter | None
    bisect: bool

    @classmethod
    def check(
        cls,
        *,
        dead_letter: DeadLetter | None,
        retry_limit: int,
        retry_first_delay: Duration,
        retry_max_delay: Duration,
        retry_max_age: Duration | None,
        on_failure: str,
        on_exhausted: str,
        bisect: bool,
    ) -> TrackOptions:
        """Check the arguments. Raises `ConfigError` naming the argument, its value and the rule."""
        if type(retry_limit) is not int or not 0 <= retry_limit <= MAX_RETRIES:
            raise _wrong("retry_limit", retry_limit, f"use a whole number from 0 to {MAX_RETRIES}")
        first_ms = _ms("retry_first_delay", retry_first_delay)
        max_ms = _ms("retry_max_delay", retry_max_delay)
        if max_ms < first_ms:
            rule = f"use a duration of at least retry_first_delay, which is {retry_first_delay!r}"
            raise _wrong("retry_max_delay", retry_max_delay, rule)
        age_ms = None if retry_max_age is None else _ms("retry_max_age", retry_max_age)
        if age_ms == 0:
            rule = "use a duration longer than 0, or None for no limit"
            raise _wrong("retry_max_age", retry_max_age, rule)
        if not isinstance(bisect, bool):
            raise _wrong("bisect", bisect, "use True or False")
        failure = _choice("on_failure", on_failure, OnFailure)
        exhausted = _choice("on_exhausted", on_exhausted, OnExhausted)
        if bisect and failure is not OnFailure.CONTINUE:
            rule = (
                f"omit bisect or on_failure={failure.value}, because the parts of a bisected "
                f"batch do not keep the order that on_failure={failure.value} requires"
            )
            raise _wrong("bisect", bisect, rule)
        is_object = callable(getattr(dead_letter, "write", None)) and not isinstance(
            dead_letter, type
        )
        if dead_letter is not None and not is_object:
            rule = 'pass a DeadLetter, such as DeadLetter("parquet", path=...)'
            raise _wrong("dead_letter", dead_letter, rule)
        if exhausted is OnExhausted.DEAD_LETTER and dead_letter is None:
            raise ConfigError(
                "argument dead_letter of tracked(...) is missing. This argument sets the "
                "destination of records that cannot be processed",
                'pass DeadLetter("parquet", path=...), or set on_exhausted to "drop" or "stop"',
            )
        if exhausted is not OnExhausted.DEAD_LETTER and dead_letter is not None:
            rule = (
                "omit on_exhausted or dead_letter: with this on_exhausted, no dead letter is "
                "written"
            )
            raise _wrong("on_exhausted", exhausted.value, rule)
        retry = RetryPolicy(
            retry_limit=retry_limit, first_delay_ms=first_ms, max_delay_ms=max_ms, max_age_ms=age_ms
        )
        policy = OutcomePolicy(retry=retry, on_failure=failure)
        return cls(policy=policy, on_exhausted=exhausted, dead_letter=dead_letter, bisect=bisect)


def _ms(argument: str, value: Duration) -> int:
    try:
        return parse_duration_ms(str(value), option=argument)
    except ConfigError as exc:
        raise _wrong(
            argument, value, 'use a duration such as "500ms", "1s" or "5m", or a number of seconds'
        ) from exc


def _choice(argument: str, value: str, choices: type[_Choice]) -> _Choice:
    names = [choice.value for choice in choices]
    if value in names:
        return choices(value)
    hint = did_you_mean(str(value), names)
    rule = f"use one of {', '.join(names)}"
    raise _wrong(argument, value, f"{rule}; {hint}" if hint else rule)


def _wrong(argument: str, value: object, rule: str) -> ConfigError:
    return ConfigError(f"argument {argument} of tracked(...) is {value!r}", rule)


class SparkConnectError(ConfigError, PickleError):
    """Outcomes per record were asked for in a session of Spark Connect.

    Connect pickles the function. It hands a PickleError on as it is, and wraps all other errors.
    """

    def __init__(self) -> None:
        super().__init__(
            "source.tracked(...) does not run on Spark Connect, because Spark Connect calls "
            "foreachBatch in a process that cannot record which records succeed or fail",
            "run the query in its own Spark session (spark-submit, kinesis-spout run, or "
            "SparkSession.builder.master), or omit tracked(...) to ack whole batches",
        )
