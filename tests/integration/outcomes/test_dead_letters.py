"""Dead letters arrive unchanged in files, on a stream and at a function. A redrive puts them back
on their stream, each record once: in repeated runs, after kills, and when throttled.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.aggregation.packing import unpacked
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.dead_letter.files import (
    LEDGER_DDL,
    LEDGER_FOLDER,
    LetterFormat,
    LocalLetterFiles,
    RedriveError,
)
from kinesis_spout.dead_letter.letter import CHUNK_LETTERS, Letter
from kinesis_spout.dead_letter.outgoing import PART_BYTES, envelopes
from kinesis_spout.dead_letter.redrive import Found, Redrive, Selection
from kinesis_spout.errors import AccessDeniedError, RequestRefusedError, StreamNotFoundError
from kinesis_spout.service.record_putter import OutgoingRecord
from scheme.record import KPL_MAGIC
from spark_job.dead_letter import LETTER_DDL, DeadLetter, DeadLetterError
from spark_job.dead_letter.spark_files import SparkLetterFiles, letter_of, with_plain_times
from tests.support.aggregates.wire import aggregate_of
from tests.support.kinesis.large_records import largest, take_large_records
from tests.support.kinesis.refused_records import refuse
from tests.support.kinesis.services import ServedFake, kinesis_client
from tests.support.outcomes.letters import FIRST_FAILURE, Story, frame_of, gone, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.spark
ALL = [*Story().letters(5), gone(Story().letter(5))]


def read(spark: SparkSession, path: str, format: str) -> list[Letter]:  # noqa: A002  # Spark's name for it
    frame = spark.read.schema(LETTER_DDL).format(format).load(path)
    return sorted(
        map(letter_of, with_plain_times(frame).collect()),
        key=lambda letter: letter.message_id,
    )


@pytest.mark.parametrize("format", ["parquet", "json", "orc"])
def test_a_repeated_plan_replaces_only_its_own_letters(
    spark: SparkSession,
    tmp_path: Path,
    format: str,  # noqa: A002  # Spark's name for it
) -> None:
    """Also by fewer letters, and by none. Letters are read back as they were written, with times to
    the microsecond. Other columns are left out.
    """
    path = str(tmp_path / "dead")
    dead_letter = DeadLetter(format, path=path)
    more = frame_of(spark, ALL[:2]).selectExpr("*", "1 AS mine")
    dead_letter.write(more, plan_id="1-a")
    assert "mine" not in spark.read.format(format).load(path).columns
    dead_letter.write(frame_of(spark, ALL[2:]), plan_id="2-b")
    assert read(spark, path, format) == ALL
    dead_letter.write(frame_of(spark, ALL[:1]), plan_id="1-a")
    assert read(spark, path, format) == [ALL[0], *ALL[2:]]
    dead_letter.write(frame_of(spark, []), plan_id="2-b")
    assert read(spark, path, format) == ALL[:1]
    assert read(spark, f"{path}/plan=2-b", format) == []


def test_the_time_zone_of_the_session_changes_no_time(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        DeadLetter("json", path=str(tmp_path)).write(frame_of(spark, ALL), plan_id="1-a")
        got: list[Letter] = []
        DeadLetter.to(got.extend).write(frame_of(spark, ALL), plan_id="1-a")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert read(spark, str(tmp_path), "json") == ALL
    assert {letter.first_failure for letter in got} >= {FIRST_FAILURE}


def test_a_directory_that_cannot_be_written_is_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It has the plan, the place and the cause, and no stack, task number or payload."""
    (tmp_path / "file").write_text("")
    dead_letter = DeadLetter("parquet", path=f"file://{tmp_path}/file/dead")
    with pytest.raises(
        DeadLetterError,
        match="cannot write the dead letters of batch 1-a to parquet at file",
    ) as caught:
        dead_letter.write(frame_of(spark, ALL), plan_id="1-a")
    with pytest.raises(DeadLetterError, match="nope"):
        DeadLetter("nope").write(frame_of(spark, ALL), plan_id="1-a")
    text = str(caught.value)
    assert "no record of the batch is acked" in text
    assert len(text.splitlines()) == 1
    assert not any(word in text for word in ("TID", "\tat ", "order 1", "key 1"))


