"""A run of an operator's command: its application, its connections, and how it asks and prints."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property, partial
from typing import Annotated, Any

import typer
from rich.console import Console

from kinesis_spout.checkpoints.located import Counted
from kinesis_spout.checkpoints.recorded_move import service_time
from kinesis_spout.checkpoints.requested_position import RequestedPosition
from kinesis_spout.cli.exit_codes import CliError
from kinesis_spout.cli.places import (
    OWNER_WAIT_S,
    AsJson,
    DryRun,
    Place,
    Yes,
    log_as_notes,
    operators_command,
    takes_place,
)
from kinesis_spout.cli.plain_text import visible
from kinesis_spout.cli.record_lines import json_text
from kinesis_spout.cli.shared_options import shard_id_of, usage_errors
from kinesis_spout.clock import SystemClock
from kinesis_spout.service.client import KinesisClient
from state.process import this_process
from state.zookeeper.store import ZookeeperStateStore

Options = Mapping[str, tuple[Any, Any]]
"""By name, what a command's signature has of an option: its annotation, and its default."""

Shard = Annotated[
    str, typer.Option(metavar="SHARD", parser=shard_id_of, help="Id or number of the shard.")
]
Shards = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SHARD",
        parser=shard_id_of,
        help="Id or number of a shard (default: all shards). Repeatable.",
    ),
]
AllowSkip = Annotated[
    bool,
    typer.Option(
        "--allow-skip",
        help=(
            "Also move the checkpoint of a shard where that skips unread records, or where its "
            "records have expired. Those records are never read."
        ),
    ),
]
DEFAULT_COUNT = 10_000
Count = Annotated[
    int,
    typer.Option(
        min=0,
        max=1_000_000,
        help=(
            "Count at most this many repeated or skipped records in each shard. Counting reads "
            "them."
        ),
    ),
]
TIME_HELP = "-2h, 14:00 (of today, UTC), or an ISO time like 2026-01-31T12:00:00Z."


class Operation:
    """One run of a command. It connects when it is first asked to, and its stack disconnects.

    `dry_run`, `yes`, `as_json`: the options of these names; False where the command has none.
    """

    def __init__(
        self,
        place: Place,
        stack: ExitStack,
        *,
        dry_run: bool = False,
        yes: bool = False,
        as_json: bool = False,
    ) -> None:
        self.place = place
        self.stack = stack
        self.clock = SystemClock()
        self.dry_run = dry_run
        self.as_json = as_json
        self._yes = yes

    @cached_property
    def client(self) -> KinesisClient:
        """The stream."""
        return self.place.client(self.stack)

    @cached_property
    def store(self) -> ZookeeperStateStore:
        """The application's state. Raises as `Place.store`."""
        return self.place.store(self.stack)

    @property
    def on_stream(self) -> str:
        """As `on stream orders`."""
        return f"on stream {self.place.stream}"

    def service_time(self) -> Callable[[], int]:
        """The service's time, asked for now."""
        return service_time(self.client, self.clock)

    def patience(self, *, aws: bool = True) -> AbstractContextManager[None]:
        """Note what the block waits for, if it takes long. `aws`: whether it asks the service."""
        return self.place.patience(self.client if aws else None)

    def own(self, store: ZookeeperStateStore) -> None:
        """Own the application until the command ends, but not in a dry run. Raises
        `OwnedByAnotherError` while it runs.
        """
        if not self.dry_run:
            store.ownership.acquire(this_process(self.clock.now_ms()), timeout_s=OWNER_WAIT_S)

    def own_started(self) -> None:
        """The same for an application that has state. Raises `CliError` for any other."""
        store = self.store
        if store.identity.read_start() is None and not store.shard_states.load():
            raise CliError(
                f"application {self.place.application} has no state {self.on_stream}",
                "correct the names, or start the application first",
            )
        self.own(store)

    def confirmed(self, question: str) -> bool:
        """Whether to write: not in a dry run. Raises typer's exit where the user says no."""
        if self.dry_run:
            say("nothing was written")
            return False
        if not self._yes and not typer.confirm(question):
            raise typer.Exit(1)
        return True

    def show(self, value: object, lines: Iterable[str]) -> None:
        """Print the value with --json, and the lines without."""
        for line in [json_text(value, indent=2)] if self.as_json else lines:
            say(line)


def operates(
    *, writes: bool = False, shows: bool = False, options: Options | None = None, **place: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The decorated command gets an `Operation`, and its command line the options of it: those of
    `takes_place`, which has the arguments `place`, --dry-run and --yes where it `writes`, and
    --json where it `shows` something. It gets the values of `options` by name. Errors, and warnings
    of the log, are sentences.
    """
    switches: dict[str, Any] = {"dry_run": DryRun, "yes": Yes} if writes else {}
    switches |= {"as_json": AsJson} if shows else {}
    added = dict(options or {}) | {name: (kind, False) for name, kind in switches.items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def run(ctx: typer.Context, *, place: Place, **given: Any) -> None:
            chosen = {name: given.pop(name) for name in switches}
            with operators_command(ctx) as stack:
                stack.enter_context(log_as_notes())  # until the connections are closed
                command(Operation(place, stack, **chosen), **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())
        parameter = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # takes_place reads it
            [
                inspect.Parameter(
                    "ctx", inspect.Parameter.POSITIONAL_ONLY, annotation=typer.Context
                ),
                *(one for one in own[1:] if one.kind is not inspect.Parameter.VAR_KEYWORD),
                *(
                    parameter(name, default=default, annotation=kind)
                    for name, (kind, default) in added.items()
                ),
            ]
        )
        return takes_place(**place)(run)

    return decorate


@usage_errors()
def past_time(text: str) -> RequestedPosition:
    """The parser of an option that is a time in the past. Raises typer's usage error."""
    requested = RequestedPosition.parse(text)
    if not requested.is_time:
        raise typer.BadParameter(
            f"{text} is not a time; use -2h, 14:00, or an ISO time like 2026-01-31T12:00:00Z"
        )
    return requested


def say(line: str) -> None:
    """Print a line on stdout as it is."""
    Console().print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def reason_text(reason: str | None) -> str:
    """Why a record failed."""
    return "none was given" if reason is None else visible(reason)


def records_of(count: Counted | int, kind: str = "record") -> str:
    """As `1 record`, `12 records`, `more than 10000 records`, or `nothing`."""
    return "nothing" if str(count) == "0" else f"{count} {kind}{'' if str(count) == '1' else 's'}"
