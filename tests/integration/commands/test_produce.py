"""`kinesis-spout produce` as users run it, on a FakeKinesis."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.support.aggregates.delivered import delivered
from tests.support.shell.consuming import LIMIT_S, run, running
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from tests.support.kinesis.services import ServedFake


def held(fake: ServedFake, stream: str = "orders") -> list[tuple[str | None, bytes]]:
    """(key, data) of all records on the stream, sorted."""
    shards = fake.model.shards(stream)
    return sorted(
        (one.partition_key, one.data)
        for shard in shards
        for one in fake.model.records(stream, shard.shard_id)
    )


def test_each_line_is_a_record_under_a_key_of_its_own(orders: ServedFake) -> None:
    """Without its line end; the last line may lack one. There are more lines than one request
    takes.
    """
    lines = [f"line {number}".encode() for number in range(1_200)]
    ended = run(orders, "produce", "orders", stdin=b"\n".join(lines))
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        0,
        "",
        "put 1,200 records on stream orders\n",
    )
    assert sorted(data for _, data in held(orders)) == sorted(lines)
    assert len({key for key, _ in held(orders)}) == 1_200


def test_empty_lines_are_skipped_and_counted(orders: ServedFake) -> None:
    ended = run(orders, "produce", "orders", stdin=b"one\n\n  \r\ntwo\n")
    assert (ended.returncode, len(held(orders))) == (0, 2)
    assert ended.stderr == "put 2 records on stream orders; 2 empty lines were skipped\n"


def test_one_key_for_all_or_a_field_of_each_line(orders: ServedFake) -> None:
    run(orders, "produce", "orders", "--key", "all", stdin=b"a\r\nb\n")
    assert held(orders) == [("all", b"a"), ("all", b"b")]
    orders.model.create("clicks")
    run(orders, "produce", "clicks", "--key-from", "id", stdin=b'{"id": "x", "n": 1}\n{"id": 7}\n')
    assert held(orders, "clicks") == [("7", b'{"id": 7}'), ("x", b'{"id": "x", "n": 1}')]


def test_lines_of_consume_are_put_under_their_keys(orders: ServedFake) -> None:
    """Text and bytes; a line without a key gets one."""
    orders.model.put("orders", "k", "grün".encode())
    orders.model.put("orders", "k", b"\xff\x00")
    written = run(orders, "consume", "orders", "--from", "TRIM_HORIZON", "--until", "now").stdout
    orders.model.create("copy")
    ended = run(
        orders, "produce", "copy", "--json", stdin=written.encode() + b'\n{"data": "no key"}\n'
    )
    assert ended.returncode == 0
    assert [pair for pair in held(orders, "copy") if pair[0] == "k"] == held(orders)
    assert len(held(orders, "copy")) == 3


def test_invalid_lines_are_reported_and_the_others_are_put(orders: ServedFake) -> None:
    """Exit code 1. The notes state the fault of each line, and not its content."""
    lines = [
        b'{"key": "k", "data": "good"}',
        b"secret",
        b'{"key": "k"}',
        b'{"key": "", "data": ""}',
        b'{"dataBase64": "!"}',
    ]
    ended = run(orders, "produce", "orders", "--json", stdin=b"\n".join(lines))
    assert ended.returncode == 1
    *notes, put, error = ended.stderr.splitlines()
    assert [note.split()[:3] for note in notes] == [
        ["note:", "line", f"{number}:"] for number in (2, 3, 4, 5)
    ]
    assert put == "put 1 record on stream orders"
    assert error.startswith("error: 4 lines were not put; correct the lines")
    assert "secret" not in ended.stderr
    assert held(orders) == [("k", b"good")]


def test_a_line_that_is_larger_than_a_record_may_be_is_named_and_the_others_are_put(
    orders: ServedFake,
) -> None:
    lines = [b"small"] * 20
    lines[13] = b"x" * (11 * 1024 * 1024)
    ended = run(orders, "produce", "orders", stdin=b"\n".join(lines))
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "note: line 14: the line has 11,534,336 bytes, but a record and its partition key may have "
    )
    assert "put 19 records" in ended.stderr
    assert len(held(orders)) == 19


def test_no_line_is_in_doubt_on_a_stream_that_does_not_exist(orders: ServedFake) -> None:
    ended = run(orders, "produce", "nowhere", stdin=b"one\ntwo\n")
    put, error = ended.stderr.splitlines()
    assert (ended.returncode, put) == (1, "put 0 records on stream nowhere")
    assert ". 0 records were put. The other lines were not put; check the stream" in error


def test_a_line_is_put_while_its_writer_goes_on(orders: ServedFake) -> None:
    """A signal ends it: complete lines are put, an incomplete one is not."""
    with running(orders, "produce", "orders") as process:
        assert process.stdin is not None
        process.stdin.write("first\n")
        process.stdin.flush()
        wait_until(lambda: [data for _, data in held(orders)] == [b"first"])
        process.stdin.write("half a li")
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)  # communicate ends the input, which would complete the line
        _, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, said) == (143, "put 1 record on stream orders\n")
    assert [data for _, data in held(orders)] == [b"first"]


def test_lines_are_packed_into_aggregates_for_their_shards(orders: ServedFake) -> None:
    """Readers of each shard get the lines whose keys are its own, under these keys."""
    lines = [f'{{"id": "{number}"}}'.encode() for number in range(3_000)]
    ended = run(
        orders, "produce", "orders", "--aggregate", "--key-from", "id", stdin=b"\n".join(lines)
    )
    assert (ended.returncode, ended.stderr) == (0, "put 3,000 records on stream orders\n")
    assert len(held(orders)) < 100
    expected = sorted((str(number), line) for number, line in enumerate(lines))
    assert sorted(delivered(orders.model, "orders")) == expected
