"""Wrong options are said in a sentence, before anything is read or started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kinesis_spout.cli.main import app
from tests.support.shell.command_line import call_cli
from tests.support.shell.consuming import connection

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

    from tests.support.kinesis.services import ServedFake


@pytest.fixture
def orders(fake_kinesis: ServedFake, monkeypatch: pytest.MonkeyPatch) -> ServedFake:
    """A stream, and the environment variables that lead to it."""
    fake_kinesis.model.create("orders", shards=2)
    for name, value in connection(fake_kinesis).items():
        monkeypatch.setenv(name, value)
    return fake_kinesis


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("consume", "orders", "--application", "a"), "--zookeeper"),
        (("consume", "orders", "--raw", "--exec", "cat"), "--raw"),
        (("consume", "orders", "--max-records", "0"), "--max-records"),
        (("consume", "orders", "--option", "nonsense"), "--option"),
        (("consume",), "STREAM"),
        (("produce", "orders", "--key", "a", "--key-from", "b"), "--key-from"),
        (("produce", "orders", "--json", "--key", "a"), "--json"),
        (("shards", "orders", "--application", "a"), "--application"),
        (("shards", "orders", "--zookeeper", "127.0.0.1:1"), "--application"),
        (("shards", "orders", "--lag"), "--application"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    orders: ServedFake, arguments: tuple[str, ...], named: str
) -> None:
    ended = invoke(*arguments)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert named in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--from", "yesterday"), "option --from: 'yesterday' is not a starting position"),
        (("--until", "soon"), "option --until: 'soon' is not a time"),
        (
            ("--shard", "shardId-000000000009"),
            "option --shard: 'shardId-000000000009' is not a shard of stream orders",
        ),
        (("--message-timeout", "long"), "option --message-timeout: 'long' is not a duration"),
        (
            ("--dead-letter", "/no/such/folder/dead"),
            "option --dead-letter: '/no/such/folder/dead' cannot be written",
        ),
        (("--exec", ""), "option --exec: '' is empty"),
        (("--task-index", "1"), "option --task-index: 1 must be from 0 to"),
        (("--total-tasks", "2"), "option --total-tasks: 2 "),
        (("--aggregated-records", "keep"), "option --aggregated-records: 'keep' must be unpack,"),
        (("--exec", "python 'quote"), 'option --exec: "python \'quote" cannot be split'),
    ],
)
def test_a_bad_value_is_one_sentence(
    orders: ServedFake, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = invoke("consume", "orders", *arguments)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"error: {sentence}")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give the name of a drill"),
        (("kill-drivr",), "did you mean kill-driver"),
        (("kill-driver", "--spout", "--process", "m:f"), "need a Spark job"),
        (("kill-driver", "--region", "eu-west-1"), "--stream-prefix"),
        (("kill-driver", "--process", "nocolon"), "module:function"),
        (("kill-driver", "--payload", "no_such_module:f"), "no_such_module"),
    ],
)
def test_wrong_usage_starts_nothing_and_says_why(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    ended = call_cli("drill", *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert says in " ".join(ended.stderr.replace("│", " ").split())
    assert not ended.stdout


def test_a_kinesis_that_does_not_answer_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens on port 1."""
    monkeypatch.setattr("kinesis_spout.drills.stream._FIRST_ANSWER_S", 0.1)
    arguments = ("kill-driver", "--spout", "--localstack", "--endpoint-url", "http://127.0.0.1:1")
    ended = call_cli("drill", *arguments, cwd=tmp_path)
    assert ended.returncode == 3
    assert "http://127.0.0.1:1" in ended.stderr
