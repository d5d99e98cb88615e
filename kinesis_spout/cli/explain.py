"""`kinesis-spout explain`: why a shard stands where it does, and what to do. Read-only."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.looking import looking
from kinesis_spout.cli.places import (
    ASK,
    WINDOW,
    Operation,
    Place,
    command,
    shell_command,
    stdout_console,
)
from kinesis_spout.cli.shared_options import argument, shard_id_of, wrong_usage
from kinesis_spout.cli.status import COLOURS
from kinesis_spout.inspection.cause import Action, ActionKind, Kind, introduced
from kinesis_spout.inspection.explanation import Group, explain, grouped
from kinesis_spout.inspection.health import Health, Look
from kinesis_spout.inspection.status import (
    loss_sentence,
    move_sentence,
    owners_sentence,
    status_of,
    verdict_sentence,
)
from kinesis_spout.inspection.wording import are, moment, records, shards_named, short_shard

MAX_NAMED = 5
_INDENT = 5  # of what an arrow points to


@command(shows=True)
def explain_command(
    op: Operation,
    shard: str | None = argument(
        "Shard, by id (shardId-000000000012) or by number (12); default: all shards. Shards with "
        "the same cause are shown together.",
        "SHARD",
        parser=shard_id_of,
    ),
    *,
    window: float = WINDOW,
    ask: int = ASK,
) -> None:
    """Explain why a shard makes no progress: the cause, its effects, and the commands that fix it.

    The command only reads, so it may run while the job is running. The command
    cannot observe other consumers of a shard, but names them as a possible
    cause. The exit code is 0 if the command can explain the state.
    """
    looks = looking(op.place, op.stack, max_asked=ask)
    look = looks.watch(op.window(window), shard)
    now, place = look.now, op.place
    if now.is_known and shard is not None and shard not in now.known_shards:
        raise wrong_usage(
            "SHARD",
            f"stream {now.stream.name} does not list shard {shard}, and application "
            f"{now.application} has no state for the shard; list the shards with kinesis-spout "
            "shards",
        )
    found = grouped(look) if shard is None else [Group(explain(look, shard), (shard,))]
    width, whole = stdout_console().width, shard is None
    op.show(
        [explained_json(look, one, place) for one in found],
        [explained_screen(look, found, place, width, whole=whole)],
    )


def explained_screen(
    look: Look, found: Collection[Group], place: Place, width: int, *, whole: bool
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
        verdict = (status.verdict.value, COLOURS[status.verdict])
        parts.append(Text.assemble(verdict, f": {verdict_sentence(status)}"))
    if now.stored.owners:
        parts.append(Text(f"owner: {owners_sentence(look)}"))
    if (moved := move_sentence(look)) is not None:
        parts.append(Text(moved))
    if (lost := loss_sentence(look)) is not None:
        parts.append(Text(f"loss of records {lost}", "bold red"))
        parts.append(
            Text(
                "-> Fix: if you need the lost records, put them on the stream again from their "
                "source. To have more time after an outage, raise the stream's retention."
            )
        )
    causes = {cause.kind for group in found for cause in group.explanation.chain}
    if look.refusal is not None and Kind.KINESIS_REFUSES not in causes:
        parts.append(
            Text(
                "the shards' lag is not known, because their newest records could not be read: "
                f"{look.refusal}",
                "yellow",
            )
        )
    shown: dict[tuple[Action, ...], str] = {}
    for group in found:
        actions = tuple(group.explanation.actions())
        parts += ["", *_why(look, group), _todo(group, actions, shown.get(actions), place, width)]
        if any(one.kind is not ActionKind.NOTHING for one in actions):
            shown.setdefault(actions, shards_named(group.shards, MAX_NAMED))
    return Lines(*parts)


def _why(look: Look, group: Group) -> Iterator[RenderableType]:
    explained, health = group.explanation, look.of(group.explanation.shard_id).health
    waiting = [one for shard in group.shards for one in look.now.held_up.get(shard, ())]
    states = [look.now.states[one] for one in group.shards if one in look.now.states]
    count = sum(one.unresolved_count for one in states)
    head = Text.assemble((shards_named(group.shards, MAX_NAMED), "bold"), "  ")
    head.append(health.value, COLOURS[health])
    if waiting:
        verb, holder = (
            are(len(waiting), "is waiting", "are waiting"),
            are(len(group.shards), "it", "them"),
        )
        head.append(f"  {shards_named(waiting, MAX_NAMED)} {verb} for {holder}")
    if count and health is Health.OK:
        head.append(f"  {records(count)} unresolved")
    if len(group.shards) > 1:  # each has numbers of its own
        head.append(f"  (details below: shard {short_shard(explained.shard_id)})")
    yield head
    lines = [(word, cause.text) for word, cause in explained.introduced()]
    held = [one for one in states if one.unresolved]
    if len(states) > 1 and any(one.shard_id == explained.shard_id for one in held):
        each = [
            f"{one.unresolved_count:,} of shard {short_shard(one.shard_id)}"
            for one in held[:MAX_NAMED]
        ]
        each += ["..."] if len(held) > MAX_NAMED else []
        whose = (
            ": " + ", ".join(each)
            if len(held) > 1
            else f": all of shard {short_shard(held[0].shard_id)}"
        )
        said = f"{records(count)} {are(count)} unresolved{whose}"
        lines.append(("Also", f"{said.removesuffix('.')}."))
    for word, text in lines:
        yield Padding(Text.assemble((f"{word}: ", "bold"), text), (0, 0, 0, 2))


def _todo(
    group: Group, actions: Sequence[Action], above: str | None, place: Place, width: int
) -> RenderableType:
    """An arrow for each action. `above`: the shards above that have the same ones."""
    shard, todo = group.explanation.shard_id, Table.grid(padding=(0, 1, 0, 0))
    if above is not None:
        todo.add_row(Text("  ->", "cyan"), Text(f"Fix: the same as for {above} above."))
        return todo
    for word, action in introduced(actions):
        said = f"{word}: {action.text}."
        if action.command:
            is_of_one = shard in action.command and {*group.shards} - {*action.command}
            its = f" (of shard {short_shard(shard)})" if is_of_one else ""
            command_lines = shell_command(place, action.command, width - _INDENT)
            said = f"{word}: {action.text}{its}:\n{command_lines}"
        todo.add_row(Text("  ->", "cyan"), Text(said, overflow="fold"))
    return todo


def explained_json(look: Look, group: Group, place: Place) -> dict[str, Any]:
    """One object of `explain --json`."""
    explained = group.explanation
    return {
        "shards": list(group.shards),
        "health": look.of(explained.shard_id).health.value,
        "holdsUp": [one for shard in group.shards for one in look.now.held_up.get(shard, ())],
        "causes": [{"introduction": word, **one.as_json()} for word, one in explained.introduced()],
        "actions": [
            {
                "introduction": word,
                "kind": one.kind.value,
                "text": one.text,
                "untilMs": one.until_ms,
                "alternative": one.is_alternative,
                "arguments": list(one.command) or None,
                "command": shell_command(place, one.command) if one.command else None,
            }
            for word, one in introduced(explained.actions())
        ],
    }