ORDERS = Story()
RATES = Story(shard="shardId-000000000001", reason="TimeoutError: no rates")
CLICKS = Story(stream="clicks", shard="shardId-000000000002", reason="Reject: 100% 'bad'")
PACKED = aggregate_of([b"one", b"two"], ["x", "y"])
FIRST, *_ = SIX = ORDERS.letters(6)
THIRD = replace(
    FIRST,
    message_id=f"{FIRST.shard_id}:{FIRST.sequence_number}.2:4",
    sub_sequence_number=2,
    data=b"the third user record",
)
LATER = replace(FIRST, message_id=f"{FIRST.shard_id}:1000:5", attempts=5)
EMPTY = replace(ORDERS.letter(7), data=b"")
WHOLE = replace(ORDERS.letter(8), data=PACKED, sub_sequence_number=None)
NESTED = replace(ORDERS.letter(9), data=PACKED)
PLANS = {
    "1-a": [*SIX[::-1], FIRST, THIRD],
    "2-b": [
        FIRST,
        replace(gone(LATER), last_failure=FIRST_FAILURE + timedelta(days=1)),
        gone(ORDERS.letter(6)),
        NESTED,
        WHOLE,
        EMPTY,
    ],
    "3-c": [*RATES.letters(3), *CLICKS.letters(4)],
}


@dataclass(frozen=True)
class Dead:
    """Dead letters in a directory, written by Spark, and the service that has their streams.
    `by_spark`: whether Spark reads them, too.
    """

    spark: SparkSession
    path: str
    fake: ServedFake
    by_spark: bool = False
    opened: ExitStack = field(default_factory=ExitStack)

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
        format: LetterFormat | None = None,  # noqa: A002  # Spark's name
        **selection: object,
    ) -> Redrive:
        path = path or self.path
        local = None if self.by_spark else LocalLetterFiles.at(path)
        work = self.opened.enter_context(
            Redrive(
                local or SparkLetterFiles(self.spark, path),
                replace(Selection(reasons=reasons), **selection),  # type: ignore[arg-type]  # the tests' own words
                AwsConfig(**self.fake.aws),
            )
        )
        work.read(format)
        return work

    def on(self, stream: str = "orders") -> list[tuple[str | None, bytes]]:
        """Keys and payloads on the stream, in the order in which they were put."""
        (shard,) = self.fake.model.shards(stream)
        found = self.fake.model.records(stream, shard.shard_id)
        return [(record.partition_key, record.data) for record in found]


@pytest.fixture
def dead(spark: SparkSession, fake_kinesis: ServedFake, tmp_path: Path) -> Iterator[Dead]:
    fake_kinesis.model.create("orders")
    dead = Dead(spark, str(tmp_path / "dead"), fake_kinesis)
    with dead.opened:
        yield dead


@pytest.mark.parametrize("by_spark", [False, True])
def test_letters_of_several_plans_are_counted_and_come_back_once(
    dead: Dead, *, by_spark: bool
) -> None:
    """Read by Spark or without it. In the order of their sequence numbers, each on the stream that
    it came from. A record with several letters is put once, and the letter with a payload counts.
    User records share a sequence number. An aggregate that was dead-lettered whole comes back as
    its user records: under its own key it would come to any shard, where readers leave out what
    another shard owns.

    The ledger is kept per target stream, for all plans, and outside of them: a plan that is written
    again brings nothing back.
    """
    dead = replace(dead, by_spark=by_spark)
    for stream in ("clicks", "trial"):
        dead.fake.model.create(stream)
    for plan_id, letters in PLANS.items():
        dead.write(letters, plan_id=plan_id)
    found = dead.redrive().find()
    assert (found.to_put, found.put_before, found.without_payload) == (17, 0, 1)
    assert [(count.stream, count.reason, count.letters) for count in found.reasons] == [
        ("orders", ORDERS.reason, 10),
        ("clicks", CLICKS.reason, 4),
        ("orders", RATES.reason, 3),
    ]
    failures = found.reasons[2].first_failure, found.reasons[2].last_failure
    assert failures == (FIRST_FAILURE, RATES.letter(2).last_failure)
    assert dead.on() == [], "counting puts nothing"

    assert dead.redrive("timeouterror", target=StreamRef("trial")).put() == 3
    assert dead.redrive("no rates", path=f"{dead.path}/plan=3-c").put() == 3
    assert [dead.redrive().put(limit=2), dead.redrive().put(), dead.redrive().put()] == [2, 12, 0]
    assert dead.redrive().find() == Found(put_before=17, without_payload=1)
    assert dead.on("trial") == dead.on()[:3] == records_of(RATES.letters(3))
    assert dead.on("clicks") == records_of(CLICKS.letters(4))
    user_records: list[tuple[str | None, bytes | None]] = [("x", b"one"), ("y", b"two")]
    *orders, (_, nested) = dead.on()[3:]
    assert orders == [*records_of([FIRST, THIRD, *SIX[1:], EMPTY]), *user_records]
    # A first user record that is an aggregate itself: readers open the one around it, and not more.
    assert unpacked(nested) == [OutgoingRecord("key 9", PACKED)]

    assert dead.spark.read.parquet(dead.path).count() == sum(map(len, PLANS.values()))
    dead.write(SIX[:2], plan_id="1-a")
    dead.write([ORDERS.letter(12)], plan_id="4-d")
    assert dead.redrive().put() == 1


