"""`checkpoint skip`, also where it is killed, on a FakeKinesis and a real ZooKeeper."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from state.failpoint import SKIP_STEPS
from tests.support.shell.consuming import run
from tests.support.shell.operators_shell import SHARD, Shell


def test_records_are_given_up_shown_and_put_back(shell: Shell) -> None:
    """A dry run writes nothing. The file's lines are those that `produce --json` takes."""
    numbers = shell.put("a", "b", "c")
    assert shell.consume() == ["a", "b", "c"]
    shell.leave_unresolved(numbers[0], numbers[1])
    named = ("skip", numbers[0], "--shard", "0")
    dry = shell.checkpoint(*named, "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    shown = [
        SHARD,
        f"  before  AFTER:{numbers[2]}  checkpoint none  2 unresolved",
        f"  after   AFTER:{numbers[2]}  checkpoint {numbers[0]}  1 unresolved",
        "  skips 1 record",
        f"    {numbers[0]}, attempts 3, reason: no rates",
    ]
    assert dry.stdout.splitlines() == [*shown, "nothing was written"]
    asked = shell.checkpoint(*named)
    assert (asked.returncode, shell.states()[SHARD].unresolved_count) == (1, 2)
    done = shell.checkpoint(*named, "--to", "letters.jsonl", "--yes")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [*shown, "saved 1 record to letters.jsonl", "skipped"],
    )
    (line,) = (shell.folder / "letters.jsonl").read_text().splitlines()
    letter = json.loads(line)
    assert (letter["data"], letter["partitionKey"], letter["attempts"]) == ("YQ==", "key", 3)
    again = shell.checkpoint("skip", "--all", "--shard", "0", "--to", "letters.jsonl", "--yes")
    assert (again.returncode, "already exists" in again.stderr) == (1, True)
    assert shell.checkpoint("skip", "--all", "--shard", "0", "--yes").returncode == 0
    assert shell.consume() == []
    letters = (shell.folder / "letters.jsonl").read_bytes()
    put = run(shell.fake, "produce", "orders", "--json", stdin=letters)
    assert put.returncode == 0
    assert shell.consume() == ["a"]


@pytest.mark.parametrize("step", SKIP_STEPS)
def test_a_kill_one_line_later_is_safe(shell: Shell, step: str) -> None:
    """The records are in the file before they are given up. The command can be given again at once,
    and nothing else has changed.
    """
    numbers = shell.put("a", "b")
    shell.consume()
    shell.leave_unresolved(*numbers)
    before = shell.states()[SHARD]
    shell.kill_at(step, "skip", numbers[0], "--shard", "0", "--to", "letters.jsonl", "--yes")
    assert json.loads((shell.folder / "letters.jsonl").read_text())["data"] == "YQ=="
    after = shell.states()[SHARD]
    given_up = step == "states-moved"
    assert [str(one.first) for one in after.unresolved] == (numbers[1:] if given_up else numbers)
    assert replace(after, unresolved=(), checkpoint=None) == replace(before, unresolved=())
    rest = shell.checkpoint("skip", "--all", "--shard", "0", "--to", "rest.jsonl", "--yes")
    assert rest.returncode == 0, rest.stderr
    assert shell.states()[SHARD].unresolved == ()
    assert shell.consume() == []
