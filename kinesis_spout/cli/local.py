"""`kinesis-spout local`: a Kinesis on this machine, for trying things out and for tests that are
not in Python.
"""

import errno
import re
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape

from kinesis_spout.cli.errors import CliError, StopSignals, one_sentence
from kinesis_spout.cli.shared_options import errors, root_options
from kinesis_spout.testing import FakeKinesis, FakeKinesisServer, FakeKinesisSettings, ServiceError

LOOPBACK = ("127.0.0.1", "localhost")
DEFAULT_PORT = 4567
_EXAMPLE_STREAM = "orders"
_REGION = re.compile(r"[a-z0-9-]+", re.ASCII)
_WAIT_S = 3_600.0  # the signal ends it at once; only the wait has to have an end


class _Stream(NamedTuple):
    name: str
    shards: int


def local(
    ctx: typer.Context,
    *,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")
    ] = DEFAULT_PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Whoever reaches it can read and write.")
    ] = LOOPBACK[0],
    stream: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:SHARDS]", help="Create a stream at the start. May be repeated."
        ),
    ] = None,
    region: Annotated[str, typer.Option(help="The region that the ARNs name.")] = "us-east-1",
    limits: Annotated[
        bool,
        typer.Option(
            "--limits/--no-limits",
            help="Throttle as the service does: reads, writes, operations on streams.",
        ),
    ] = False,
) -> None:
    """Serve a local Kinesis to boto3, Spark, or any other client, until ctrl-C.

    With resharding, iterators that expire, and enhanced fan-out. Any credentials do; everything is
    kept in memory only.
    """
    streams = [_parsed(text) for text in stream or []]
    if not _REGION.fullmatch(region):
        raise typer.BadParameter(f"{region!r} is not the name of a region", param_hint="--region")
    fake = FakeKinesis(
        settings=FakeKinesisSettings(region=region, limits=limits, control_limits=limits)
    )
    for wanted in streams:
        _create(fake, wanted)
    console = Console()
    with (
        StopSignals() as stop,
        one_sentence(errors(), debug=root_options(ctx).debug),
        stop.deferred(),
    ):
        if host not in LOOPBACK:
            errors().print(
                f"[bold yellow]warning:[/] whoever can reach {escape(host)} can read and write "
                "here: credentials are not checked",
                highlight=False,
                soft_wrap=True,
            )
        with _served(fake, host, port) as server:
            _tell(console, server.endpoint_url, region, streams)
            while not stop.wait(_WAIT_S):
                pass


def _parsed(text: str) -> _Stream:
    name, colon, shards = text.partition(":")
    if colon and not (shards.isascii() and shards.isdigit() and int(shards)):
        raise typer.BadParameter(
            f"{text!r}: after the colon comes the number of shards, 1 or more",
            param_hint="--stream",
        )
    return _Stream(name, int(shards) if colon else 1)


def _create(fake: FakeKinesis, wanted: _Stream) -> None:
    try:
        fake.create(wanted.name, shards=wanted.shards)
    except ServiceError as exc:
        raise typer.BadParameter(f"{wanted.name!r}: {exc.message}", param_hint="--stream") from exc


def _served(fake: FakeKinesis, host: str, port: int) -> FakeKinesisServer:
    """The server, listening; leaving it as a context manager ends it."""
    server = FakeKinesisServer(fake, host=host, port=port)
    try:
        server.start()
    except OSError as exc:
        if exc.errno == errno.EADDRINUSE:
            raise CliError(
                f"port {port} on {host} is in use; choose another with --port, or --port 0 for a "
                "free one"
            ) from exc
        raise CliError(
            f"cannot listen on {host}, port {port}: {exc.strerror}; see --host and --port"
        ) from exc
    return server


def _tell(console: Console, endpoint_url: str, region: str, streams: list[_Stream]) -> None:
    """Where it is and how to use it, in lines that can be copied."""
    made = ", ".join(
        f"{stream.name} ({stream.shards} shard{'s' * (stream.shards > 1)})" for stream in streams
    )
    name = streams[0].name if streams else _EXAMPLE_STREAM
    create = [] if streams else [f'kinesis.create_stream(StreamName="{name}", ShardCount=1)']
    lines = [
        (
            f"Kinesis answers at {endpoint_url}, in memory only; ctrl-C ends it. Streams: "
            f"{made or 'none yet'}"
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
        f'source = KinesisSource(stream="{name}", application="try", zookeeper="embedded:/tmp/try-zookeeper",',
        f'                       starting_position="TRIM_HORIZON", region="{region}", endpoint_url="{endpoint_url}")',
    ]
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
