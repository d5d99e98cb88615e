"""`kinesis-spout consume` as users run it: processes and pipes, a FakeKinesis, and a real ZooKeeper
for the checkpoints.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aws_schema_registry.avro import AvroSchema

from kinesis_spout.programs import how_to_install
from scheme.avro_scheme import NOT_AVRO
from scheme.cloudwatch_logs import NOT_CLOUDWATCH
from scheme.glue_scheme import NO_FRAME, UNKNOWN_VERSION
from tests.support.outcomes.glue_cases import ORDER_1, Producer
from tests.support.outcomes.payload_cases import CONTROL, cloudwatch, gzipped
from tests.support.shell.command_line import (
    command_line,
    environment,
    hide,
    path_with,
    run_cli,
    without_waits,
)
from tests.support.shell.consuming import (
    LIMIT_S,
    command_that,
    connection,
    data_of,
    lines_of,
    run,
    running,
)
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake

FROM_START = ("--from", "TRIM_HORIZON")
ALL = (*FROM_START, "--until", "now")


def put(fake: ServedFake, count: int, *, first: int = 0) -> list[str]:
    texts = [f"order {number}" for number in range(first, first + count)]
    for text in texts:
        fake.model.put("orders", f"key of {text}", text.encode())
    return texts


# to stdout ----------------------------------------------------------------------------------------
def test_each_record_is_a_line_with_all_of_its_fields(orders: ServedFake) -> None:
    """UTF-8 as text, other payloads in base64, and nothing else on stdout."""
    orders.model.put("orders", "k", "grün".encode())
    orders.model.put("orders", "k", b"\xff\x00")
    ended = run(orders, "consume", "orders", *ALL)
    assert ended.returncode == 0
    text, binary = lines_of(ended.stdout)
    assert text["id"] == f"{text['shard']}:{text['sequence']}:1"
    assert {name: text[name] for name in ("key", "attempt", "data")} == {
        "key": "k",
        "attempt": 1,
        "data": "grün",
    }
    assert text["arrival"].endswith("Z")
    assert len(text["arrival"]) == len("2026-01-31T12:00:00.000Z")
    assert (binary["dataBase64"], "data" in binary) == ("/wA=", False)
    assert ended.stderr == "stream orders: 2 emitted, 2 acked\n"


def test_a_scheme_gives_fields_or_rows_and_the_rest_goes_to_the_dead_letters(
    orders: ServedFake, tmp_path: Path
) -> None:
    """A record is a line, however many rows it gives; also for a command, which answers it."""
    for data in (cloudwatch("a", "b"), CONTROL, gzipped(b"secret")):
        orders.model.put("orders", "k", data)
    letters = tmp_path / "letters"
    scheme = ("--scheme", "cloudwatch-logs", "--dead-letter", str(letters))
    ended = run(orders, "consume", "orders", *ALL, *scheme)
    two, none = sorted(lines_of(ended.stdout), key=lambda line: -len(line["rows"]))
    assert [(row["message"], row["logGroup"], row["timestamp"]) for row in two["rows"]] == [
        ("a", "/aws/lambda/orders", "2026-01-31T12:00:00Z"),
        ("b", "/aws/lambda/orders", "2026-01-31T12:00:00.001000Z"),
    ]
    assert (none["rows"], "data" in two) == ([], False)
    (letter,) = lines_of(letters.read_text())
    assert letter["reason"] == NOT_CLOUDWATCH
    assert ended.stderr.splitlines()[-1].startswith("error: 1 record failed and was dead-lettered")

    log = tmp_path / "log"
    orders.model.put("orders", "k", gzipped(b'{"id": 1.50}'))
    compressed = ("--scheme", "auto+json:id DECIMAL(38,2) NOT NULL")
    run(orders, "consume", "orders", *ALL, *compressed, "--exec", command_that("acks", log))
    (sent,) = lines_of(log.read_text())
    assert sent["value"] == {"id": 1.5}


_FORMATS = """
from kinesis_spout.config import AwsConfig
from kinesis_spout.service.glue_registry import GlueRegistry
from scheme import AvroScheme, GlueScheme

