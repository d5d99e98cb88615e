"""The options by which commands find an application and its stream, what they open by them, and how
they ask and print.
"""

import logging
import os
import shlex
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import typer
from rich.console import Console, RenderableType
from rich.measure import Measurement

from kinesis_spout.checkpoints.located import Counted
from kinesis_spout.checkpoints.moves import RequestedPosition
from kinesis_spout.checkpoints.recorded_move import service_time
from kinesis_spout.cli.exit_codes import (
    OPERATORS_CODES,
    CliError,
    Codes,
    StopSignals,
    one_sentence,
    stdout_errors,
)
from kinesis_spout.cli.record_lines import json_text
from kinesis_spout.cli.shared_options import (
    AWS,
    CONNECTION_OPTIONS,
    argument,
    as_command,
    connection_values,
    duration_option,
    errors,
    flag,
    known_option,
    note,
    option,
    parameter,
    parse_pairs,
    shard_id_of,
    tell,
    typed_text,
    usage_errors,
    warn,
    wrong_usage,
)
from kinesis_spout.clock import Clock, SystemClock
from kinesis_spout.config import AwsConfig, StreamRef, duration
from kinesis_spout.dead_letter.letter import sync_folder
from kinesis_spout.inspection.wording import visible
from kinesis_spout.options import SECURITY, connection_of, security_of
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.surroundings import place_in_words
from state.process import this_process
from state.zookeeper.embedded import unused_directory
from state.zookeeper.security import ZookeeperSecurity
from state.zookeeper.store import DEFAULT_ROOT, StoredApplications, ZookeeperStateStore

PATIENCE_S = 2.0
OWNER_WAIT_S = 15.0  # of an application that was just killed: until its session expires
RETRY_FOR_S = 15.0  # short, because a user is waiting at a terminal
FILE_WIDTH = 10_000
TIME_HELP = "A time such as -2h (two hours ago), 14:00 (today, in UTC) or 2026-01-31T12:00:00Z."
_CONTINUES = " \\"
_Shown = TypeVar("_Shown", bound=RenderableType)

# Options that several commands declare.
SHARDS = option(
    "Shard, by id (shardId-000000000012) or by number (12); default: all shards. Repeatable.",
    metavar="SHARD",
    parser=shard_id_of,
)
ALLOW_SKIP = option(
    "Allow the checkpoint to move past records that are unread or have expired. The application "
    "never reads the skipped records."
)
COUNT = option(
    "Maximum number of repeated or skipped records to count in each shard. The command reads the "
    "records to count them.",
    default=10_000,
    min=0,
    max=1_000_000,
)
REPLACE = option("Replace the application's existing state.")
WINDOW = duration_option(
    "Time to watch the shards before the verdict, such as 30s or 5m. With 0s, the command shows "
    "the verdict immediately, without checking whether positions move.",
    "10s",
)
ASK = option(
    "Read the newest record of at most this many shards, stalled shards first. Each read counts "
    "towards the shard's limit of 5 reads per second.",
    default=100,
    metavar="SHARDS",
    min=0,
)


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
        return connection_of(connection_values(self.option or (), **named))

    def security(self) -> ZookeeperSecurity:
        """How to connect to ZooKeeper. Raises `ConfigError`."""
        return security_of(connection_values(self.option or ()))

    def client(self, stack: ExitStack) -> KinesisClient:
        """The stream. Does no I/O yet. Raises `ConfigError`."""
        client = KinesisClient(self.aws(), StreamRef.of(self.stream), retry_for_s=RETRY_FOR_S)
        return stack.enter_context(closing(client))

    def store(self, stack: ExitStack, *, is_new: bool = False) -> ZookeeperStateStore:
        """The application's state. Does no I/O with ZooKeeper yet.

        Raises `ConfigError`, and `CliError` for an embedded ZooKeeper that never ran: connecting
        would create it, which is meant only where the state may be new.
        """
        if not is_new:
            self._check_has_run()
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

    def _check_has_run(self) -> None:
        if unused_directory(self.zookeeper) is not None:
            raise CliError(
                f"no ZooKeeper server has run in the directory of {self.zookeeper}, so there is "
                "no stored state",
                "correct the directory in --zookeeper, or start the application first",
            )


