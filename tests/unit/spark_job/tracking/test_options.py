"""The arguments of `tracked` are checked at once.

An error names the argument, its value, and the values that are allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import ConfigError
from spark_job import DeadLetter, KinesisSource
from spark_job.tracking.options import OnExhausted, TrackOptions
from state.report import OnFailure
from state.retry_policy import RetryPolicy

if TYPE_CHECKING:
    from spark_job import TrackedBatch

SOURCE = KinesisSource(stream="orders", application="orders-etl", zookeeper="localhost:2181")
DEAD = DeadLetter("parquet", path="dead")
POLICY: dict[str, Any] = {
    "retry_limit": 0,
    "retry_first_delay": 0.5,
    "retry_max_delay": "2m",
    "retry_max_age": "1h",
}


def check(**changes: Any) -> TrackOptions:
    rest = {"on_failure": "continue", "on_exhausted": "dead_letter", "bisect": False}
    return TrackOptions.check(**({"dead_letter": DEAD} | POLICY | rest | changes))


def test_good_arguments_become_a_policy() -> None:
    assert check().policy.retry == RetryPolicy(
        retry_limit=0, first_delay_ms=500, max_delay_ms=120_000, max_age_ms=3_600_000
    )
    assert check(on_failure="block_key").policy.on_failure is OnFailure.BLOCK_KEY
    assert check(dead_letter=None, on_exhausted="stop").on_exhausted is OnExhausted.STOP


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"retry_limit": -1}, r"retry_limit of tracked\(\.\.\.\) is -1; use a whole number"),
        ({"retry_limit": 1.5}, r"retry_limit of tracked\(\.\.\.\) is 1\.5"),
        ({"retry_first_delay": "soon"}, r"retry_first_delay of .* is 'soon'; use a duration"),
        ({"retry_max_delay": "500ms"}, "at least retry_first_delay"),
        ({"on_failure": "block-key"}, "on_failure.*did you mean block_key"),
        ({"on_exhausted": "forget"}, "use one of dead_letter, drop, stop"),
        ({"dead_letter": None}, r'dead_letter .* is missing.*DeadLetter\("parquet", path=\.\.\.\)'),
        ({"dead_letter": type(DEAD)}, "argument dead_letter .* pass a DeadLetter"),
        ({"on_exhausted": "drop"}, "no dead letter is written"),
        ({"bisect": True, "on_failure": "block_shard"}, "the order that"),
    ],
)
def test_an_error_names_the_bad_argument_and_allowed_values(
    changes: dict[str, Any], sentence: str
) -> None:
    """Before anything is read."""
    with pytest.raises(ConfigError, match=sentence):
        SOURCE.tracked(print, **({"dead_letter": DEAD} | changes))


async def process_later(batch: TrackedBatch) -> None:
    batch.df.show()


@pytest.mark.parametrize("process", [process_later, "process", None])
def test_a_process_that_a_call_does_not_run_is_refused(process: Any) -> None:
    """Its batches would be delivered again for ever, without an error."""
    with pytest.raises(ConfigError, match=r"argument process of tracked\(\.\.\.\) is "):
        SOURCE.tracked(process, dead_letter=DEAD)


def test_a_process_with_the_arguments_of_foreach_batch_is_refused() -> None:
    """Spark calls a function of `foreachBatch` with a frame and a number."""

    def process(frame: object, number: int) -> None:
        del frame, number

    given: Any = process
    with pytest.raises(ConfigError, match=r"with a batch: missing .* 'number'"):
        SOURCE.tracked(given, dead_letter=DEAD)


def test_a_process_may_have_parameters_with_defaults() -> None:
    def process(batch: TrackedBatch, path: str = "/data/orders") -> None:
        batch.df.write.parquet(path)

    SOURCE.tracked(process, dead_letter=DEAD)
