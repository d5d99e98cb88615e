"""The options by which commands find an application and its stream, and what they open by them."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Annotated

import typer

from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.patience import services
from kinesis_spout.cli.shared_options import connection_of, errors, security_of
from kinesis_spout.config import StreamRef
from kinesis_spout.service.client import KinesisClient
from state.zookeeper.embedded import LOCK_NAME, embedded_directory
from state.zookeeper.store import ZookeeperStateStore

Application = Annotated[str, typer.Option(help="Name under which the checkpoints are stored.")]
Stream = Annotated[str, typer.Option(help="Name or ARN of the stream.")]
Zookeeper = Annotated[
    str, typer.Option(help="Connect string (may end in a chroot), or embedded:DIRECTORY.")
]
ZookeeperRoot = Annotated[str, typer.Option(help="Path in ZooKeeper that holds all applications.")]
Region = Annotated[str | None, typer.Option(help="AWS region (default: the AWS configuration's).")]
EndpointUrl = Annotated[
    str | None, typer.Option(help="Another Kinesis endpoint, e.g. a local one.")
]
Connection = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Any other connection option, e.g. profile=work. Repeatable."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else.")]

# An application that was just killed owns the stream until its ZooKeeper session expires.
OWNER_WAIT_S = 15.0
RETRY_FOR_S = 15.0  # short, because a user is waiting at a terminal


def open_store(
    stack: ExitStack,
    zookeeper: str,
    *,
    root: str,
    application: str,
    stream: str,
    option: Sequence[str] | None,
) -> ZookeeperStateStore:
    """The application's state; `stack` closes it. Does no I/O yet. Raises `ConfigError`."""
    store = ZookeeperStateStore(
        zookeeper,
        root=root,
        application=application,
        stream=StreamRef.of(stream).name,
        security=security_of(option or ()),
    )
    return stack.enter_context(closing(store))


def open_client(
    stack: ExitStack,
    stream: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    option: Sequence[str] | None,
) -> KinesisClient:
    """The stream; `stack` closes it. Does no I/O yet. Raises `ConfigError`."""
    aws = connection_of({"region": region, "endpoint_url": endpoint_url}, option or ())
    client = KinesisClient(aws, StreamRef.of(stream), retry_for_s=RETRY_FOR_S)
    return stack.enter_context(closing(client))


def check_has_run(zookeeper: str) -> None:
    """Raise `CliError` for an embedded ZooKeeper that never ran: connecting would create it."""
    directory = embedded_directory(zookeeper)
    if directory is not None and not (directory / LOCK_NAME).is_file():
        raise CliError(
            f"--zookeeper {zookeeper}: no ZooKeeper has run in that directory, so there is no state"
        )


def of_services(client: KinesisClient, zookeeper: str) -> str:
    """What a command connects to, for `patience`."""
    return services(client.aws, client.stream.name, zookeeper)


def note(sentence: str) -> None:
    """Print a note on stderr."""
    errors().print(f"note: {sentence}", highlight=False, markup=False, emoji=False, soft_wrap=True)


@contextmanager
def log_as_notes() -> Iterator[None]:
    """Print warnings of the log as notes, while the block runs."""
    handler, root = _Notes(logging.WARNING), logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Notes(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note(record.getMessage())