@dataclass
class Operation:
    """One run of a command. It connects when it is first asked to, and its stack disconnects.
    `signals` handles SIGINT and SIGTERM until then.

    `dry_run`, `yes`, `as_json`: the options of these names; False where the command has none.
    `is_new`: the application's state may be new.
    """

    place: Place
    stack: ExitStack
    signals: StopSignals
    dry_run: bool = False
    yes: bool = False
    as_json: bool = False
    is_new: bool = False
    clock: Clock = field(default_factory=SystemClock)

    @cached_property
    def client(self) -> KinesisClient:
        """The stream."""
        return self.place.client(self.stack)

    @cached_property
    def store(self) -> ZookeeperStateStore:
        """The application's state. Raises as `Place.store`."""
        return self.place.store(self.stack, is_new=self.is_new)

    @property
    def on_stream(self) -> str:
        """As `on stream orders`."""
        return f"on stream {self.place.stream}"

    def window(self, window_s: float) -> Callable[[], object] | None:
        """What blocks for a window, or until a signal comes, and says so on a terminal at its first
        call; None for a window of zero. Several threads may call it.
        """
        console = errors()
        told = [f"watching for {duration(window_s * 1000)} ..."] if console.is_terminal else []
        sentences = iter(told)

        def wait() -> None:
            for sentence in sentences:
                console.print(sentence, style="dim")
            self.signals.wait(window_s)

        return wait if window_s else None

    def service_time(self) -> Callable[[], int]:
        """The service's time, asked for now."""
        return service_time(self.client, self.clock)

    @contextmanager
    def patience(self, *, aws: bool = True, owning: bool = False) -> Iterator[None]:
        """Note what the block waits for if it takes longer than `PATIENCE_S`; and again when it has
        ended without an error, which speaks for itself. `aws`: whether it asks the service.
        `owning`: whether it waits for the application.
        """
        place, awaited = self.place, list[str]()
        if aws:
            of, stream = place.aws(), StreamRef.of(place.stream).name
            awaited.append(f"stream {stream} {place_in_words(of, of.region)}")
        awaited += [f"ZooKeeper at {place.zookeeper}"] if place.zookeeper else []
        awaited += [f"the ownership of application {place.application}"] if owning else []
        began_s = self.clock.monotonic_s()
        sentence = f"still waiting for {', or '.join(awaited)}"
        complaint = threading.Timer(PATIENCE_S, note, [sentence])
        complaint.daemon = True
        complaint.start()
        try:
            yield
        finally:
            is_said = complaint.finished.is_set()
            complaint.cancel()
            complaint.join()
        if is_said:
            waited_ms = round(1000 * (self.clock.monotonic_s() - began_s))
            note(f"the wait ended after {duration(waited_ms)}")

    def own(self) -> None:
        """Own the application until the command ends, but not in a dry run. Raises `CliError` for
        one without state, unless that may be new, and `OwnedByAnotherError` while it runs.
        """
        store = self.store
        is_there = self.is_new or store.identity.read_start() or store.shard_states.load()
        if not is_there:
            raise CliError(
                f"application {self.place.application} has no stored state {self.on_stream}",
                "correct --application or --stream, or start the application first",
            )
        if not self.dry_run:
            store.ownership.acquire(this_process(self.clock.now_ms()), timeout_s=OWNER_WAIT_S)

    def confirmed(self, question: str) -> bool:
        """Whether to write: not in a dry run. Raises typer's exit where the user says no."""
        if self.dry_run:
            say("nothing was written")
            return False
        if self.yes:
            return True
        try:
            is_confirmed = typer.confirm(question)
        except typer.Abort as exc:
            problem = "stdin ended before the question was answered, so nothing was written"
            raise CliError(problem, "pass --yes to skip the question") from exc
        if not is_confirmed:
            say("nothing was written")
            raise typer.Exit(1)
        return True

    def show(self, value: object, shown: Iterable[RenderableType]) -> None:
        """Print the value with --json, and the lines and screens without."""
        if self.as_json:
            say(json_text(value, indent=2))
            return
        for one in shown:
            if isinstance(one, str):
                say(one)
            else:
                show(stdout_console(), one)


def _stream_is_argument(ctx: typer.Context, name: str | None) -> None:
    if name is not None:
        typed = f"{ctx.info_name} {shlex.quote(name)}"
        raise wrong_usage("--stream", f"pass the stream's name without an option: {typed}")


# Other commands have this option.
_NO_STREAM_OPTION = option(
    "",
    "--stream",
    "-s",
    hidden=True,
    is_eager=True,
    callback=_stream_is_argument,
)
Need = Literal["required", "optional", "any", "free", "none"]
_PAIRS = "Set any other connection option, such as profile=work. Repeatable."
_WRITES = {
    "dry_run": (bool, option("Show the changes without making them.")),
    "yes": (bool, option("Do not ask for confirmation.", "--yes", "-y")),
}
_SHOWS = {"as_json": (bool, option("Print only JSON on stdout.", "--json"))}
_MAY_LACK: dict[Need, tuple[str, ...]] = {
    "required": (),
    "optional": ("application", "zookeeper"),
    "any": ("application", "stream"),
    "free": ("application", "stream", "zookeeper"),
    "none": (),
}


