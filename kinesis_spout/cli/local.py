"""`kinesis-spout local`: a Kinesis on this machine, for trials and for tests that are not in
Python.
"""

import errno
import re

import typer

from kinesis_spout.cli.exit_codes import CliError, StopSignals, stdout_errors
from kinesis_spout.cli.page_server import LOOPBACK, is_loopback
from kinesis_spout.cli.shared_options import (
    check_host,
    option,
    own_options,
    warn,
    wrong_usage,
)
from kinesis_spout.inspection.wording import counted
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer, FakeKinesisSettings, ServiceError

DEFAULT_PORT = 4567
_REGION = re.compile(r"[a-z0-9-]+", re.ASCII)


@own_options
def local(
    *,
    port: int = option(
        "Port to listen on; 0 chooses a free port.", default=DEFAULT_PORT, min=0, max=65_535
    ),
    host: str = option(
        "Address to listen on. Anyone who can reach this address can read and write the streams.",
        default=LOOPBACK,
    ),
    stream: list[str] | None = option(
        "Create this stream when the server starts. Repeatable.", metavar="NAME[:SHARDS]"
    ),
    region: str = option("AWS region that the server writes into its ARNs.", default="us-east-1"),
    limits: bool = option(
        "Enforce Kinesis's limits on reads, writes and stream operations.",
        "--limits/--no-limits",
    ),
) -> None:
    """Serve a local Kinesis to boto3, Spark or any other client, until Ctrl-C.

    The server supports resharding, enhanced fan-out and the expiry of shard
    iterators. It accepts any credentials and keeps everything in memory.
    """
    check_host(host)
    if not _REGION.fullmatch(region):
        raise wrong_usage("--region", f"{region!r} is not the name of an AWS region")
    fake = FakeKinesis(
        settings=FakeKinesisSettings(region=region, limits=limits, control_limits=limits)
    )
    streams = [_created(fake, text) for text in stream or []]
    with StopSignals() as stop, stop.deferred():
        if not is_loopback(host):
            warn(
                f"anyone who can reach {host} can read and write the streams, because local "
                "Kinesis accepts any credentials"
            )
        server = FakeKinesisServer(fake, host=host, port=port)
        try:
            server.start()
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                raise CliError(
                    f"port {port} on {host} is in use",
                    "choose another port with --port, or pass --port 0 for a free port",
                ) from exc
            raise CliError(
                f"cannot listen on {host}, port {port}: {exc.strerror}",
                "choose another --host or --port",
            ) from exc
        with server:
            with stdout_errors():
                typer.echo(_usage(server.endpoint_url, region, streams))
            stop.wait()


def _created(fake: FakeKinesis, text: str) -> tuple[str, int]:
    """Create a stream as NAME[:SHARDS] says. Returns both. Raises typer's usage error."""
    name, colon, shards = text.partition(":")
    if colon and not (shards.isascii() and shards.isdigit() and int(shards)):
        raise wrong_usage(
            "--stream", f"{text!r} must be NAME or NAME:SHARDS, with at least 1 shard"
        )
    count = int(shards) if colon else 1
    try:
        fake.create(name, shards=count)
    except ServiceError as exc:
        raise wrong_usage("--stream", f"{name!r}: {exc.message}") from exc
    return name, count


def _usage(endpoint_url: str, region: str, streams: list[tuple[str, int]]) -> str:
    created = ", ".join(f"{name} ({counted(count, 'shard')})" for name, count in streams)
    name = streams[0][0] if streams else "orders"
    create = f'kinesis.create_stream(StreamName="{name}", ShardCount=1)\n'
    return f"""\
Local Kinesis at {endpoint_url}, in memory. Ctrl-C stops it. Streams: {created or "none yet"}

export AWS_ENDPOINT_URL_KINESIS={endpoint_url}
export AWS_DEFAULT_REGION={region}
export AWS_ACCESS_KEY_ID=made-up
export AWS_SECRET_ACCESS_KEY=made-up

import boto3
kinesis = boto3.client("kinesis")
{"" if streams else create}\
kinesis.put_record(StreamName="{name}", PartitionKey="key", Data=b"data")

from spark_job import KinesisSource
source = KinesisSource(
    stream="{name}",
    application="try",
    zookeeper="embedded:/tmp/try-zookeeper",
    starting_position="TRIM_HORIZON",
    region="{region}",
    endpoint_url="{endpoint_url}",
)"""