@pytest.mark.parametrize("by_spark", [False, True])
def test_the_ledger_of_a_file_lies_beside_the_file(
    dead: Dead, tmp_path: Path, *, by_spark: bool
) -> None:
    """Read by Spark or without it: a file has nothing inside of it."""
    dead = replace(dead, by_spark=by_spark)
    dead.write(SIX[:1], plan_id="1-a")
    files = tmp_path.glob("dead/plan=1-a/part-*.parquet")  # some partitions are empty
    written = max(files, key=lambda one: one.stat().st_size)
    alone = str(written.rename(tmp_path / "alone.parquet"))
    assert [dead.redrive(path=alone).put(), dead.redrive(path=alone).put()] == [1, 0]
    assert (tmp_path / "_redriven").is_dir()


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        (Selection(reasons=("timeouterror",)), 3),
        (Selection(reasons=("no rates", "100% 'BAD'")), 7),
        (Selection(reasons=("%",)), 4),
        (Selection(reasons=(".*",)), 0),
        (Selection(since=SIX[4].last_failure), 2),
        (Selection(until=SIX[1].last_failure), 3),
        (Selection(since=SIX[3].last_failure, until=SIX[5].last_failure), 3),
    ],
)
def test_a_selection_is_by_parts_of_reasons_and_by_the_last_failure(
    selection: Selection, count: int
) -> None:
    """In upper or lower case; patterns are plain text. From `since` to before `until`."""
    assert sum(map(selection.takes, [*SIX, *RATES.letters(3), *CLICKS.letters(4)])) == count


def test_an_aggregate_and_its_first_user_record_are_two_records(dead: Dead) -> None:
    """With the same numbers and the same message id: the one was delivered before the option was
    changed. The ledger tells them apart, in either order, and in another selection.
    """
    first = replace(ORDERS.letter(0), data=b"one", reason="Reject: as user record")
    whole = replace(ORDERS.letter(0), data=PACKED, sub_sequence_number=None)
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


@pytest.mark.parametrize("file", [False, True])
def test_a_path_with_brackets_is_no_pattern_for_spark(dead: Dead, *, file: bool) -> None:
    """Of a directory, and of one file in it. The ledger is found again, too."""
    dead = replace(dead, by_spark=True, path=f"{dead.path}[c]")
    dead.write(ORDERS.letters(1), format="json")
    written = max(Path(dead.path).glob("plan=*/part-*.json"), key=lambda one: one.stat().st_size)
    path = str(written) if file else dead.path
    assert dead.redrive(path=path).put() == 1
    assert dead.redrive(path=path).find() == Found(put_before=1)


def test_a_record_that_is_no_aggregate_is_put_once_however_it_was_delivered(dead: Dead) -> None:
    """Its letters were written before and after the option was changed."""
    unpacked_letters = ORDERS.letters(2)
    raw = [replace(one, sub_sequence_number=None) for one in unpacked_letters]
    dead.write([unpacked_letters[0], raw[0], raw[1]])
    assert dead.redrive().find().to_put == 2
    assert dead.redrive().put() == 2
    assert dead.on() == records_of(unpacked_letters)
    dead.write([unpacked_letters[1]], plan_id="2-b")
    assert dead.redrive().find() == Found(put_before=2)


def test_an_entry_of_a_ledger_that_knows_no_whole_records_counts_for_the_letter_that_is_there(
    dead: Dead,
) -> None:
    """Where there are both kinds of letters it may be of either, so both are put."""
    letters = ORDERS.letters(3)
    whole = [replace(one, data=PACKED, sub_sequence_number=None) for one in letters[1:]]
    now = FIRST_FAILURE
    entries = [
        ("orders", "orders", one.shard_id, one.sequence_number, 0, one.message_id, now)
        for one in letters
    ]
    earlier = LEDGER_DDL.removesuffix(", isWhole BOOLEAN")
    ledger = dead.spark.createDataFrame(entries, earlier)
    ledger.write.parquet(f"{dead.path}/{LEDGER_FOLDER}")
    dead.write([letters[0], letters[2], *whole])
    found = dead.redrive().find()
    assert (found.to_put, found.put_before) == (2, 2)
    assert dead.redrive().put() == 2
    assert dead.redrive().find() == Found(put_before=4)


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
    packed = KPL_MAGIC + bytes(len(largest(0)) - len(KPL_MAGIC))
    whole = replace(large, data=packed, sub_sequence_number=None)
    torn = replace(torn, data=bytes(2 * PART_BYTES))
    lines = [*envelopes(large), *envelopes(large)[:2], *envelopes(small), *envelopes(torn)[1:]]
    lines += envelopes(whole)
    Random(1).shuffle(lines)  # noqa: S311  # not a secret
    (tmp_path / "dead").mkdir()
    for number in range(2):
        (tmp_path / "dead" / f"{number}.json").write_bytes(b"\n".join(lines[number::2]))
    found = dead.redrive().find()
    assert (found.to_put, found.incomplete) == (3, 1)
    assert dead.redrive().put() == 3
    assert dead.on() == records_of([large, whole, small])
    assert dead.redrive().find() == Found(put_before=3, incomplete=1)