def command(
    application: Need = "required",
    *,
    aws: bool = True,
    stream_is_argument: bool = False,
    only_typed: str | None = None,
    writes: bool = False,
    shows: bool = False,
    is_new: bool = False,
    panel: str | None = None,
    more: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
    codes: Codes = OPERATORS_CODES,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The decorated command gets an `Operation`, and its command line the options that all commands
    share: those that say which application come before the command's own, those that say how to
    connect behind them. Errors, and warnings of the log, are sentences.

    - `application`: whether the command needs one. Where it is "optional", the command needs
      ZooKeeper with it, and gets empty names else; with "any" it works on all applications in
      ZooKeeper where none is named, and the stream may be left out then; "free" needs nothing.
    - `aws`: whether the command asks the service. `stream_is_argument`: STREAM instead of --stream.
    - `only_typed`: the option of these that no environment variable sets.
    - `writes`: has --dry-run and --yes. `shows`: has --json. `is_new`: see `Operation`.
    - `panel`: of the shared options.
    - `more`: types and declarations of options that the function takes as `**given`.
    """
    may_lack = _MAY_LACK[application]

    def named(name: str) -> dict[str, Any]:
        variable = None if name == only_typed else f"KINESIS_SPOUT_{name.upper()}"
        return {"envvar": variable, "panel": panel if name in may_lack else None}

    needs, stream = "--application" * (application == "optional"), "Name or ARN of the stream."
    place = {
        "application": flag(
            "application", "--application", "-a", callback=typed_text, **named("application")
        ),
        "stream": argument(stream, "STREAM", **named("stream"))
        if stream_is_argument
        else option(stream, "--stream", "-s", **named("stream")),
        "zookeeper": flag("zookeeper", "--zookeeper", "-z", needs=needs, **named("zookeeper")),
    }
    how = {
        "zookeeper_root": (
            str,
            flag("zookeeper_root", panel=panel, default=DEFAULT_ROOT, callback=typed_text),
        ),
        "region": (str | None, flag("region", panel=panel)),
        "endpoint_url": (str | None, flag("endpoint_url", panel=panel)),
        "option": (list[str] | None, option(_PAIRS, metavar="KEY=VALUE", panel=panel)),
    }
    if application == "none":
        del place["application"], place["zookeeper"], how["zookeeper_root"]
    if not aws:
        del how["region"], how["endpoint_url"]
    switches = (_WRITES if writes else {}) | (_SHOWS if shows else {})
    first = [
        parameter(name, str | None if name in may_lack else str, declared)
        for name, declared in place.items()
    ]
    last = [parameter(name, *one) for name, one in {**more, **switches, **how}.items()]
    if stream_is_argument:
        last.append(parameter("_no_option", str | None, _NO_STREAM_OPTION))

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def run(ctx: typer.Context, **given: Any) -> None:
            values = {name: given.pop(name) for name in (*place, *how)}
            given.pop("_no_option", None)
            # As of a script's variable that is not set: an option that is left out means more.
            if empty := [f"--{name}" for name in may_lack if values[name] == ""]:
                raise wrong_usage(", ".join(empty), "the name is empty; pass a name")
            if application == "any" and values["application"] is not None and not values["stream"]:
                raise wrong_usage(
                    "--stream",
                    "name the stream with --stream: an application has separate state for each "
                    "stream",
                )
            if application == "optional":
                values |= _both_or_neither(ctx, values)
            found = Place(**{name: one for name, one in values.items() if one is not None})
            options = {name: given.pop(name) for name in switches}
            with one_sentence(errors(), ctx=ctx, codes=codes), ExitStack() as stack:
                stack.enter_context(shown_log())  # until the connections are closed
                signals = stack.enter_context(StopSignals())
                function(Operation(found, stack, signals, is_new=is_new, **options), **given)

        return as_command(function, run, first, last)

    return decorate


def _both_or_neither(ctx: typer.Context, values: Mapping[str, Any]) -> dict[str, Any]:
    """An application and the ZooKeeper of its state, or None for both. Raises typer's usage error
    where one is missing, unless the environment gave the other one: that is for other commands.
    """
    found = {name: values[name] for name in ("application", "zookeeper")}
    given = [name for name, value in found.items() if value is not None]
    if len(given) == 1:
        source = ctx.get_parameter_source(given[0])
        if source is None or source.name != "ENVIRONMENT":
            raise wrong_usage(
                "--application, --zookeeper", "pass both --application and --zookeeper, or neither"
            )
        return dict.fromkeys(found)
    return found


def shell_command(place: Place, arguments: Sequence[str], width: int = sys.maxsize) -> str:
    """A command of `kinesis-spout` on that place, as a shell takes it, in lines of `width` columns
    if no word is longer. Each line but the last ends with a backslash.

    It has the options by which the command finds the place, as far as it has them. A value that may
    be a secret is left to be filled in: `zookeeperPassword=...`.
    """
    has_aws = arguments[0] not in {"pause", "resume", "reset"}
    has_application = arguments[0] != "redrive"
    names = ["application", "stream", "zookeeper", "zookeeper_root"] if has_application else []
    names += ["region", "endpoint_url"] if has_aws else []
    found = [
        (f"--{name.replace('_', '-')}", value)
        for name in names
        if (value := getattr(place, name)) is not None
        and (name != "zookeeper_root" or value != DEFAULT_ROOT)
    ]
    for key, value in parse_pairs("--option", place.option or ()).items():
        option = CONNECTION_OPTIONS[field := known_option(key)]
        if (has_aws and field in AWS) or (has_application and field in SECURITY):
            found.append(("--option", f"{option.name}={'...' if option.secret else value}"))
    words = [shlex.quote(word) for word in arguments] + [shlex.join(pair) for pair in found]
    lines = ["kinesis-spout"]
    for word in words:
        if len(lines[-1]) + 1 + len(word) + len(_CONTINUES) > width:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return f"{_CONTINUES}\n".join(lines)


@contextmanager
def warnings_as_notes(note: Callable[[str], object] = note) -> Iterator[None]:
    """Print Python's warnings to users as notes, at the end of the block."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        if warning.category is UserWarning:
            note(str(warning.message))


@contextmanager
def shown_log() -> Iterator[None]:
    """Print the log's warnings and errors while the block runs, from whichever thread."""

    def show(record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            tell(record.getMessage(), "error:", "bold red")
        else:
            warn(record.getMessage())

    root, handler = logging.getLogger(), logging.Handler(logging.WARNING)
    handler.emit = show  # type: ignore[method-assign]  # all that it has
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def write_file(file: Path, data: bytes, option: str = "", *, is_new: bool = False) -> None:
    """Raises `CliError`, which names the option. `is_new`: the file must not exist; it is on the
    disk when this returns, as a backup must be.
    """
    try:
        with file.open("xb" if is_new else "wb") as opened:
            try:
                opened.write(data)
                if is_new:
                    opened.flush()
                    os.fsync(opened.fileno())
                    sync_folder(file.absolute().parent)
            except BaseException:
                if is_new:  # a part of a backup is no backup, and would refuse the next one
                    file.unlink()
                raise
    except FileExistsError as exc:
        raise exists_already(file, option) from exc
    except OSError as exc:
        problem = f"{option}{file}: cannot write to the file ({exc.strerror})"
        raise CliError(problem, "pass the path of a writable file") from exc


def exists_already(file: Path, option: str) -> CliError:
    """The refusal to overwrite a file."""
    problem = f"{option}{file}: the file already exists"
    return CliError(problem, "pass the name of a file that does not exist yet")


def stdout_console() -> Console:
    """The console on stdout. A shard may take two lines on a terminal, and takes one in a file."""
    console = Console()
    return console if console.is_terminal else Console(width=FILE_WIDTH)


def fitting(width: int, layouts: Iterable[_Shown]) -> _Shown:
    """The first one that fits so many columns, else the last."""
    endless = Console(width=FILE_WIDTH)
    for shown in layouts:
        if Measurement.get(endless, endless.options, shown).maximum <= width:
            break
    return shown


def show(console: Console, shown: RenderableType) -> None:
    """Print it on a terminal as it is, and into a file without spaces at the ends of lines."""
    with stdout_errors():
        if console.is_terminal:
            console.print(shown, highlight=False, emoji=False)
            return
        with console.capture() as captured:
            console.print(shown, highlight=False, emoji=False)
        # Of its own, typer writes UTF-8 to a stdout for which the locale says ASCII.
        file = None if console.file is sys.stdout else console.file
        for line in captured.get().splitlines():
            typer.echo(line.rstrip(), file=file)


def say(line: str) -> None:
    """Print a line on stdout as it is. Raises as `stdout_errors`."""
    with stdout_errors():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


@usage_errors()
def past_time(text: str) -> RequestedPosition:
    """The parser of an option that is a time in the past. Raises typer's usage error."""
    requested = RequestedPosition.parse(text)
    if not requested.is_time:
        raise typer.BadParameter(
            f"{text} is not a time; use -2h, 14:00, or an ISO time such as 2026-01-31T12:00:00Z"
        )
    return requested


def reason_text(reason: str | None) -> str:
    """Why a record failed."""
    return "none" if reason is None else visible(reason)


def records_of(count: Counted | int, kind: str = "record") -> str:
    """As `1 record`, `12 records`, `more than 10000 records`, or `nothing`."""
    return "nothing" if str(count) == "0" else f"{count} {kind}{'' if str(count) == '1' else 's'}"
