"""The rules about an application that has no state of the stream that is looked at, or that of
another stream. Pure.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from kinesis_spout.inspection.cause import LOG, THE_JOB, Act, Advice, Cause
from kinesis_spout.inspection.run_rules import pid_of, printable
from kinesis_spout.inspection.wording import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinesis_spout.inspection.health import Look

_MAX_NAMES = 5


def another_stream(look: Look, shard_id: str) -> Cause | None:
    if not look.now.is_of_another_stream:
        return None
    if look.now.whereabouts is not None:
        return _elsewhere(shard_id, *look.now.whereabouts)
    known, now_ms = look.now.stored.identity, look.now.now_ms
    then = "" if known is None else f" (created at {moment(known.created_ms, now_ms)})"
    return Cause(
        kind="another stream",
        about=shard_id,
        says=f"has a state that belongs to a stream that had this name before{then}; this one was "
        f"created at {moment(look.now.stream.created_ms, now_ms)}, and a job refuses it",
        advice=(
            Advice(
                Act.RUN,
                "remove that state, of all shards, while no process runs; the job then begins at "
                "its starting position",
                ("reset",),
            ),
            Advice(
                Act.CHANGE,
                "or, to keep that state: give the job another application name, or, if the stream "
                "of before is meant, its region, account and endpoint",
            ),
        ),
    )


def _elsewhere(shard_id: str, known: str, here: str) -> Cause:
    """The state is of a stream in another region or account than the one that is looked at."""
    region, there = (arn.split(":")[3:4] for arn in (known, here))
    option = f" (--region {region[0]})" if region and region != there else ""
    return Cause(
        kind="another stream",
        about=shard_id,
        says=f"is of {here}, which is looked at, and the state is that of {known}: so nothing is "
        "known of what is read there",
        advice=(
            Advice(
                Act.LOOK,
                f"look at the stream of the state: give its region, account and endpoint{option}",
            ),
            Advice(
                Act.CHANGE,
                "or, if the application is to read the stream here: give it another application "
                "name",
            ),
        ),
    )


def not_begun(look: Look, shard_id: str) -> Cause | None:
    if look.now.is_known:
        return None
    if look.now.stored.owners:
        return Cause(
            kind="just started",
            about=shard_id,
            says="the application has an owner, which has not pinned its start yet",
            advice=(Advice(Act.WAIT, "wait for its first listing of the shards"), LOG),
        )
    if look.now.last_log is not None:
        return Cause(
            kind="never began",
            about=shard_id,
            says="the application was started, and ended before it read anything",
            leads_to=THE_JOB,
        )
    if (reset := look.now.stored.reset) is not None:
        return Cause(
            kind="state removed",
            about=shard_id,
            says=f"the state of the application was removed at "
            f"{moment(reset.since_ms, look.now.now_ms)} (kinesis-spout reset, {pid_of(reset)}); it "
            "was not started since",
            advice=(
                Advice(
                    Act.START,
                    "start the job: it begins at its starting position; a Spark query needs a new "
                    "checkpointLocation",
                ),
            ),
        )
    return Cause(
        kind="application unknown",
        about=shard_id,
        says=f"ZooKeeper holds nothing of application {look.now.application} on stream "
        f"{look.now.stream.name}: it never ran there, or under another name, --zookeeper-root or "
        f"ZooKeeper{_others(look)}",
        advice=(
            *_look_there(look),
            Advice(Act.LOOK, "compare application, stream, ZooKeeper and root with the job's"),
            Advice(Act.START, "or, if it never ran: start the job"),
        ),
    )


def _look_there(look: Look) -> tuple[Advice, ...]:
    stored, now = look.now.stored, look.now
    if stored.of_the_stream:
        name = min(stored.of_the_stream, key=_unlike(now.application))
        return (Advice(Act.LOOK, f"look at one that is there, as --application {printable(name)}"),)
    if stored.of_the_application:
        name = min(stored.of_the_application, key=_unlike(now.stream.name))
        return (Advice(Act.LOOK, f"look at a stream that it has, as --stream {printable(name)}"),)
    return ()


def _others(look: Look) -> str:
    """Which applications and streams the operator may have meant, the likeliest first."""
    stored, said = look.now.stored, ""
    if stored.of_the_stream:
        names = _likeliest(stored.of_the_stream, look.now.application)
        said += f"; of this stream it holds {names}"
    if stored.of_the_application:
        names = _likeliest(stored.of_the_application, look.now.stream.name)
        said += f"; of this application it holds stream {names}"
    return said


def _unlike(wanted: str) -> Callable[[str], float]:
    return lambda name: -SequenceMatcher(None, wanted, name).ratio()


def _likeliest(names: Sequence[str], wanted: str) -> str:
    found = sorted(names, key=_unlike(wanted))[:_MAX_NAMES]
    more = f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(map(printable, found))}{more}"
