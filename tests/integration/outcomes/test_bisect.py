"""A batch that fails as a whole is run in parts: poison is found, and an outage is not poison."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_job.query_failure import failure_sentence

if TYPE_CHECKING:
    from scheme.record import Record
    from spark_job import TrackedBatch
    from tests.support.outcomes.tracked import TrackedQuery

pytestmark = pytest.mark.spark


def test_a_poison_record_is_found_retried_and_dead_lettered(tracked_query: TrackedQuery) -> None:
    """The record kills its Python worker. Each other record is in one part that succeeds."""
    tracked_query.stream.put(40)
    done: list[int] = []
    tokens: list[str] = []

    def change(record: Record) -> dict[str, Any]:
        if record.data == b"record 23":
            os._exit(1)
        return {"n": int(record.data.split()[1])}

    def process(batch: TrackedBatch) -> None:
        with pytest.raises(RuntimeError, match=r"batch\.token"):
            _ = batch.id
        rows = batch.map_records(change, "n int").collect()
        tokens.append(batch.token)
        done.extend(row.n for row in rows)

    tracked_query.run(process, bisect=True, retry_limit=0)
    assert sorted(done) == [n for n in range(40) if n != 23]
    assert len(set(tokens)) == len(tokens) > 1
    (letter,) = tracked_query.letters
    assert (letter.data, letter.attempts) == (b"record 23", 1)
    assert "worker" in letter.reason
    assert tracked_query.unresolved() == {}
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


@pytest.mark.parametrize("way", ["exit", "half"])
def test_a_function_that_exits_or_raises_a_text_that_cannot_be_sent_fails_as_any_other(
    way: str, tracked_query: TrackedQuery
) -> None:
    """With bisect its record is found. Without it the query ends with one sentence."""
    tracked_query.stream.put(12)

    def process(batch: TrackedBatch) -> None:
        if any(row.data == b"record 3" for row in batch.df.select("data").collect()):
            if way == "exit":
                sys.exit(3)
            raise ValueError("half \ud83d")

    raised = "SystemExit: 3" if way == "exit" else r"ValueError: half \ud83d"
    sentence = f"the function given to tracked(...) raised {raised}"
    with pytest.raises(StreamingQueryException) as caught:
        tracked_query.run(process)
    assert failure_sentence(str(caught.value)) == sentence
    tracked_query.run(process, bisect=True, retry_limit=0)
    assert [letter.reason for letter in tracked_query.letters] == [sentence]


def test_a_record_that_ends_its_worker_is_found_over_restarts_without_bisect_too(
    tracked_query: TrackedQuery,
) -> None:
    """Its batches fail, and Spark's error says that a worker died, so they count as unanswered.
    Before that, batches that failed with other errors did not.
    """
    tracked_query.stream.put(6)
    done: list[int] = []
    given: list[int] = []

    def change(record: Record) -> dict[str, Any]:
        if record.data == b"record 4":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"n": int(record.data.split()[1])}

    def process(batch: TrackedBatch) -> None:
        given.append(batch.df.count())
        if len(given) <= 3:
            raise ConnectionError("the warehouse is down")
        done.extend(row.n for row in batch.map_records(change, "n int").collect())

    errors: list[str] = []
    for _ in range(15):
        try:
            tracked_query.run(process, retry_limit=0)
        except Exception as exc:  # noqa: BLE001  # Spark's, of whatever class
            errors.append(str(exc))
        else:
            break
    assert all("warehouse is down" in error for error in errors[:3])
    assert all("Python worker exited unexpectedly" in error for error in errors[3:])
    assert given[:5] == [6] * 5
    assert given[5] == 1
    assert sorted(done) == [0, 1, 2, 3, 5]
    (letter,) = tracked_query.letters
    assert (letter.data, letter.attempts) == (b"record 4", 1)
    assert letter.reason == "its process ended without an answer once"
    assert tracked_query.unresolved() == {}
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()


def test_failures_of_a_part_that_raises_are_discarded(
    tracked_query: TrackedQuery,
) -> None:
    """Those of a part that succeeds count, as in a whole batch."""
    tracked_query.stream.put(16)
    done: list[int] = []

    def process(batch: TrackedBatch) -> None:
        rows = {int(bytes(row.data).split()[1]): row for row in batch.df.collect()}
        batch.fail(
            [row for n, row in rows.items() if n == 3 or (9 in rows and n != 3)],
            "said",
            retry=False,
        )
        if 9 in rows:
            raise ValueError("nine")
        done.extend(n for n in rows if n != 3)

    tracked_query.run(process, bisect=True, retry_limit=0)
    assert sorted(done) == [n for n in range(16) if n not in (3, 9)]
    assert {letter.data: letter.reason for letter in tracked_query.letters} == {
        b"record 3": "said",
        b"record 9": "ValueError: nine",
    }


def test_a_sink_that_is_down_is_not_poison(tracked_query: TrackedQuery) -> None:
    """Most eighths fail, so the batch fails with its own error, and nothing is acked."""
    tracked_query.stream.put(20)
    calls: list[int] = []

    def process(batch: TrackedBatch) -> None:
        calls.append(batch.df.count())
        raise ConnectionError("the warehouse is down")

    with pytest.raises(Exception, match="the warehouse is down"):
        tracked_query.run(process, bisect=True, retry_limit=0)
    assert calls == [20, 10, 10, 5, 5, 5, 5, 3, 2, 3, 2, 3, 2, 3, 2]
    assert tracked_query.stream.checkpoints() == {}
    done: list[int] = []
    tracked_query.run(lambda batch: done.append(batch.df.count()), bisect=True, retry_limit=0)
    assert sum(done) == 20
    assert tracked_query.letters == []


def test_a_small_batch_in_an_outage_costs_its_records_no_attempt(
    tracked_query: TrackedQuery,
) -> None:
    """Two records, and nothing succeeds: they are queued with unchanged attempts, and processed
    once the sink works.
    """
    tracked_query.stream.put(2)
    attempts: list[int] = []
    calls: list[int] = []

    def process(batch: TrackedBatch) -> None:
        calls.append(1)
        if len(calls) <= 3:
            raise ConnectionError("down")
        attempts.extend(row.attempt for row in batch.df.collect())

    tracked_query.run(process, bisect=True, retry_limit=0)
    assert attempts == [1, 1]
    assert tracked_query.letters == []


def test_a_bad_record_that_comes_alone_is_dead_lettered_in_the_same_run(
    tracked_query: TrackedQuery,
) -> None:
    """Nothing else succeeds, so it is suspected of an outage for twenty seconds."""
    tracked_query.stream.put(1)
    attempts: list[int] = []

    def process(batch: TrackedBatch) -> None:
        attempts.extend(row.attempt for row in batch.df.collect())
        raise ValueError("always bad")

    tracked_query.run(process, bisect=True, retry_limit=1)
    assert set(attempts) == {1, 2}
    assert [(letter.attempts, letter.reason) for letter in tracked_query.letters] == [
        (2, "ValueError: always bad")
    ]
    assert tracked_query.unresolved() == {}


def test_a_batch_that_does_not_fail_is_processed_as_a_whole(tracked_query: TrackedQuery) -> None:
    tracked_query.stream.put(10)
    counts: list[int] = []
    tracked_query.run(lambda batch: counts.append(batch.df.count()), bisect=True)
    assert counts == [10]
    assert tracked_query.stream.checkpoints() == tracked_query.stream.tips()
