"""Commands that are named with all that says where the application is."""

from __future__ import annotations

import shlex

from kinesis_spout.cli.places import Place, folded_command, whole_command

PLACE = Place(
    "my etl",
    "orders",
    "zk1:2181/apps",
    "root",
    ("profile=work", "zookeeperpassword=hush", "awsSecretAccessKey=hush", "zookeeperTls=true"),
    "eu-west-1",
    "http://localhost:4567",
)


def test_a_command_has_the_options_of_its_place_that_it_takes() -> None:
    where = "--application 'my etl' --stream orders --zookeeper zk1:2181/apps --zookeeper-root root"
    aws = "--region eu-west-1 --endpoint-url http://localhost:4567"
    assert whole_command(PLACE, ("peek", "1", "7")) == (
        f"kinesis-spout peek 1 7 {where} {aws} --option profile=work "
        "--option zookeeperPassword=... --option awsSecretAccessKey=... --option zookeeperTls=true"
    )
    assert whole_command(PLACE, ("resume",)) == (
        f"kinesis-spout resume {where} --option zookeeperPassword=... --option zookeeperTls=true"
    )
    assert whole_command(PLACE, ("redrive", "PATH")) == (
        f"kinesis-spout redrive PATH {aws} --option profile=work --option awsSecretAccessKey=..."
    )
    plain = Place("etl", "orders", "zk1", "kinesis-spout", None)
    assert whole_command(plain, ("reset",)) == (
        "kinesis-spout reset --application etl --stream orders --zookeeper zk1"
    )


def test_a_folded_command_is_the_same_for_a_shell() -> None:
    lines = folded_command(PLACE, ("checkpoint", "skip", "--shard", "1", "7"), 50)
    assert max(map(len, lines)) <= 50
    assert all(line.endswith(" \\") for line in lines[:-1])
    pasted = "\n".join(lines).replace("\\\n", "")
    assert shlex.split(pasted) == shlex.split(
        whole_command(PLACE, ("checkpoint", "skip", "--shard", "1", "7"))
    )
