"""`kinesis-spout explain`: why a shard stands where it does, and what to do. Read-only."""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.exit_codes import StopSignals, one_sentence, operators_exit_code_of
from kinesis_spout.cli.inspection.looking import (
    DEFAULT_ASKED,
    DEFAULT_WINDOW,
    Looking,
    looking,
    show,
    two_snapshots,
)
from kinesis_spout.cli.inspection.shards import stdout_console
from kinesis_spout.cli.inspection.status_screen import COLOURS
from kinesis_spout.cli.places import Place, folded_command, takes_place, whole_command
from kinesis_spout.cli.shared_options import errors, root_options, shard_id_of
from kinesis_spout.config import parse_duration_ms
from kinesis_spout.inspection.cause import Action, ActionKind, introduced
from kinesis_spout.inspection.explanation import Group, explain, grouped
from kinesis_spout.inspection.health import Health, Look
from kinesis_spout.inspection.status import (
    move_sentence,
    owners_sentence,
    status_of,
    verdict_sentence,
)
from kinesis_spout.inspection.wording import moment, records, shards_named, short_shard

MAX_NAMED = 5
_INDENT = 5  # of what an arrow points to


@takes_place()
def explain_command(
    ctx: typer.Context,
    shard: Annotated[
        str | None,
        typer.Argument(
            metavar="SHARD",
            help="Id of a shard, or its number. Without one, all shards are explained, those with "
            "the same cause together.",
            show_default=False,
        ),
    ] = None,
    *,
    place: Place,
    window: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long to watch before explaining, e.g. 30s."),
    ] = DEFAULT_WINDOW,
    ask: Annotated[
        int,
        typer.Option(metavar="SHARDS", min=0, help="How many shards to ask for their tips."),
    ] = DEFAULT_ASKED,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list on stdout, and nothing else.")
    ] = False,
) -> None:
    """Explain why a shard stands where it does: what holds it, what follows, and what to do.

    It only reads, so it may run beside the job. What cannot be seen from outside
    is said: throttling by other consumers, the job's own limits, its log. The
    exit code is 0 when there is an answer, whatever it says.
    """
    with (
        one_sentence(
            errors(), ctx=ctx, debug=root_options(ctx).debug, code_of=operators_exit_code_of
        ),
        StopSignals() as signals,
        looking(place, max_asked=ask) as looks,
    ):
        window_s = parse_duration_ms(window, option="window") / 1000
        commands = ctx.find_root().command.list_commands(ctx)  # type: ignore[attr-defined]  # a group
        look = _look(looks, signals, window_s, shard)
        if shard is None:
            found = grouped(look)
        else:
            found = [Group(explain(look, _named(look, shard)), (_named(look, shard),))]
        if as_json:
            typer.echo(
                json.dumps([explained_json(look, one, commands, place) for one in found], indent=2)
            )
            return
        console = stdout_console()
        screen = explained_screen(
            look, found, commands, place, width=console.width, whole=shard is None
        )
        show(console, screen)


def _look(looks: Looking, signals: StopSignals, window_s: float, shard: str | None) -> Look:
    first = None if shard is None else shard_id_of(shard)
    before, now = two_snapshots(looks, signals, window_s, first=first)
    return looks.look(before, now, first=first)


def _named(look: Look, shard: str) -> str:
    shard_id = shard_id_of(shard)
    if look.now.is_known and shard_id not in look.now.shard_ids:
        raise typer.BadParameter(
            f"stream {look.now.stream.name} does not list {shard_id}, and application "
            f"{look.now.application} has no state of it; see the shards with kinesis-spout shards",
            param_hint="SHARD",
        )
    return shard_id


def explained_screen(
    look: Look,
    found: Collection[Group],
    commands: Collection[str],
    place: Place,
    *,
    width: int,
    whole: bool,
) -> RenderableType:
    """The chains, a line for each cause, and below them what to do, with the whole commands.
    `whole`: of all shards, so that the verdict stands above them.
    """
    now = look.now
    time = moment(now.now_ms, now.now_ms)
    parts: list[RenderableType] = [
        Text(f"application {now.application} on stream {now.stream.name} at {time} UTC")
    ]
    if whole:
        status = status_of(look)
        colour = COLOURS[status.verdict]
        said = f": {verdict_sentence(status)}{_causes_in_all(look, found, commands)}"
        parts.append(Text.assemble((status.verdict.value, colour), said))
    if now.stored.owners:
        parts.append(Text(f"run by {owners_sentence(look)}"))
    if (moved := move_sentence(look)) is not None:
        parts.append(Text(moved))
    if look.refused is not None:
        parts.append(Text(f"no shard could be asked: {look.refused}", "yellow"))
    told: dict[tuple[Action, ...], str] = {}
    for group in found:
        actions = tuple(group.explanation.actions(commands))
        parts += ["", *_parts(look, group, told.get(actions, actions), place, width)]
        if any(one.kind is not ActionKind.NOTHING for one in actions):
            told.setdefault(actions, shards_named(group.shards, MAX_NAMED))
    return Lines(*parts)