class KilledError(BaseException):
    """Stands for a kill of the process."""


class DyingFiles(LocalLetterFiles):
    """The files of a process that is killed before it writes its second chunk to the ledger."""

    def append(self, entries: Sequence[tuple[Any, ...]]) -> None:
        if entries and any(self.ledger()):
            raise KilledError
        super().append(entries)


def test_a_kill_between_put_and_ledger_puts_one_chunk_again_and_loses_none(dead: Dead) -> None:
    """A run that is stopped ends between chunks. It tells its progress after each."""
    letters = ORDERS.letters(2 * CHUNK_LETTERS + 1)
    dead.write(letters)
    work = dead.redrive()
    work.files = DyingFiles(Path(dead.path))
    with pytest.raises(KilledError):
        work.put()
    assert len(dead.on()) == 2 * CHUNK_LETTERS
    progress: list[int] = []
    stopped = dead.redrive().put(stopping=lambda: bool(progress), progress=progress.append)
    assert progress == [CHUNK_LETTERS] == [stopped]
    assert dead.redrive().put() == 1
    assert dead.on() == records_of([*letters[: 2 * CHUNK_LETTERS], *letters[CHUNK_LETTERS:]])


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


def test_letters_are_put_beside_one_that_the_stream_refuses(dead: Dead) -> None:
    """A request is refused as a whole, for one record that is too large for the stream. The error
    names its letter, which stays to be put.
    """
    letters = ORDERS.letters(5)
    letters[2] = replace(letters[2], data=bytes(2 * 1024 * 1024))
    dead.write(letters)
    with pytest.raises(RequestRefusedError, match=f"dead letter {letters[2].message_id} was not"):
        dead.redrive().put()
    assert dead.on() == records_of([*letters[:2], *letters[3:]])
    assert dead.redrive().find().to_put == 1


def test_letters_of_other_streams_are_put_where_one_stream_is_gone(dead: Dead) -> None:
    """In whatever order. The error names the stream, and its letters stay to be put."""
    last = Story(stream="zeros").letters(1)
    dead.write([*CLICKS.letters(2), *ORDERS.letters(3), *last])
    with pytest.raises(StreamNotFoundError, match="stream clicks"):
        dead.redrive().put()
    assert dead.on() == records_of(ORDERS.letters(3))
    assert dead.redrive().find().to_put == 3


def test_nothing_is_put_or_recorded_where_the_stream_or_the_ledger_is_out_of_reach(
    dead: Dead, tmp_path: Path
) -> None:
    dead.write(SIX)
    with pytest.raises(StreamNotFoundError, match="stream nowhere"):
        dead.redrive(target=StreamRef("nowhere")).put()
    ledger = tmp_path / "dead" / "_redriven"
    assert dead.spark.read.parquet(f"{ledger}/ledger").count() == 0
    shutil.rmtree(ledger)
    ledger.write_text("a file stands where the ledger belongs")
    with pytest.raises(Exception, match="_redriven"):
        dead.redrive().put()
    assert dead.on() == []


def test_files_of_something_else_are_refused(dead: Dead, tmp_path: Path) -> None:
    """Among dead letters, lines that are not letters are counted."""
    (tmp_path / "dead" / "plan=0-0").mkdir(parents=True)
    (tmp_path / "dead" / "plan=0-0" / "some.json").write_text('{"a": 1}\nnot json\n')
    with pytest.raises(RedriveError, match="contain no dead letters"):
        dead.redrive()
    dead.write(ORDERS.letters(2), format="json")
    found = dead.redrive().find()
    assert (found.to_put, found.unreadable) == (2, 2)


def test_a_format_that_the_names_of_the_files_do_not_show_must_be_given(dead: Dead) -> None:
    dead.write(ORDERS.letters(1), format="json")
    assert dead.redrive().find().to_put == 1
    dead.write(ORDERS.letters(2), format="parquet", plan_id="2-b")
    with pytest.raises(RedriveError, match="--format"):
        dead.redrive()
