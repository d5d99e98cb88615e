"""The options by which commands find an application and its stream, what they open by them, and how
they ask and print.
"""

import inspect
import json
import logging
import shlex
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from kinesis_spout.checkpoints.located import Counted
from kinesis_spout.checkpoints.moves import RequestedPosition
from kinesis_spout.checkpoints.recorded_move import service_time
from kinesis_spout.cli.exit_codes import CliError, one_sentence, operators_exit_code_of
from kinesis_spout.cli.plain_text import visible
from kinesis_spout.cli.shared_options import (
    AWS,
    CONNECTION_OPTIONS,
    connection_of,
    errors,
    flag,
    known_option,
    parse_pairs,
    root_options,
    security_of,
    shard_id_of,
    typed_text,
    usage_errors,
)
from kinesis_spout.clock import SystemClock
from kinesis_spout.config import AwsConfig, StreamRef, duration
from kinesis_spout.options import SECURITY
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.surroundings import place_in_words
from state.process import this_process
from state.zookeeper.embedded import LOCK_NAME, embedded_directory
from state.zookeeper.security import ZookeeperSecurity
from state.zookeeper.store import DEFAULT_ROOT, StoredApplications, ZookeeperStateStore

PATIENCE_S = 2.0


@contextmanager
def patience(say: Callable[[str], None], what: str) -> Iterator[None]:
    """Call `say`, in another thread, if the block takes longer than `PATIENCE_S`; and again when it
    has ended without an error, which speaks for itself.
    """
    lock, clock = threading.Lock(), SystemClock()
    began_s = clock.monotonic_s()
    is_over = is_said = False

    def complain() -> None:
        nonlocal is_said
        with lock:
            if not is_over:
                is_said = True
                say(f"no answer yet; still trying {what}")

    timer = threading.Timer(PATIENCE_S, complain)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            is_over = True
        timer.cancel()
    if is_said:
        say(f"answered after {duration(round(1000 * (clock.monotonic_s() - began_s)))}: {what}")


def services(aws: AwsConfig, stream: str, zookeeper: str | None = None) -> str:
    """What a command connects to, for `patience`."""
    also = "" if zookeeper is None else f", and ZooKeeper at {zookeeper}"
    return f"stream {stream} {place_in_words(aws, aws.region)}{also}"


_APPLICATION = flag(
    "application",
    "--application",
    "-a",
    callback=typed_text,
    envvar="KINESIS_SPOUT_APPLICATION",
)
_STREAM: dict[str, Any] = {"help": "Name or ARN of the stream.", "envvar": "KINESIS_SPOUT_STREAM"}
_STREAM_ARGUMENT = typer.Argument(metavar="STREAM", show_default=False, **_STREAM)
StreamArgument = Annotated[str, _STREAM_ARGUMENT]
_CONNECTION = typer.Option(
    metavar="KEY=VALUE", help="Any other connection option, e.g. profile=work. Repeatable."
)


def zookeeper_flag(*, panel: str | None = None, needs: str = "") -> Any:
    """The option --zookeeper, with its default from the environment."""
    environment = {"envvar": "KINESIS_SPOUT_ZOOKEEPER"}
    return flag("zookeeper", "--zookeeper", "-z", panel=panel, needs=needs, **environment)


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes without making them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]

