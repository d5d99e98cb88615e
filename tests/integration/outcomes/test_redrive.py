"""A redrive puts the selected dead letters back on their stream, each record once.

Also in repeated runs, after kills, and when throttled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.aggregation.packing import UserRecord
from kinesis_spout.aggregation.user_records import unpacked
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import AccessDeniedError, StreamNotFoundError
from kinesis_spout.testing import FakeKinesisSettings, throttle
from spark_job.dead_letter.dead_letter import DeadLetter, Letter
from spark_job.dead_letter.letter import CHUNK_LETTERS
from spark_job.dead_letter.redrive import Found, Redrive, Selection
from spark_job.dead_letter.redrive_files import RedriveError
from spark_job.dead_letter.redrive_ledger import FOLDER, LEDGER_DDL, RedriveLedger
from spark_job.dead_letter.stream_sink import PART_BYTES, envelopes
from tests.support.aggregates.wire import aggregate_of
from tests.support.kinesis.large_records import largest, take_large_records
from tests.support.kinesis.refused_records import refuse
from tests.support.kinesis.services import (
    ACCESS_KEY,
    REGION,
    SECRET_KEY,
    ServedFake,
    kinesis_client,
    serve,
)
from tests.support.outcomes.letters import FIRST_FAILURE, Story, frame_of, gone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ORDERS = Story()
RATES = Story(shard="shardId-000000000001", reason="TimeoutError: no rates")


@dataclass(frozen=True)
class Dead:
    """Dead letters in a directory, and the service that has their streams."""

    spark: SparkSession
    path: str
    fake: ServedFake

    def write(
        self,
        letters: list[Letter],
        *,
        plan_id: str = "1-a",
        format: str = "parquet",  # noqa: A002  # Spark's name
    ) -> None:
        DeadLetter(format, path=self.path).write(frame_of(self.spark, letters), plan_id=plan_id)

    def redrive(
        self,
        *reasons: str,
        path: str | None = None,
        format: str | None = None,  # noqa: A002  # Spark's name
        **selection: object,
    ) -> Redrive:
        aws = AwsConfig(
            region=REGION,
            endpoint_url=self.fake.endpoint_url,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
        )
        wanted = replace(Selection(reasons=reasons), **selection)  # type: ignore[arg-type]  # the tests' own words
        return Redrive.open(self.spark, path or self.path, format=format, selection=wanted, aws=aws)

    def on(self, stream: str = "orders") -> list[tuple[str | None, bytes]]:
        """Keys and payloads on the stream, in the order in which they were put."""
        shards = self.fake.model.shards(stream)
        found = [
            record for shard in shards for record in self.fake.model.records(stream, shard.shard_id)
        ]
        return [(record.partition_key, record.data) for record in found]


@pytest.fixture
def dead(spark: SparkSession, fake_kinesis: ServedFake, tmp_path: Path) -> Dead:
    fake_kinesis.model.create("orders")
    return Dead(spark, str(tmp_path / "dead"), fake_kinesis)


def records_of(letters: list[Letter]) -> list[tuple[str | None, bytes | None]]:
    return [(letter.partition_key, letter.data) for letter in letters]


@pytest.mark.parametrize("format", ["parquet", "json", "orc"])
def test_letters_come_back_with_payload_and_key_and_a_second_run_puts_none(
    dead: Dead,
    format: str,  # noqa: A002  # Spark's name
) -> None:
    """They are put in the order of their sequence numbers. Counting them puts nothing."""
    letters = [*ORDERS.letters(12), *RATES.letters(3)]
    dead.write(letters[::-1], format=format)
    found = dead.redrive().find()
    assert (found.to_put, found.put_before, found.unreadable) == (15, 0, 0)
    assert [(count.reason, count.letters) for count in found.reasons] == [
        (ORDERS.reason, 12),
        (RATES.reason, 3),
    ]
    assert (found.reasons[0].first_failure, found.reasons[0].last_failure) == (
        FIRST_FAILURE,
        letters[11].last_failure,
    )
    assert dead.on() == []
    assert dead.redrive().put() == 15
    assert dead.on() == records_of(letters)
    assert dead.redrive().find() == Found(put_before=15)
    assert dead.redrive().put() == 0
    assert len(dead.on()) == 15


def test_user_records_of_an_aggregate_are_put_back_one_by_one(dead: Dead) -> None:
    """They share a sequence number. The ledger tells them apart, and each is put once."""
    first = ORDERS.letter(0)
    third = replace(
        first,
        message_id=f"{first.shard_id}:{first.sequence_number}.2:4",
        sub_sequence_number=2,
        data=b"the third",
    )
    dead.write([first])
    assert dead.redrive().put() == 1
    dead.write([third], plan_id="2-b")
    assert dead.redrive().put() == 1
    assert dead.on() == records_of([first, third])
    assert dead.redrive().put() == 0


def test_an_aggregate_that_was_dead_lettered_whole_is_put_back_as_its_user_records(
    dead: Dead,
) -> None:
    """A query with `raw` has put it into a letter. Under its own key it would come to any shard,
    where readers leave out what another shard owns.
    """
    data = aggregate_of([b"one", b"two"], ["x", "y"])
    dead.write([replace(ORDERS.letter(0), data=data, sub_sequence_number=None)])
    assert dead.redrive().put() == 1
    assert dead.on() == [("x", b"one"), ("y", b"two")]
    assert dead.redrive().put() == 0


def test_an_aggregate_and_its_first_user_record_are_two_records(dead: Dead) -> None:
    """With the same numbers and the same message id: the one was delivered before the option was
    changed. The ledger tells them apart, in either order, and in another selection.
    """
    data = aggregate_of([b"one", b"two"], ["x", "y"])
    first = replace(ORDERS.letter(0), data=b"one", reason="Reject: as user record")
    whole = replace(ORDERS.letter(0), data=data, sub_sequence_number=None)
    other = replace(whole, message_id=f"{whole.shard_id}:1001:4", sequence_number="1001")
    dead.write([first, whole, other])
    found = dead.redrive().find()
    assert (found.to_put, sum(one.letters for one in found.reasons)) == (3, 3)
    assert dead.redrive("user record").put() == 1
    assert dead.on() == [("key 0", b"one")]
    assert dead.redrive().put() == 2
    assert dead.on()[1:] == [("x", b"one"), ("y", b"two")] * 2
    later = replace(first, message_id=f"{first.shard_id}:1001:4", sequence_number="1001")
    dead.write([later], plan_id="2-b")
    assert dead.redrive().put() == 1
    assert dead.redrive().find() == Found(put_before=4)


def test_an_entry_of_a_ledger_that_knows_no_whole_records_counts_for_the_letter_that_is_there(
    dead: Dead,
) -> None:
    """Where there are both kinds of letters it may be of either, so both are put."""
    data = aggregate_of([b"one", b"two"], ["x", "y"])
    letters = ORDERS.letters(3)
    whole = [replace(one, data=data, sub_sequence_number=None) for one in letters[1:]]
    now = FIRST_FAILURE
    entries = [
        ("orders", "orders", one.shard_id, one.sequence_number, 0, one.message_id, now)
        for one in letters
    ]
    earlier = LEDGER_DDL.removesuffix(", isWhole BOOLEAN")
    ledger = dead.spark.createDataFrame(entries, earlier)
    ledger.write.parquet(f"{dead.path}/{FOLDER}")
    dead.write([letters[0], letters[2], *whole])
    found = dead.redrive().find()
    assert (found.to_put, found.put_before) == (2, 2)
    assert dead.redrive().put() == 2
    assert dead.redrive().find() == Found(put_before=4)


def test_a_first_user_record_that_is_an_aggregate_is_put_back_as_one_record(dead: Dead) -> None:
    """As the later ones are: in an aggregate of its own, which readers open and not more."""
    data = aggregate_of([b"one", b"two"], ["x", "y"])
    dead.write([replace(ORDERS.letter(0), data=data)])
    assert dead.redrive().put() == 1
    ((_, put),) = dead.on()
    assert put is not None
    assert unpacked(put) == [UserRecord("key 0", data)]


def test_the_ledger_does_not_disturb_a_job_that_writes_more_letters(dead: Dead) -> None:
    """Readers of the path skip it. New letters are put, and old ones are not, even if their plan is
    written again.
    """
    dead.write(ORDERS.letters(3))
    assert dead.redrive().put() == 3
    assert dead.spark.read.parquet(dead.path).count() == 3
    dead.write(ORDERS.letters(3))
    dead.write([ORDERS.letter(3)], plan_id="2-b")
    assert dead.redrive().put() == 1
    assert dead.on() == records_of(ORDERS.letters(4))


def test_a_reason_selects_by_a_part_of_it_ignoring_case(dead: Dead) -> None:
    """Several reasons select the letters of each. Patterns and SQL are plain text."""
    other = Story(shard="shardId-000000000002", reason="Reject: 100% 'bad'")
    dead.write([*ORDERS.letters(2), *RATES.letters(3), *other.letters(4)])
    assert dead.redrive("timeouterror").find().to_put == 3
    assert dead.redrive("no rates", "such order").find().to_put == 5
    assert dead.redrive("100% 'BAD'").find().to_put == 4
    assert dead.redrive("%").find().to_put == 4
    assert dead.redrive(".*").find().to_put == 0
    assert dead.redrive("TIMEOUT").put() == 3
    assert dead.redrive().find().to_put == 6


def test_the_last_failure_selects_from_since_to_before_until(dead: Dead) -> None:
    letters = ORDERS.letters(10)
    dead.write(letters)
    third, sixth = letters[3].last_failure, letters[6].last_failure
    assert dead.redrive(since=third).find().to_put == 7
    assert dead.redrive(until=third).find().to_put == 3
    assert dead.redrive(since=third, until=sixth).put() == 3
    assert dead.on() == records_of(letters[3:6])


def test_a_record_with_several_letters_is_put_once(dead: Dead) -> None:
    """The letter with a payload counts, regardless of its attempt."""
    letter = ORDERS.letter(0)
    dead.write([letter, letter], plan_id="1-a")
    dead.write([letter], plan_id="2-b")
    later = gone(replace(letter, message_id=f"{letter.shard_id}:1000:5", attempts=5))
    dead.write([replace(later, last_failure=FIRST_FAILURE + timedelta(days=1))], plan_id="3-c")
    assert dead.redrive().find().to_put == 1
    assert dead.redrive().put() == 1
    assert dead.on() == records_of([letter])


def test_a_letter_without_payload_is_counted_and_not_put(dead: Dead) -> None:
    dead.write([ORDERS.letter(0), gone(ORDERS.letter(1)), replace(ORDERS.letter(2), data=b"")])
    found = dead.redrive().find()
    assert (found.to_put, found.without_payload) == (2, 1)
    assert dead.redrive().put() == 2
    assert dead.on() == [("key 0", ORDERS.letter(0).data), ("key 2", b"")]
    assert dead.redrive().find() == Found(put_before=2, without_payload=1)


def test_parts_of_a_letter_that_came_from_a_stream_are_put_as_one_record(
    dead: Dead, tmp_path: Path
) -> None:
    """Letters of a stream in files of JSON, as a delivery service writes them: in any order, and
    some twice. A letter with a missing part is counted and not put. The parts of a record that was
    delivered whole are its own, though another record has its message id.
    """
    with kinesis_client(dead.fake.endpoint_url) as client:
        take_large_records(client, "orders")
    large, small, torn = ORDERS.letters(3)
    large = replace(large, data=largest(0))
    whole = replace(large, data=bytes(len(largest(0))), sub_sequence_number=None)
    torn = replace(torn, data=bytes(2 * PART_BYTES))
    lines = [*envelopes(large), *envelopes(large)[:2], *envelopes(small), *envelopes(torn)[1:]]
    lines += envelopes(whole)
    Random(1).shuffle(lines)  # noqa: S311  # not a secret
    (tmp_path / "dead").mkdir()
    for number in range(2):
        (tmp_path / "dead" / f"{number}.json").write_bytes(b"\n".join(lines[number::2]))
    assert dead.redrive().find() == Found(
        to_put=3, incomplete=1, reasons=dead.redrive().find().reasons
    )
    assert dead.redrive().put() == 3
    assert dead.on() == records_of([large, whole, small])
    assert dead.redrive().find() == Found(put_before=3, incomplete=1)


def test_the_ledger_is_kept_per_target_stream(dead: Dead) -> None:
    """A trial on another stream does not keep letters from their own stream."""
    dead.fake.model.create("trial")
    dead.write(ORDERS.letters(2))
    assert dead.redrive(target=StreamRef("trial")).put() == 2
    assert dead.redrive(target=StreamRef("trial")).put() == 0
    assert (len(dead.on("trial")), dead.on()) == (2, [])
    assert dead.redrive().put() == 2
    assert dead.on() == records_of(ORDERS.letters(2))


def test_each_letter_is_put_on_the_stream_that_it_came_from(dead: Dead) -> None:
    dead.fake.model.create("rates")
    rates = Story(stream="rates")
    dead.write([*ORDERS.letters(2), *rates.letters(3)])
    assert {(count.target, count.letters) for count in dead.redrive().find().reasons} == {
        ("orders", 2),
        ("rates", 3),
    }
    assert dead.redrive().put() == 5
    assert (dead.on(), dead.on("rates")) == (
        records_of(ORDERS.letters(2)),
        records_of(rates.letters(3)),
    )


def test_a_limit_leaves_the_rest_for_the_next_run(dead: Dead) -> None:
    dead.write(ORDERS.letters(5))
    assert [dead.redrive().put(limit=limit) for limit in (2, 2, 2, 2)] == [2, 2, 1, 0]
    assert dead.on() == records_of(ORDERS.letters(5))


def test_the_directory_of_one_plan_shares_the_ledger_of_all(dead: Dead) -> None:
    """A ledger inside that directory would be lost when the plan is written again."""
    dead.write(ORDERS.letters(2), plan_id="1-a")
    dead.write([ORDERS.letter(2)], plan_id="2-b")
    assert dead.redrive(path=f"{dead.path}/plan=1-a").put() == 2
    assert dead.redrive().put() == 1


def test_it_stops_between_chunks_and_reports_its_progress(dead: Dead) -> None:
    dead.write(ORDERS.letters(2 * CHUNK_LETTERS + 1))
    progress: list[int] = []
    assert (
        dead.redrive().put(stopping=lambda: len(progress) == 2, progress=progress.append)
        == 2 * CHUNK_LETTERS
    )
    assert progress == [CHUNK_LETTERS, 2 * CHUNK_LETTERS]
    assert dead.redrive().put() == 1
    assert dead.on() == records_of(ORDERS.letters(2 * CHUNK_LETTERS + 1))


class KilledError(BaseException):
    """Stands for a kill of the process."""


def test_a_kill_between_put_and_ledger_puts_one_chunk_again_and_loses_none(
    dead: Dead, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = ORDERS.letters(2 * CHUNK_LETTERS + 1)
    dead.write(letters)
    with pytest.raises(KilledError):
        replace(dead.redrive(), ledger=DyingLedger(dead.spark, dead.path, SystemClock())).put()
    assert dead.redrive().find().to_put == CHUNK_LETTERS + 1
    assert dead.redrive().put() == CHUNK_LETTERS + 1
    assert dead.on() == records_of([*letters[: 2 * CHUNK_LETTERS], *letters[CHUNK_LETTERS:]])


class DyingLedger(RedriveLedger):
    """The ledger of a process that is killed before it writes its second chunk."""

    chunks = 0

    def append(self, put: Sequence[tuple[str, Letter]]) -> None:
        self.chunks += 1
        if self.chunks == 2:
            raise KilledError
        super().append(put)


def test_throttled_puts_are_repeated(spark: SparkSession, tmp_path: Path) -> None:
    """Whole requests and parts of requests are refused. Every record is on the stream once."""
    with serve(settings=FakeKinesisSettings(limits=True)) as fake:
        fake.model.create("orders")
        fake.model.faults.add(throttle(), operation="PutRecords", times=2)
        dead = Dead(spark, str(tmp_path / "dead"), fake)
        dead.write(ORDERS.letters(1_100))
        assert dead.redrive().put() == 1_100
        assert sorted(dead.on()) == sorted(records_of(ORDERS.letters(1_100)))


def test_letters_that_were_put_beside_a_refused_one_are_not_put_again(dead: Dead) -> None:
    """Else each run puts them once more for as long as the service refuses that one."""
    dead.fake.model.faults.add(
        refuse(3, "KMSAccessDeniedException"), operation="PutRecords", times=None
    )
    dead.write(ORDERS.letters(5))
    progress: list[int] = []
    with pytest.raises(AccessDeniedError):
        dead.redrive().put(progress=progress.append)
    assert progress == [4]
    assert dead.redrive().find().to_put == 1


def test_a_stream_that_does_not_exist_is_an_error_and_the_ledger_stays_empty(dead: Dead) -> None:
    dead.write(ORDERS.letters(2))
    with pytest.raises(StreamNotFoundError, match="stream nowhere"):
        dead.redrive(target=StreamRef("nowhere")).put()
    assert dead.redrive(target=StreamRef("nowhere")).find().to_put == 2


def test_a_ledger_that_cannot_be_written_stops_it_before_anything_is_put(
    dead: Dead, tmp_path: Path
) -> None:
    dead.write(ORDERS.letters(2))
    (tmp_path / "dead" / "_redriven").write_text("a file stands where the ledger belongs")
    with pytest.raises(Exception, match="_redriven"):
        dead.redrive().put()
    assert dead.on() == []


def test_files_of_something_else_are_refused(dead: Dead, tmp_path: Path) -> None:
    """Among dead letters, lines that are not letters are counted."""
    (tmp_path / "dead" / "plan=0-0").mkdir(parents=True)
    (tmp_path / "dead" / "plan=0-0" / "some.json").write_text('{"a": 1}\nnot json\n')
    with pytest.raises(RedriveError, match="hold no dead letters"):
        dead.redrive().find()
    dead.write(ORDERS.letters(2), format="json")
    found = dead.redrive().find()
    assert (found.to_put, found.unreadable) == (2, 2)


def test_a_format_that_the_names_of_the_files_do_not_show_must_be_given(
    dead: Dead, tmp_path: Path
) -> None:
    dead.write(ORDERS.letters(1), format="json")
    dead.write(ORDERS.letters(2), format="parquet", plan_id="2-b")
    with pytest.raises(RedriveError, match="--format"):
        dead.redrive()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letters.bin").write_bytes(b"x")
    with pytest.raises(RedriveError, match="--format"):
        dead.redrive(path=str(tmp_path / "other"))


def test_a_directory_without_letters_has_nothing_to_put(dead: Dead) -> None:
    """As of a job without failures, or of a repeated plan without letters."""
    dead.write([], format="json")
    assert dead.redrive().find() == Found()
    assert dead.redrive().put() == 0
