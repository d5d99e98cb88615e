"""`kinesis-spout doctor`: whether a job has what it needs. It writes nothing."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import typer

from kinesis_spout.cli import places
from kinesis_spout.cli.exit_codes import (
    FAILED,
    UNREACHABLE,
    USAGE,
    StopSignals,
    one_sentence,
)
from kinesis_spout.cli.inspection.doctor_screen import doctor_screen
from kinesis_spout.cli.inspection.looking import show
from kinesis_spout.cli.inspection.shards import stdout_console
from kinesis_spout.cli.shared_options import (
    connection_of,
    errors,
    flag,
    parse_pairs,
    root_options,
    security_of,
)
from kinesis_spout.config import StreamRef
from kinesis_spout.doctor.examination import AreaFinding, examine, examine_executors
from kinesis_spout.doctor.executors import Cluster
from kinesis_spout.doctor.findings import Finding, Verdict, failures
from kinesis_spout.doctor.target import Target
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import SHARED, check_consumer
from state.errors import InvalidStoreSettingError
from state.znodes.paths import valid_name
from state.zookeeper.connect_string import ConnectString
from state.zookeeper.embedded import embedded_directory
from state.zookeeper.store import DEFAULT_ROOT


def doctor(
    ctx: typer.Context,
    *,
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream",
            "-s",
            envvar=places.STREAM_VARIABLE,
            help="Name or ARN of the stream; without it none is checked.",
        ),
    ] = None,
    application: Annotated[str | None, places.APPLICATION_FLAG] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            "-z",
            envvar=places.ZOOKEEPER_VARIABLE,
            help="Connect string (may end in a chroot), or embedded:DIRECTORY; without it none is "
            "checked.",
        ),
    ] = None,
    zookeeper_root: places.ZookeeperRoot = DEFAULT_ROOT,
    read_mode: Annotated[
        str,
        typer.Option(
            metavar="[polling|efo]",
            help="efo: check what enhanced fan-out needs, too. Registers nothing.",
        ),
    ] = "polling",
    consumer_name: Annotated[str | None, flag("consumer_name")] = None,
    consumer_arn: Annotated[str | None, flag("consumer_arn")] = None,
    master: Annotated[
        str | None,
        typer.Option(help="Spark master: check from its executors, too. Starts Spark on it."),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Spark configuration, with --master. Repeatable."),
    ] = None,
    as_json: places.AsJson = False,
    region: places.Region = None,
    endpoint_url: places.EndpointUrl = None,
    profile: Annotated[str | None, flag("profile")] = None,
    option: places.Connection = None,
) -> None:
    """Check that a job has what it needs, and say how to repair what it lacks.

    It writes nothing, and reads one record at most. Exit codes: 0 no check failed,
    1 a check failed, 3 checks failed only because a service does not answer.
    """
    if conf and master is None:
        raise typer.BadParameter("it is for --master", param_hint="--conf")
    with (
        StopSignals(),
        one_sentence(errors(), ctx=ctx, debug=root_options(ctx).debug, code_of=_code_of),
    ):
        named = None if stream is None else StreamRef.of(stream)
        target = Target(
            aws=connection_of(
                {"region": region, "endpoint_url": endpoint_url, "profile": profile}, option or ()
            ),
            stream=named,
            consumer=_consumer(
                named, read_mode=read_mode, consumer_name=consumer_name, consumer_arn=consumer_arn
            ),
            zookeeper=zookeeper,
            zookeeper_root=valid_name("root", zookeeper_root),
            # with its password, which executors cannot read from a file of this machine
            security=security_of(option or ()).loaded(),
            application=None if application is None else valid_name("application", application),
        )
        if named is not None:
            named.region_or(target.aws.region)
        if zookeeper is not None and embedded_directory(zookeeper) is None:
            ConnectString.parse(zookeeper)
        found = _found(target, master, parse_pairs("--conf", conf or ()))
        if as_json:
            typer.echo(json.dumps(_as_json(found), indent=2))
        else:
            show(stdout_console(), doctor_screen(found))
        code = exit_code_for(one.finding for one in found)
        if code:
            raise typer.Exit(code)


def exit_code_for(findings: Iterable[Finding]) -> int:
    """0 where none failed, `UNREACHABLE` where each failure is that a service does not answer, else
    `FAILED`.
    """
    bad = failures(findings)
    if not bad:
        return 0
    return UNREACHABLE if all(one.unreachable for one in bad) else FAILED


def _consumer(stream: StreamRef | None, **given: str | None) -> str | None:
    """Its ARN or name, by the rules of the spout that is to read with it."""
    SHARED["read_mode"].check("--read-mode", given["read_mode"])
    check_consumer(given, stream or StreamRef.of("any"), lambda name: f"--{name.replace('_', '-')}")
    if given["read_mode"] != "efo":
        return None
    if stream is None:
        raise typer.BadParameter("it is for --stream", param_hint="--read-mode")
    return given["consumer_arn"] or given["consumer_name"]


def _found(target: Target, master: str | None, conf: dict[str, str]) -> list[AreaFinding]:
    found: list[AreaFinding] = []
    with errors().status("checking ...") as status:
        for one in examine(target):
            found.append(one)
            status.update(f"checked {one.area}: {one.finding.about} ...")
        if master is not None:
            status.update(f"starting Spark on {master} ...")
            found += examine_executors(Cluster(target=target, master=master, conf=conf))
    return found


def _as_json(found: list[AreaFinding]) -> dict[str, object]:
    shown = [
        {"area": area, "about": one.about, "verdict": one.verdict.value, "sentence": one.sentence}
        for area, one in found
    ]
    counts = Counter(one["verdict"] for one in shown)
    return {
        "ok": not counts[Verdict.FAILED.value],
        "findings": shown,
        "counts": {verdict.value: counts[verdict.value] for verdict in Verdict},
    }


def _code_of(exc: Exception) -> int:
    return USAGE if isinstance(exc, ConfigError | InvalidStoreSettingError) else FAILED