# An application that was just killed owns the stream until its ZooKeeper session expires.
OWNER_WAIT_S = 15.0
RETRY_FOR_S = 15.0  # short, because a user is waiting at a terminal
_CONTINUES = " \\"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an application is, as the options say it. A command that was given no application has
    empty names, and opens the stream alone. What it opens is closed by the stack.
    """

    application: str = ""
    stream: str = ""
    zookeeper: str = ""
    zookeeper_root: str = DEFAULT_ROOT
    option: Sequence[str] | None = None
    region: str | None = None
    endpoint_url: str | None = None

    def aws(self, *, profile: str | None = None) -> AwsConfig:
        """How to connect to the service. Raises `ConfigError`."""
        named = {"region": self.region, "endpoint_url": self.endpoint_url, "profile": profile}
        return connection_of(named, self.option or ())

    def security(self) -> ZookeeperSecurity:
        """How to connect to ZooKeeper. Raises `ConfigError`."""
        return security_of(self.option or ())

    def client(self, stack: ExitStack) -> KinesisClient:
        """The stream. Does no I/O yet. Raises `ConfigError`."""
        client = KinesisClient(self.aws(), StreamRef.of(self.stream), retry_for_s=RETRY_FOR_S)
        return stack.enter_context(closing(client))

    def store(self, stack: ExitStack) -> ZookeeperStateStore:
        """The application's state. Does no I/O with ZooKeeper yet.

        Raises `ConfigError`, and `CliError` for an embedded ZooKeeper that never ran: connecting
        would create it.
        """
        self._check_has_run()
        return self.new_store(stack)

    def new_store(self, stack: ExitStack) -> ZookeeperStateStore:
        """The same, but an embedded ZooKeeper is created where there is none."""
        store = ZookeeperStateStore(
            self.zookeeper,
            root=self.zookeeper_root,
            application=self.application,
            stream=StreamRef.of(self.stream).name,
            security=self.security(),
        )
        return stack.enter_context(closing(store))

    def applications(self, stack: ExitStack) -> StoredApplications:
        """All applications under the root, whatever this place names. As `store` otherwise."""
        self._check_has_run()
        stored = StoredApplications(
            self.zookeeper, root=self.zookeeper_root, security=self.security()
        )
        return stack.enter_context(closing(stored))

    def patience(self, client: KinesisClient | None) -> AbstractContextManager[None]:
        """Note what the block is trying, if it takes long: the stream, ZooKeeper, or both."""
        zookeeper = self.zookeeper or None
        if client is None:
            return patience(note, f"ZooKeeper at {zookeeper}")
        return patience(note, services(client.aws, client.stream.name, zookeeper))

    def _check_has_run(self) -> None:
        directory = embedded_directory(self.zookeeper)
        if directory is not None and not (directory / LOCK_NAME).is_file():
            raise CliError(
                f"--zookeeper {self.zookeeper}: no ZooKeeper has run in that directory, so it has "
                "no state",
                "correct the directory, or start the application first",
            )


Need = Literal["required", "optional", "any", "free", "none"]
_MAY_LACK: dict[Need, tuple[str, ...]] = {
    "required": (),
    "optional": ("application", "zookeeper"),
    "any": ("application", "stream"),
    "free": ("application", "stream", "zookeeper"),
    "none": (),
}


def takes_place(
    *, application: Need = "required", aws: bool = True, stream_is_argument: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The decorated command gets a `Place`, and its command line the options of one: those that
    say which application come before the command's own, those that say how to connect behind them.

    `application`: whether the command needs one. Where it is "optional", the command needs
    ZooKeeper with it, and gets empty names else; with "any" it works on all applications in
    ZooKeeper where none is named, and the stream may be left out then; "free" needs nothing. `aws`:
    whether the command asks the service. `stream_is_argument`: STREAM instead of --stream.
    """
    named = {
        "application": _APPLICATION,
        "stream": _STREAM_ARGUMENT
        if stream_is_argument
        else typer.Option("--stream", "-s", **_STREAM),
        "zookeeper": zookeeper_flag(needs="--application" if application == "optional" else ""),
    }
    has_application = application != "none"
    first = [
        _parameter(name, Annotated[str | None, option], None)
        if name in _MAY_LACK[application]
        else _parameter(name, Annotated[str, option])
        for name, option in named.items()
        if has_application or name == "stream"
    ]
    last = [
        _parameter(name, Annotated[str | None, flag(name)], None)
        for name in ("region", "endpoint_url")
        if aws
    ]
    last.append(_parameter("option", Annotated[list[str] | None, _CONNECTION], None))
    if has_application:
        root = Annotated[str, flag("zookeeper_root")]
        last.insert(0, _parameter("zookeeper_root", root, DEFAULT_ROOT))
    names = {one.name for one in (*first, *last)}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(ctx: typer.Context, **given: Any) -> None:
            values = {name: given.pop(name) for name in names}
            if application == "any":
                _check_stream(**values)
            elif application == "optional":
                both = both_or_neither(ctx, values["application"], values["zookeeper"])
                values["application"], values["zookeeper"] = both
            place = Place(**{name: one for name, one in values.items() if one is not None})
            command(ctx, place=place, **given)

        context, *own = inspect.signature(command, eval_str=True).parameters.values()
        own = [one for one in own if one.name != "place"]
        parameters = [
            context,
            *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*first, *own, *last)),
        ]
        # typer reads the signature for the names and defaults, and the annotations for the types.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _check_stream(*, application: str | None, stream: str | None, **_: object) -> None:
    """Raises typer's usage error for an application without its stream."""
    if application is not None and stream is None:
        raise typer.BadParameter(
            "name the stream: an application has a state for each of its streams",
            param_hint="--stream",
        )


