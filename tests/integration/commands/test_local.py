"""`kinesis-spout local` as users run it: a process of its own, boto3 as its client, and a signal
that ends it.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tests.support.kinesis.calls import iterator, read_shard
from tests.support.kinesis.services import Service, kinesis_client
from tests.support.shell.command_line import call_cli, environment, running_cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT_S = 60.0
REFUSED = "ProvisionedThroughputExceededException"


@dataclass(frozen=True, slots=True)
class Local:
    """A running command: its process, its output, and the environment variables in the output."""

    process: subprocess.Popen[str]
    said: str

    @property
    def variables(self) -> dict[str, str]:
        exports = (line.partition("export ")[2] for line in self.said.splitlines())
        return dict(pair.split("=", 1) for pair in exports if pair)

    @property
    def endpoint_url(self) -> str:
        return self.variables["AWS_ENDPOINT_URL_KINESIS"]


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Local]:
    """The command on a free port, once it has printed its usage."""
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with running_cli(
        "local", "--port", "0", *arguments, cwd=folder, stdin=subprocess.DEVNULL, **pipes
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "endpoint_url=" in line:
                break
        yield Local(process, said)


def test_ctrl_c_ends_it_with_a_shells_exit_code(tmp_path: Path) -> None:
    """Also while clients are connected and one waits for events. Nothing is printed, and the port
    is free again.
    """
    with (
        running(tmp_path, "--stream", "orders") as local,
        kinesis_client(local.endpoint_url) as client,
    ):
        summary = client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
        made = client.register_stream_consumer(
            StreamARN=summary["StreamARN"], ConsumerName="reader"
        )
        answer = client.subscribe_to_shard(
            ConsumerARN=made["Consumer"]["ConsumerARN"],
            ShardId="shardId-000000000000",
            StartingPosition={"Type": "LATEST"},
        )
        with closing(answer["EventStream"]) as pushes:
            next(iter(pushes))
            local.process.send_signal(signal.SIGINT)
            _, complaints = local.process.communicate(timeout=LIMIT_S)
            assert (local.process.returncode, complaints) == (130, "")
        port = int(local.endpoint_url.rpartition(":")[2])
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_streams_are_created_at_the_start_and_limits_are_enforced_on_request(
    tmp_path: Path,
) -> None:
    """With the given numbers of shards and region. The first line of the output lists them. Of many
    reads at once some are refused; without `--limits` none is.
    """
    streams = ("--stream", "orders:3", "--stream", "clicks", "--region", "eu-central-1")
    with (
        running(tmp_path, *streams, "--limits") as local,
        kinesis_client(local.endpoint_url) as client,
    ):
        assert client.list_streams()["StreamNames"] == ["clicks", "orders"]
        summary = client.describe_stream_summary(StreamName="orders")["StreamDescriptionSummary"]
        assert summary["OpenShardCount"] == 3
        assert summary["StreamARN"].startswith("arn:aws:kinesis:eu-central-1:")
        assert "orders (3 shards), clicks (1 shard)" in local.said.splitlines()[0]
        assert REFUSED in codes_of_reads(client)


def test_what_it_prints_works_as_printed(tmp_path: Path) -> None:
    """The variables and the boto3 lines, in a process that has nothing else."""
    with running(tmp_path) as local:
        lines = local.said.splitlines()
        program = "\n".join(
            lines[lines.index("import boto3") : lines.index("from spark_job import KinesisSource")]
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(**local.variables),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with kinesis_client(local.endpoint_url) as client:
            assert read_shard(Service(client, "orders"), "shardId-000000000000").data == [b"data"]
            assert REFUSED not in codes_of_reads(client)


def codes_of_reads(client: Any) -> set[str | None]:
    """Of many reads of a shard at once."""
    start = iterator(Service(client, "orders"), "shardId-000000000000")
    return {refused(client, start) for _ in range(30)}


def refused(client: Any, start: str) -> str | None:
    try:
        client.get_records(ShardIterator=start)
    except ClientError as exc:
        return str(exc.response["Error"]["Code"])
    return None


def test_a_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = call_cli("local", "--port", port, cwd=tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == (
        f"error: port {port} on 127.0.0.1 is in use; choose another port with --port, or pass "
        "--port 0 for a free port\n"
    )
