"""`checkpoint` and `peek` as a user runs them, on a FakeKinesis and a real ZooKeeper."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from state.position import PositionKind
from state.process import this_process
from tests.support.aggregates.wire import aggregate_of
from tests.support.shell.command_line import ASCII_LOCALE
from tests.support.shell.operators_shell import SHARD, Shell
from tests.support.state.zookeeper import kazoo_client

if TYPE_CHECKING:
    from subprocess import CompletedProcess


def peek(shell: Shell, sequence: str, *options: str, **variables: str) -> CompletedProcess[str]:
    return shell.run(
        "peek", SHARD, sequence, "--stream", "orders", *options, *shell.endpoint, **variables
    )


def test_a_shard_is_set_back_and_read_again(shell: Shell) -> None:
    """Shown before and after; a dry run and a missing yes write nothing. The history has it."""
    numbers = shell.put("a", "b", "c")
    assert shell.consume() == ["a", "b", "c"]
    to = ("set", "--shard", SHARD, "--to", f"AT:{numbers[1]}")
    dry = shell.checkpoint(*to, "--dry-run")
    shown = dry.stdout.splitlines()
    assert (dry.returncode, dry.stderr) == (0, "")
    assert shown[:2] == [SHARD, f"  before  AFTER:{numbers[2]}"]
    assert shown[2].startswith(f"  after   AT:{numbers[1]}  (arrived 20")
    assert shown[3:] == ["  repeats 2 records", "nothing was written"]
    uncounted = shell.checkpoint(*to, "--dry-run", "--count", "0").stdout.splitlines()
    assert uncounted[3] == "  repeats more than 0 records"
    asked = shell.checkpoint(*to)
    assert (asked.returncode, asked.stdout.splitlines()[:4]) == (1, shown[:4])
    assert shell.consume() == []
    done = shell.checkpoint(*to, "--yes")
    assert (done.returncode, done.stdout.splitlines()) == (0, [*shown[:4], "moved"])
    assert shell.consume() == ["b", "c"]
    told = json.loads(shell.checkpoint("history", "--json").stdout)
    assert [one["cause"] for one in told if one["cause"] != "settled"] == ["set"]
    lines = shell.checkpoint("history", "--shard", "0", "--since", "-1h").stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1] == f"    to    AFTER:{numbers[2]}"
    none = shell.checkpoint("history", "--shard", "7")
    said = "note: the history has no entry for shard shardId-000000000007\n"
    assert (none.returncode, none.stdout, none.stderr) == (0, "", said)


def test_a_skip_is_refused_unless_it_is_allowed(shell: Shell) -> None:
    shell.put("a")
    assert shell.consume() == ["a"]
    numbers = shell.put("b", "c")
    to = ("set", "--to", f"AT:{numbers[1]}", "--shard", SHARD, "--yes")
    refused = shell.checkpoint(*to)
    assert (refused.returncode, refused.stdout.splitlines()[-1]) == (1, "  skips 1 record")
    assert refused.stderr == (
        f"error: the move would skip unread records of {SHARD}; pass --allow-skip to skip "
        "these records\n"
    )
    assert shell.checkpoint(*to, "--allow-skip").returncode == 0
    assert shell.consume() == ["c"]


@pytest.mark.usefixtures("waits_briefly_for_an_owner")
def test_a_running_application_is_not_moved(shell: Shell) -> None:
    shell.put("a")
    shell.consume()
    before = shell.states()
    with closing(shell.store()) as store:
        store.ownership.acquire(this_process(1_000), timeout_s=1)
        assert shell.checkpoint("set", "--to", "TRIM_HORIZON", "--dry-run").returncode == 0
        shell.checkpoint("export", "--to", "etl.json")
        for command in (("set", "--to", "TRIM_HORIZON"), ("import", "etl.json", "--replace")):
            refused = shell.checkpoint(*command, "--yes")
            assert refused.returncode == 4, refused.stderr
            assert f"is already being run by process {this_process(0).pid} on" in refused.stderr
            waits, error = refused.stderr.splitlines()
            assert waits.startswith("warning: ")
            assert error.startswith("error: ")
    assert shell.states() == before


def test_usage_errors_and_errors_are_a_sentence(shell: Shell) -> None:
    for to in (("nonsense",), ("AT:5",), ("SHARD_END",), ("AT:5", "--shard", "a", "--shard", "b")):
        ended = shell.checkpoint("set", "--to", *to)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "--to" in ended.stderr
    for command in (("set", "--to", "LATEST"), ("export",)):
        ended = shell.checkpoint(*command, application="typo")
        assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
        assert "application typo has no stored state on stream orders" in ended.stderr


def test_show_is_a_line_for_each_shard(shell: Shell) -> None:
    numbers = shell.put("a")
    shell.consume()
    ended = shell.checkpoint("show")
    line = f"{SHARD}  active  read AFTER:{numbers[0]}  checkpoint {numbers[0]}  0 unresolved"
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", f"{line}\n")
    (listed,) = json.loads(shell.checkpoint("show", "--json").stdout)
    assert (listed["shardId"], listed["checkpoint"]) == (SHARD, numbers[0])


def test_a_reset_shows_what_it_removes(shell: Shell) -> None:
    """A dry run and a missing yes remove nothing; an application without state is no error."""
    (number,) = shell.put("a")
    shell.consume()
    dry = shell.checkpoint("reset", "--dry-run").stdout.splitlines()
    assert dry[1:] == [f"  {SHARD}  checkpoint {number}", "nothing was written"]
    assert shell.checkpoint("reset").returncode == 1
    assert list(shell.states()) == [SHARD]
    assert shell.checkpoint("reset", "--yes").stdout.splitlines() == [*dry[:2], "removed"]
    assert shell.states() == {}
    assert "nothing to reset" in shell.checkpoint("reset").stdout


def test_a_state_that_cannot_be_read_can_be_reset(shell: Shell) -> None:
    """As the error of the other commands advises."""
    shell.put("a")
    shell.consume()
    with kazoo_client(shell.zookeeper) as client:
        client.set(f"/kinesis-spout/etl/orders/{SHARD}/state", b"{")
    assert "or reset the application" in shell.checkpoint("show").stderr
    examined = json.loads(shell.operate("doctor", "--json", *shell.endpoint).stdout)
    sentences = {one["about"]: one["sentence"] for one in examined["findings"]}
    assert "or reset the application" in sentences["state"]
    said, *rest = shell.checkpoint("reset", "--yes").stdout.splitlines()
    assert said.startswith("cannot read the state of application ")
    assert rest == ["removed"]
    assert shell.consume() == ["a"]


def test_an_export_is_imported_elsewhere_and_over_what_is_there(shell: Shell) -> None:
    shell.put("a", "b")
    shell.consume()
    assert shell.checkpoint("export", "--to", "etl.json").returncode == 0
    there = Shell(shell.fake, f"{shell.zookeeper}-new", shell.folder)
    assert there.checkpoint("import", "etl.json", "--dry-run").returncode == 0
    assert there.states() == {}
    assert there.checkpoint("import", "etl.json", "--yes").returncode == 0
    assert there.states() == shell.states()
    shell.put("c")
    assert there.consume() == ["c"]
    refused = there.checkpoint("import", "etl.json", "--yes")
    assert (refused.returncode, "pass --replace" in refused.stderr) == (1, True)
    assert there.checkpoint("import", "etl.json", "--yes", "--replace").returncode == 0
    assert there.consume() == ["c"]


def test_a_damaged_export_is_called_a_file_and_no_node(shell: Shell) -> None:
    shell.put("a")
    shell.consume()
    shell.checkpoint("export", "--to", "etl.json")
    whole = (shell.folder / "etl.json").read_text()
    for text in (whole[:100], whole.replace('"format": 1', '"format": 99', 1), ""):
        (shell.folder / "etl.json").write_text(text)
        refused = shell.checkpoint("import", "etl.json", "--yes", "--replace")
        assert refused.returncode == 1
        assert "; pass a complete file that" in refused.stderr


def test_peek_shows_a_record_and_what_became_known_of_it(shell: Shell) -> None:
    """What a producer or an error has written is no command for the terminal."""
    (number,) = shell.put("a\x1b[31m")
    later = str(int(number) + 1)
    said = f"the shard does not contain record {later}; the record may have expired\n"
    assert (peek(shell, later).returncode, peek(shell, later).stdout) == (1, said)
    alone = peek(shell, number)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert alone.stdout.splitlines()[0] == number
    assert alone.stdout.splitlines()[2:] == ["  key      key", r"  data     a\x1b[31m"]
    shell.consume()
    shell.leave_unresolved(number, reason="no rates\x07")
    named = ("--application", "etl", "--zookeeper", shell.zookeeper)
    shown = peek(shell, number, *named)
    assert shown.stdout.splitlines()[4:] == [
        "  etl: unresolved",
        "    attempts 3, due 1970-01-01T00:00:01.000Z",
        "    first failure 1970-01-01T00:00:00.000Z, last failure 1970-01-01T00:00:00.500Z",
        r"    reason: no rates\x07",
    ]
    (record,) = json.loads(peek(shell, number, *named, "--json").stdout)["records"]
    told = (record["data"], record["attempts"], record["standing"])
    assert told == ("a\x1b[31m", 3, "unresolved")


def test_characters_that_the_locale_lacks_end_no_command(shell: Shell) -> None:
    """The record is shown to its end, with escapes; as JSON it is the same as elsewhere. The
    application's name is the one that was typed.
    """
    with closing(shell.store("étl")) as store:
        store.ownership.acquire(this_process(0), timeout_s=1)
    (number,) = shell.put("grün日")
    named = ("--application", "étl", "--zookeeper", shell.zookeeper)
    shown = peek(shell, number, *named, **ASCII_LOCALE)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[2:] == [
        "  key      key",
        r"  data     gr\xfcn\u65e5",
        r"  \xe9tl: not read yet, because the application has no state for the shard",
    ]
    as_json = peek(shell, number, *named, "--json", **ASCII_LOCALE)
    assert json.loads(as_json.stdout)["records"][0]["data"] == "grün日"
    status = shell.operate("status", *shell.endpoint, application="étl", **ASCII_LOCALE)
    assert status.stderr == ""
    assert "application  étl on stream orders" in status.stdout


def test_peek_shows_the_user_records_of_an_aggregate(shell: Shell) -> None:
    binary = bytes([255, 0])
    number = shell.fake.model.put("orders", "key", aggregate_of([b"x", binary]))
    sequence = number.partition(":")[2]
    both = peek(shell, sequence)
    lines = both.stdout.splitlines()
    assert lines[0] == f"record {sequence} is an aggregate of 2 user records"
    assert [line for line in lines if "data" in line] == [
        "  data     x",
        f"  data     {b64encode(binary).decode()}",
    ]
    second = peek(shell, f"{sequence}.1")
    assert second.stdout.splitlines()[1] == f"{sequence}.1"
    none = peek(shell, f"{sequence}.2")
    assert (none.returncode, none.stderr.count("\n")) == (1, 1)


def test_a_shard_is_set_to_the_user_record_after_another_one(shell: Shell) -> None:
    """Whether there is one, and also behind a record that is no aggregate."""
    number = shell.fake.model.put("orders", "key", aggregate_of([b"x", b"y", b"z"]))
    sequence = number.partition(":")[2]
    assert shell.consume() == ["x", "y", "z"]
    for sub, read in ((1, ["z"]), (2, []), (0, [])):  # AFTER:N.0 is AFTER:N
        moved = shell.checkpoint(
            "set", "--to", f"AFTER:{sequence}.{sub}", "--shard", "0", "--yes", "--allow-skip"
        )
        assert moved.returncode == 0, moved.stderr
        assert shell.consume() == read
    (plain,) = shell.put("plain")
    assert shell.consume() == ["plain"]
    shell.checkpoint("set", "--to", f"AFTER:{plain}.1", "--shard", "0", "--yes")
    shell.put("next")
    assert shell.consume() == ["next"]
    assert shell.states()[SHARD].read_position.kind is PositionKind.AFTER


def test_peek_shows_the_fields_that_a_scheme_reads_or_why_it_cannot(shell: Shell) -> None:
    """A decimal keeps its digits. The payload of a malformed record is shown as well."""
    good, bad = shell.put('{"id": 7, "total": 7.10}', '{"id": "x"}')
    scheme = ("--scheme", "json:id BIGINT, total DECIMAL(4,2)")
    value = '{"id": 7, "total": 7.10}'
    assert peek(shell, good, *scheme).stdout.splitlines()[3:] == [f"  value    {value}"]
    assert '"total": 7.10\n' in peek(shell, good, *scheme, "--json").stdout
    assert peek(shell, bad, *scheme).stdout.splitlines()[3:] == [
        """  malformed "field 'id' is not a BIGINT\"""",
        """  data     {"id": "x"}""",
    ]
    (record,) = json.loads(peek(shell, bad, *scheme, "--json").stdout)["records"]
    assert record["malformed"] == "field 'id' is not a BIGINT"