AWS = AwsConfig(region="us-east-1", access_key_id="a", secret_access_key="b")
REGISTRY = GlueRegistry(aws=AWS, endpoint_url={endpoint!r}, registry_name={registry!r})
ORDERS = GlueScheme(AvroScheme({schema!r}), REGISTRY)
"""


def test_a_redriven_payload_is_decoded_again(
    orders: ServedFake, tmp_path: Path, moto_endpoint: str
) -> None:
    """By a scheme of the user's module. The letters keep the frame as it was, so a record whose
    version another registry has is decoded once the scheme names that one; a damaged one is not.
    """
    producer = Producer(moto_endpoint)
    good = producer.record("orders", {"id": 7, "note": "x"}, AvroSchema(ORDER_1))
    put_ids = {data: orders.model.put("orders", "k", data) for data in (good, good[:-1], b"plain")}
    letters = tmp_path / "dead.jsonl"
    here: dict[str, Any] = {"cwd": tmp_path, "PYTHONPATH": path_with(tmp_path)} | connection(orders)

    def consume(registry: str, *arguments: str) -> tuple[list[Any], str]:
        text = _FORMATS.format(endpoint=moto_endpoint, registry=registry, schema=ORDER_1)
        (tmp_path / f"{registry.replace('-', '_')}.py").write_text(text)
        scheme = ("--scheme", f"{registry.replace('-', '_')}:ORDERS")
        ended = run_cli("consume", "orders", *ALL, *scheme, *arguments, **here)
        return [line["value"] for line in lines_of(ended.stdout)], ended.stderr

    values, told = consume("another", "--dead-letter", str(letters))
    assert values == []
    assert told.splitlines()[-1] == (
        f"error: 3 records failed and were dead-lettered to {letters}; "
        f"put the records on the stream again with `kinesis-spout redrive {letters}`"
    )
    dead = {base64.b64decode(one["data"]): one for one in lines_of(letters.read_text())}
    assert {data: one["reason"] for data, one in dead.items()} == {
        good: UNKNOWN_VERSION,
        good[:-1]: UNKNOWN_VERSION,
        b"plain": NO_FRAME,
    }
    # Several letters are written at a time, in any order.
    assert {data: one["messageId"] for data, one in dead.items()} == {
        data: f"{put_id}:1" for data, put_id in put_ids.items()
    }
    unknown = ("--reason", "schema version")
    ended = run_cli("redrive", str(letters), *unknown, "--yes", **here)
    assert (ended.returncode, "put 2" in ended.stdout.splitlines()) == (0, True), ended.stderr
    again = tmp_path / "again.jsonl"
    values, _ = consume(producer.name, "--dead-letter", str(again))
    assert values == [{"id": 7, "note": "x"}] * 2
    assert sorted(one["reason"] for one in lines_of(again.read_text())) == sorted(
        [NOT_AVRO, NOT_AVRO, NO_FRAME]
    )

    def peek(data: bytes, scheme: str) -> tuple[list[str], str]:
        shard, _, sequence = put_ids[data].partition(":")
        where = ("--stream", "orders", "--scheme", f"{scheme}:ORDERS")
        ended = run_cli("peek", shard, sequence, *where, **here)
        return ended.stdout.splitlines()[3:], ended.stderr

    module = producer.name.replace("-", "_")
    assert peek(good, module)[0] == ['  value    {"id": 7, "note": "x"}']
    assert peek(good, "another")[0][0] == f'  malformed "{UNKNOWN_VERSION}"'
    nowhere = _FORMATS.format(endpoint="http://127.0.0.1:9", registry="orders", schema=ORDER_1)
    (tmp_path / "nowhere.py").write_text(nowhere)
    shown, told = peek(good, "nowhere")
    assert (shown, told.count("error: ")) == ([], 1), told
    assert "Glue Schema Registry" in told


def test_max_records_of_one_shard_as_raw_payloads(orders: ServedFake) -> None:
    """`--raw` writes the payload and a line end. With `--no-stats` stderr stays empty. A shard is
    named by its number, as in the other commands.
    """
    put(orders, 30)
    second = "shardId-000000000001"
    wanted = ("--shard", "1", "--max-records", "3", "--raw", "--no-stats")
    ended = run(orders, "consume", "orders", *FROM_START, *wanted)
    held = [one.data.decode() for one in orders.model.records("orders", second)]
    assert ended.stdout.splitlines() == held[:3]
    assert ended.stderr == ""


def test_a_reader_that_leaves_ends_it_quietly_also_while_no_records_arrive(
    orders: ServedFake,
) -> None:
    put(orders, 5)
    with running(orders, "consume", "orders", *FROM_START) as process:
        assert process.stdout is not None
        for _ in range(5):
            process.stdout.readline()
        process.stdout.close()  # nothing is left to be written, which would show it too
        assert process.wait(LIMIT_S) == 141
        assert process.stderr is not None
        assert without_waits(process.stderr.read()) == ""


def test_head_gets_its_lines_and_what_was_not_written_is_not_acked(
    orders: ServedFake, zookeeper_chroot: str
) -> None:
    """More records than a pipe can hold: the next run starts before the point up to which the first
    one could write. The exit code is the one that a shell gives a program ended by SIGPIPE.
    """
    big = "x" * 10_000
    for number in range(200):
        orders.model.put("orders", "k", f"{number:03} {big}".encode())
    application = ("--application", "head", "--zookeeper", zookeeper_chroot)
    with running(orders, "consume", "orders", *FROM_START, *application) as process:
        head = ["head", "-n", "2"]
        first = subprocess.check_output(head, stdin=process.stdout, timeout=LIMIT_S)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(LIMIT_S) == 141
    assert [text[:3] for text in data_of(first.decode())] == ["000", "001"]
    rest = data_of(run(orders, "consume", "orders", *application, "--until", "now").stdout)
    assert {text[:3] for text in rest} >= {f"{number:03}" for number in range(20, 200)}


# with an application ------------------------------------------------------------------------------
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_an_application_continues_where_it_was_stopped(
    orders: ServedFake, zookeeper_chroot: str, number: signal.Signals
) -> None:
    """SIGTERM, and SIGHUP of a closed terminal, commit and release the ownership: the next run
    starts at once, with the records that the first one did not get.
    """
    early = put(orders, 40)
    application = ("--application", "watch", "--zookeeper", zookeeper_chroot)
    with ExitStack() as stack:
        # Under nohup the command would inherit that SIGHUP is ignored.
        stack.callback(signal.signal, signal.SIGHUP, signal.signal(signal.SIGHUP, signal.SIG_DFL))
        started = running(orders, "consume", "orders", *FROM_START, *application)
        process = stack.enter_context(started)
        assert process.stdout is not None
        got = [process.stdout.readline() for _ in early]
        process.send_signal(number)
        rest, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, rest) == (128 + number, "")
    assert without_waits(said) == "stream orders: 40 emitted, 40 acked\n"
    assert sorted(data_of("".join(got))) == sorted(early)
    late = put(orders, 40, first=40)
    again = run(orders, "consume", "orders", *application, "--until", "now")
    assert sorted(data_of(again.stdout)) == sorted(late)


@pytest.mark.parametrize("is_command", [False, True], ids=["stdout", "command"])
def test_a_run_of_so_many_records_has_finished_and_the_next_one_continues(
    orders: ServedFake, zookeeper_chroot: str, tmp_path: Path, *, is_command: bool
) -> None:
    """`status` does not call the application stalled, though records are unread."""
    put(orders, 10)
    place = ("--application", "some", "--zookeeper", zookeeper_chroot)
    to_command = ("--exec", command_that("acks", tmp_path / "log")) if is_command else ()
    limited = ("consume", "orders", *place, *FROM_START, "--max-records", "4", *to_command)
    for _ in range(2):
        ended = run(orders, *limited)
        assert (ended.returncode, "4 emitted, 4 acked" in ended.stderr) == (0, True), ended.stderr
    seen = run(orders, "status", *place, "--stream", "orders", "--window", "0s")
    assert (seen.returncode, "not running" in seen.stdout) == (0, True), seen.stdout


# through a command --------------------------------------------------------------------------------
def test_a_command_answers_in_any_order(orders: ServedFake, tmp_path: Path) -> None:
    """Nothing is written to stdout. The command's stderr is passed on, and its stdin is closed
    before it ends. `--until now` is the end of all shards, those of a split included.
    """
    early = put(orders, 20)
    orders.model.split("orders", "shardId-000000000000")
    early += put(orders, 20, first=20)
    command = ("--exec", command_that("acks in pairs", tmp_path / "log"))
    ended = run(orders, "consume", "orders", *ALL, *command)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr == "the input has ended\nstream orders: 40 emitted, 40 acked\n"
    assert sorted(data_of((tmp_path / "log").read_text())) == sorted(early)


def test_a_full_disk_is_an_error_that_names_stdout(orders: ServedFake) -> None:
    """/dev/full takes nothing, as a full disk does."""
    put(orders, 3)
    with (
        Path("/dev/full").open("wb") as full,
        running(orders, "consume", "orders", *ALL, stdout=full) as process,
    ):
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == (
        "error: cannot write to stdout: No space left on device; free some space, and start the "
        "command again. Records with incomplete lines are redelivered"
    )


@pytest.mark.parametrize(
    ("closed", "code", "shown", "said"),
    [
        ("2>&-", 0, 3, ""),
        (">&-", 1, 0, "error: cannot write to stdout: Bad file descriptor; "),
    ],
)
def test_a_stream_that_the_caller_has_closed_is_no_place_for_records(
    closed: str, code: int, shown: int, said: str, orders: ServedFake
) -> None:
    """Its number must not go to a socket. Messages are lost without a stderr, and nothing else."""
    put(orders, 3)
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    ended = subprocess.run(
        [*shell, *command_line("consume", "orders", *ALL)],
        env=environment(**connection(orders)),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ended.returncode == code, ended
    assert len(ended.stdout.splitlines()) == shown
    assert said in ended.stderr


def test_failed_records_are_retried_and_then_dead_lettered(
    orders: ServedFake, tmp_path: Path
) -> None:
    """The letter has the record and the reason; everything else is acked. The exit code is 1.
    `redrive` puts it back once, on a machine without PySpark.
    """
    texts = put(orders, 10)
    letters = tmp_path / "dead.jsonl"
    letters.write_text('{"torn')
    command = ("--exec", command_that("fails the sevens", tmp_path / "log"), "--retry-limit", "1")
    ended = run(orders, "consume", "orders", *ALL, *command, "--dead-letter", str(letters))
    put_back = f"put the records on the stream again with `kinesis-spout redrive {letters}`"
    assert (ended.returncode, ended.stderr.splitlines()[-2:]) == (
        1,
        [
            "stream orders: 11 emitted, 9 acked, 2 failed, 1 retried, 1 dead-lettered",
            f"error: 1 record failed and was dead-lettered to {letters}; {put_back}",
        ],
    )
    torn, line = letters.read_text().splitlines()
    assert torn == '{"torn'
    letter = json.loads(line)
    names = ("streamName", "partitionKey", "data", "attempts", "reason", "application")
    assert {name: letter[name] for name in names} == {
        "streamName": "orders",
        "partitionKey": "key of order 7",
        "data": base64.b64encode(b"order 7").decode(),
        "attempts": 2,
        "reason": "a seven",
        "application": None,
    }
    assert letter["messageId"] == f"{letter['shardId']}:{letter['sequenceNumber']}:2"
    hide("pyspark", tmp_path)
    here: dict[str, Any] = {"cwd": tmp_path, "PYTHONPATH": path_with(tmp_path)} | connection(orders)
    for put_back in ("put 1", "no dead letters to put"):
        ended = run_cli("redrive", str(letters), "--yes", **here)
        assert (ended.returncode, put_back in ended.stdout.splitlines()) == (0, True), ended.stderr
    assert "rows in the files that are not dead letters: 1" in ended.stdout
    elsewhere = run_cli("redrive", "s3a://dead", "--yes", **here)
    assert (elsewhere.returncode, how_to_install("spark") in elsewhere.stderr) == (1, True)
    again = data_of(run(orders, "consume", "orders", *ALL).stdout)
    assert sorted(again) == sorted([*texts, "order 7"])


def test_records_that_are_dropped_are_an_error(orders: ServedFake, tmp_path: Path) -> None:
    """Without --dead-letter nobody keeps them. A command may refuse a retry."""
    put(orders, 10)
    command = ("--exec", command_that("refuses the sevens", tmp_path / "log"))
    ended = run(orders, "consume", "orders", *ALL, *command)
    keep = "pass --dead-letter FILE to keep failed records"
    assert (ended.returncode, ended.stderr.splitlines()[-2:]) == (
        1,
        [
            "stream orders: 10 emitted, 9 acked, 1 failed, 1 dead-lettered",
            f"error: 1 record failed and was dropped; {keep}",
        ],
    )


def test_a_command_that_dies_is_an_error_and_its_records_are_read_again(
    orders: ServedFake, tmp_path: Path, zookeeper_chroot: str
) -> None:
    """Except for those that it has answered."""
    early = put(orders, 10)
    application = ("--application", "etl", "--zookeeper", zookeeper_chroot)
    command = ("--exec", command_that("dies at the third", tmp_path / "first"))
    died = run(orders, "consume", "orders", *FROM_START, *application, *command)
    assert died.returncode == 1
    assert "error: the command ended with exit code 3" in died.stderr
    assert "; repair the command; the next run redelivers the unanswered records" in died.stderr
    command = ("--exec", command_that("acks", tmp_path / "again"))
    again = run(orders, "consume", "orders", *application, "--until", "now", *command)
    assert again.returncode == 0
    answered = data_of((tmp_path / "first").read_text())[:2]
    assert sorted(data_of((tmp_path / "again").read_text())) == sorted(set(early) - set(answered))


def test_at_a_signal_the_command_gives_its_last_answers(
    orders: ServedFake, tmp_path: Path, zookeeper_chroot: str
) -> None:
    """It sees the end of its input, not the signal. The records that it has answered are
    committed.
    """
    put(orders, 10)
    log = tmp_path / "log"
    application = ("--application", "etl", "--zookeeper", zookeeper_chroot)
    arguments = (*application, *FROM_START, "--exec", command_that("acks", log))
    with running(orders, "consume", "orders", *arguments, start_new_session=True) as process:
        wait_until(lambda: log.exists() and log.read_text().count("\n") == 10)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert without_waits(said) == "the input has ended\nstream orders: 10 emitted, 10 acked\n"
    again = run(orders, "consume", "orders", *application, "--until", "now")
    assert again.stdout == ""
