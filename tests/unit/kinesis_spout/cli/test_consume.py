"""`consume`, `produce` and `shards` say in a sentence that options are wrong, before they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from kinesis_spout.cli.main import app
from tests.support.shell.consuming import connection

if TYPE_CHECKING:
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
