"""`kinesis-spout local`: a Kinesis on this machine, for trials and for tests that are not in
Python.
"""

import errno
import re
from typing import NamedTuple

import typer
from rich.console import Console
from rich.markup import escape

from kinesis_spout.cli.exit_codes import CliError, StopSignals
from kinesis_spout.cli.shared_options import errors, option, own_options
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer, FakeKinesisSettings, ServiceError

LOOPBACK = ("127.0.0.1", "localhost")
DEFAULT_PORT = 4567
_EXAMPLE_STREAM = "orders"
_REGION = re.compile(r"[a-z0-9-]+", re.ASCII)
_WAIT_S = 3_600.0  # `wait` needs a limit; a signal ends it at once


class _Stream(NamedTuple):
    name: str
    shards: int


@own_options(
    {
        "port": option("Port to listen on; 0 chooses a free one.", min=0, max=65_535),
        "host": "Address to listen on. Anybody who can reach it can read and write the streams.",
        "stream": option("Create this stream at the start. Repeatable.", metavar="NAME[:SHARDS]"),
        "region": "AWS region in the ARNs.",
        "limits": option(
            "Enforce the service's limits on reads, writes and stream operations.",
            "--limits/--no-limits",
        ),
    }
)
def local(
    *,
    port: int = DEFAULT_PORT,
    host: str = LOOPBACK[0],
    stream: list[str] | None = None,
    region: str = "us-east-1",
    limits: bool = False,
) -> None:
    """Serve a local Kinesis to boto3, Spark or any other client, until Ctrl-C.

    It has resharding, iterators that expire, and enhanced fan-out. It accepts
    any credentials and keeps everything in memory.
    """
    streams = [_parse_stream(text) for text in stream or []]
    if not _REGION.fullmatch(region):
        raise typer.BadParameter(f"{region!r} is not a region name", param_hint="--region")
    fake = FakeKinesis(
        settings=FakeKinesisSettings(region=region, limits=limits, control_limits=limits)
    )
    for wanted in streams:
        _create(fake, wanted)
    console = Console()
    with StopSignals() as stop, stop.deferred():
        if host not in LOOPBACK:
            errors().print(
                f"[bold yellow]warning:[/] anybody who can reach {escape(host)} can read and "
                "write the streams, because credentials are not checked",
                highlight=False,
                soft_wrap=True,
            )
        with _start_server(fake, host, port) as server:
            _print_usage(console, server.endpoint_url, region, streams)
            while not stop.wait(_WAIT_S):
                pass


def _parse_stream(text: str) -> _Stream:
    name, colon, shards = text.partition(":")
    if colon and not (shards.isascii() and shards.isdigit() and int(shards)):
        raise typer.BadParameter(
            f"{text!r} is neither NAME nor NAME:SHARDS, where SHARDS is 1 or more",
            param_hint="--stream",
        )
    return _Stream(name, int(shards) if colon else 1)


def _create(fake: FakeKinesis, wanted: _Stream) -> None:
    try:
        fake.create(wanted.name, shards=wanted.shards)
    except ServiceError as exc:
        raise typer.BadParameter(f"{wanted.name!r}: {exc.message}", param_hint="--stream") from exc


def _start_server(fake: FakeKinesis, host: str, port: int) -> FakeKinesisServer:
    """The listening server. Leaving it as a context manager ends it."""
    server = FakeKinesisServer(fake, host=host, port=port)
    try:
        server.start()
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise CliError(
                f"port {port} on {host} is in use",
                "choose another port with --port, or give --port 0 for a free port",
            ) from exc
        raise CliError(
            f"cannot listen on {host}, port {port}: {exc.strerror}",
            "choose another --host or --port",
        ) from exc
    return server


def _print_usage(console: Console, endpoint_url: str, region: str, streams: list[_Stream]) -> None:
    """Print the address and how to use it, in lines that can be copied."""
    created = ", ".join(
        f"{stream.name} ({stream.shards} shard{'s' * (stream.shards > 1)})" for stream in streams
    )
    name = streams[0].name if streams else _EXAMPLE_STREAM
    create = [] if streams else [f'kinesis.create_stream(StreamName="{name}", ShardCount=1)']
    lines = [
        (
            f"Local Kinesis at {endpoint_url}, in memory. Ctrl-C stops it. "
            f"Streams: {created or 'none yet'}"
        ),
        "",
        f"export AWS_ENDPOINT_URL_KINESIS={endpoint_url}",
        f"export AWS_DEFAULT_REGION={region}",
        "export AWS_ACCESS_KEY_ID=made-up",
        "export AWS_SECRET_ACCESS_KEY=made-up",
        "",
        "import boto3",
        'kinesis = boto3.client("kinesis")',
        *create,
        f'kinesis.put_record(StreamName="{name}", PartitionKey="key", Data=b"data")',
        "",
        "from spark_job import KinesisSource",
        "source = KinesisSource(",
        f'    stream="{name}",',
        '    application="try",',
        '    zookeeper="embedded:/tmp/try-zookeeper",',
        '    starting_position="TRIM_HORIZON",',
        f'    region="{region}",',
        f'    endpoint_url="{endpoint_url}",',
        ")",
    ]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