def _causes_in_all(look: Look, found: Collection[Group], commands: Collection[str]) -> str:
    """That there are several causes, or one beside shards that are well. Of a stalled application
    the verdict says so.
    """
    told = {tuple(one.explanation.actions(commands)) for one in found}
    count = sum(any(one.kind is not ActionKind.NOTHING for one in each) for each in told)
    if look.verdict is Health.OK:
        return "; what is to be done all the same stands below" if count else ""
    return f"; {count} causes in all" if count > 1 and look.verdict is not Health.STALLED else ""


def _parts(
    look: Look, group: Group, told: Sequence[Action] | str, place: Place, width: int
) -> Iterator[RenderableType]:
    """`told`: the actions, or the shards above that have the same ones."""
    explained, said = group.explanation, shards_named(group.shards, MAX_NAMED)
    health = look.health(explained.shard_id)
    waits = ""
    if waiting := [one for held in group.shards for one in look.now.held_up.get(held, ())]:
        verb = "waits" if len(waiting) == 1 else "wait"
        for_it = "it" if len(group.shards) == 1 else "them"
        waits = f"  {shards_named(waiting, MAX_NAMED)} {verb} for {for_it}"
    states = [look.now.states[one] for one in group.shards if one in look.now.states]
    count = sum(one.unresolved_count for one in states)
    failing = f"  {records(count)} not acked" if count and health is Health.OK else ""
    yield Text.assemble((said, "bold"), "  ", (health.value, COLOURS[health]), waits, failing)
    # Each shard has numbers of its own; the chain is that of one of them.
    for word, cause in explained.introduced():
        yield Padding(Text.assemble((f"{word}: ", "bold"), cause.text), (0, 0, 0, 2))
    if held := _held_together(look, group):
        yield Padding(Text.assemble(("Also: ", "bold"), held), (0, 0, 0, 2))
    todo = Table.grid(padding=(0, 1, 0, 0))
    if isinstance(told, str):
        todo.add_row(Text("  ->", "cyan"), Text(f"Fix: as for {told}, above."))
        told = ()
    for word, action in introduced(told):
        lines = [f"{word}: {action.text}."]
        if action.command:
            others = [one for one in group.shards if one not in action.command]
            is_of_one = explained.shard_id in action.command and bool(others)
            its = f" (of shard {short_shard(explained.shard_id)})" if is_of_one else ""
            lines = [
                f"{word}: {action.text}{its}:",
                *folded_command(place, action.command, width - _INDENT),
            ]
        todo.add_row(Text("  ->", "cyan"), Text("\n".join(lines), overflow="fold"))
    yield todo


def _held_together(look: Look, group: Group) -> str:
    """The unresolved records of all shards of a group, where the chain tells those of one."""
    counts = {one: state.unresolved_count for one, state in look.now.states.items()}
    held = [(one, count) for one in group.shards if (count := counts.get(one, 0))]
    if len(group.shards) == 1 or not counts.get(group.explanation.shard_id):
        return ""
    total = sum(count for _, count in held)
    each = [f"{count:,} of shard {short_shard(one)}" for one, count in held[:MAX_NAMED]]
    more = ", ..." if len(held) > MAX_NAMED else ""
    verb = "is" if total == 1 else "are"
    return f"{records(total)} of these shards {verb} not acked in all: {', '.join(each)}{more}."


def explained_json(
    look: Look, group: Group, commands: Collection[str], place: Place
) -> dict[str, Any]:
    """One object of `explain --json`."""
    explained = group.explanation
    return {
        "shards": list(group.shards),
        "health": look.health(explained.shard_id).value,
        "holdsUp": [one for shard in group.shards for one in look.now.held_up.get(shard, ())],
        "causes": [{"introduction": word, **one.as_json()} for word, one in explained.introduced()],
        "actions": [
            {
                "kind": one.kind.value,
                "text": one.text,
                "untilMs": one.until_ms,
                "alternative": one.is_alternative,
                "arguments": list(one.command) or None,
                "command": whole_command(place, one.command) if one.command else None,
            }
            for one in explained.actions(commands)
        ],
    }