def both_or_neither(
    ctx: typer.Context, application: str | None, zookeeper: str | None
) -> tuple[str | None, str | None]:
    """An application and the ZooKeeper of its state, or None for both. Raises typer's usage error
    where one is missing, unless the environment gave the other one: that is for other commands.
    """
    if application is not None and zookeeper is not None:
        return application, zookeeper
    for name, value in (("application", application), ("zookeeper", zookeeper)):
        source = ctx.get_parameter_source(name)
        if value is not None and (source is None or source.name != "ENVIRONMENT"):
            raise typer.BadParameter(
                "give both, or neither of them", param_hint="--application, --zookeeper"
            )
    return None, None


_WITHOUT_AWS = frozenset({"pause", "resume", "reset"})
_WITHOUT_APPLICATION = frozenset({"redrive"})


def options_of(place: Place, command: str) -> list[tuple[str, str]]:
    """The options by which another command finds the same place, as far as it has them. A value
    that may be a secret is left to be filled in: `zookeeperPassword=...`.
    """
    found: list[tuple[str, str]] = []
    has_aws, has_application = command not in _WITHOUT_AWS, command not in _WITHOUT_APPLICATION
    if has_application:
        found += [("--application", place.application), ("--stream", place.stream)]
        found.append(("--zookeeper", place.zookeeper))
        if place.zookeeper_root != DEFAULT_ROOT:
            found.append(("--zookeeper-root", place.zookeeper_root))
    if has_aws and place.region is not None:
        found.append(("--region", place.region))
    if has_aws and place.endpoint_url is not None:
        found.append(("--endpoint-url", place.endpoint_url))
    for key, value in parse_pairs("--option", place.option or ()).items():
        option = CONNECTION_OPTIONS[field := known_option(key)]
        if (has_aws and field in AWS) or (has_application and field in SECURITY):
            shown = "..." if option.secret else value
            found.append(("--option", f"{option.name}={shown}"))
    return found


def whole_command(place: Place, arguments: Sequence[str]) -> str:
    """A command of `kinesis-spout` on that place, in one line, as a shell takes it."""
    return folded_command(place, arguments, sys.maxsize)[0]


def folded_command(place: Place, arguments: Sequence[str], width: int) -> list[str]:
    """The same in lines of `width` columns, if no word is longer. Each but the last ends with a
    backslash, so that all of them together can be pasted into a shell.
    """
    words = [shlex.quote(word) for word in ("kinesis-spout", *arguments)]
    words += [shlex.join(pair) for pair in options_of(place, arguments[0])]
    lines, last = list[str](), words[0]
    for word in words[1:]:
        if len(last) + 1 + len(word) + len(_CONTINUES) > width:
            lines.append(f"{last}{_CONTINUES}")
            last = f"  {word}"
        else:
            last = f"{last} {word}"
    return [*lines, last]


@contextmanager
def operators_command(ctx: typer.Context) -> Iterator[ExitStack]:
    """A command that looks at an application or changes one. The stack closes what it opens; an
    error becomes a sentence, and one of the operator's exit codes.
    """
    with (
        one_sentence(
            errors(), ctx=ctx, debug=root_options(ctx).debug, code_of=operators_exit_code_of
        ),
        ExitStack() as stack,
    ):
        yield stack


def note(sentence: str) -> None:
    """Print a note on stderr."""
    errors().print(f"note: {sentence}", highlight=False, markup=False, emoji=False, soft_wrap=True)


def log_as_notes() -> AbstractContextManager[None]:
    """Print warnings of the log as notes, while the block runs."""
    return shown_log(lambda record: note(record.getMessage()))


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print Python's warnings to users as notes, at the end of the block."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        if warning.category is UserWarning:
            note(str(warning.message))


@contextmanager
def shown_log(show: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Give `show` the log's warnings and errors while the block runs, from whichever thread."""
    root, handler = logging.getLogger(), _Shown(show)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Shown(logging.Handler):
    def __init__(self, show: Callable[[logging.LogRecord], None]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        self._show(record)


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
        for line in [json.dumps(value, indent=2)] if self.as_json else lines:
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
