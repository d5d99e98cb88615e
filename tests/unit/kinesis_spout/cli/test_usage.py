"""Wrong options are said in a sentence, before anything is read or started."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from tests.support.shell.consuming import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake


@pytest.fixture
def orders(fake_kinesis: ServedFake) -> ServedFake:
    fake_kinesis.model.create("orders", shards=2)
    return fake_kinesis


PLACE = "--application a --stream s --zookeeper 127.0.0.1:1"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f"rum {PLACE}", "rum"),
        ("consume", "STREAM"),
        ("consume orders --application a", "--zookeeper"),
        ("consume orders --raw --exec cat", "--raw"),
        ("consume orders --max-records 0", "--max-records"),
        ("consume orders --option nonsense", "--option"),
        ("consume orders --scheme jsn", "scheme 'jsn' is not known; use text, raw, cloudwatch-lo"),
        ("consume orders --scheme json:id", "found the end where a type"),
        ("consume orders --scheme gzip+nothing", "scheme 'nothing' is not known"),
        (
            "consume orders --scheme no.such:Scheme",
            "scheme no.such:Scheme cannot be loaded (ModuleNotFoundError",
        ),
        ("consume orders --scheme decimal:Decimal", "decimal:Decimal is not a scheme"),
        ("produce orders --key a --key-from b", "--key-from"),
        ("produce orders --json --key a", "--json"),
        ("shards orders --application a", "--application"),
        ("shards orders --zookeeper 127.0.0.1:1", "--application"),
        ("shards orders --lag", "--application"),
        ("local --port 0 --stream orders:0", "--stream"),
        ("local --port 0 --stream 'no spaces'", "--stream"),
        ("local --port 0 --region 'us east'", "--region"),
        ("reset --stream s --zookeeper 127.0.0.1:1", "--application"),
        ("reset --application a --zookeeper 127.0.0.1:1", "--stream"),
        ("reset --application a --stream s", "--zookeeper"),
        ("reset --application a --stream s --zookeeper 'no server'", "no server"),
        (f"pause {PLACE} --timeout long", "long"),
        (f"checkpoint history {PLACE} --since -999999999d", "-999999999d"),
        (f"checkpoint rewind {PLACE} --to -999999999d", "-999999999d"),
        (f"checkpoint set {PLACE} --to -999999999d", "-999999999d"),
        ("redrive dead --yes --since LATEST", "is not a time"),
        ("redrive dead --yes --limit 0", "--limit"),
        ("redrive dead --yes --format csv", "--format"),
        ("doctor --zookeeper a:b:c", "is not a ZooKeeper connect string"),
        ("doctor --stream 'or ders'", "is not a valid stream name"),
        ("doctor --conf spark.a=b", "--master"),
        ("doctor --option awsSecretAccessKey=hush", "awsAccessKeyId"),
        ("doctor --option awsAccesKeyId=hush", "did you mean awsAccessKeyId?"),
        (
            "doctor --stream orders --region us-east-1 --read-mode efo",
            "--consumer-name: with --read-mode efo, set either",
        ),
        ("drill", "pass the name of a drill"),
        ("drill kill-drivr", "did you mean kill-driver"),
        ("drill kill-driver --spout --process m:f", "need a Spark job"),
        ("drill kill-driver --region eu-west-1", "--stream-prefix"),
        ("drill kill-driver --process nocolon", "module:function"),
        ("drill kill-driver --payload no_such_module:f", "no_such_module"),
    ],
)
def test_wrong_usage_is_exit_code_2(
    orders: ServedFake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(orders, *shlex.split(line))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert says in " ".join(ended.stderr.replace("│", " ").split())
    assert "hush" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--from", "yesterday"), "option --from: 'yesterday' is not a starting position"),
        (("--until", "soon"), "option --until: 'soon' is not a time"),
        (
            ("--shard", "shardId-00000000001"),
            (
                "option --shard names shard 'shardId-00000000001', which the stream does not list; "
                "did you mean shardId-000000000001?"
            ),
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
        (("--exec", "python 'quote"), 'option --exec: "python \'quote" is not a valid'),
        (("--read-mode", "efo"), "option --consumer-name: "),
    ],
)
def test_a_bad_value_is_one_sentence(
    orders: ServedFake, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = run(orders, "consume", "orders", *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"error: {sentence}")
    assert ended.stderr.count("\n") == 1
