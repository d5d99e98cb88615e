"""`kinesis-spout doctor`: whether everything is there that a job needs. It writes nothing."""

import json
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
from kinesis_spout.spout.config import SpoutConfig
from state.errors import InvalidStoreSettingError
from state.znodes.paths import valid_name
from state.zookeeper.connect_string import ConnectString
from state.zookeeper.embedded import embedded_directory
from state.zookeeper.store import DEFAULT_ROOT

_CONSUMER_OPTIONS = {
    "read_mode": "--read-mode",
    "consumer_name": "--consumer-name",
    "consumer_arn": "--consumer-arn",
}


def doctor(
    ctx: typer.Context,
    *,
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream",
            "-s",
            envvar=places.STREAM_VARIABLE,
            help="Name or ARN of the stream; without it none is looked at.",
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
            "looked at.",
        ),
    ] = None,
    zookeeper_root: places.ZookeeperRoot = DEFAULT_ROOT,
    read_mode: Annotated[
        str,
        typer.Option(
            metavar="[polling|efo]",
            help="efo: look at what enhanced fan-out needs, too. Registers nothing.",
        ),
    ] = "polling",
    consumer_name: Annotated[str | None, flag("consumer_name")] = None,
    consumer_arn: Annotated[str | None, flag("consumer_arn")] = None,
    master: Annotated[
        str | None,
        typer.Option(help="Spark master: look from its executors too. Starts Spark on it."),
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
    """Check whether everything is there that a job needs, and say what to do about what is not.

    It writes nothing, and reads one record at most. Exit codes: 0 no check has
    failed, 1 one has, 3 all that failed is that a service does not answer.
    """
    if conf and master is None:
        raise typer.BadParameter("it is for --master", param_hint="--conf")
    with (
        StopSignals(),
        one_sentence(errors(), ctx=ctx, debug=root_options(ctx).debug, code_of=_code_of),
    ):
        target = Target(
            aws=connection_of(
                {"region": region, "endpoint_url": endpoint_url, "profile": profile}, option or ()
            ),
            stream=None if stream is None else StreamRef.of(stream),
            consumer=_consumer(stream, read_mode, consumer_name, consumer_arn),
            zookeeper=zookeeper,
            zookeeper_root=valid_name("root", zookeeper_root),
            # with its password, which executors cannot read from a file of this machine
            security=security_of(option or ()).loaded(),
            application=None if application is None else valid_name("application", application),
        )
        if target.stream is not None:
            target.stream.region_or(target.aws.region)
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
    """0 where none failed, `UNREACHABLE` where all that failed is that a service does not answer,
    else `FAILED`.
    """
    bad = failures(findings)
    if not bad:
        return 0
    return UNREACHABLE if all(one.unreachable for one in bad) else FAILED


def _consumer(stream: str | None, read_mode: str, name: str | None, arn: str | None) -> str | None:
    """Its ARN or name, by the rules of the spout that is to read with it."""
    try:
        SpoutConfig(
            stream=stream or "any", read_mode=read_mode, consumer_name=name, consumer_arn=arn
        )
    except ConfigError as exc:
        raise (
            exc.respelt(_CONSUMER_OPTIONS[exc.option]) if exc.option in _CONSUMER_OPTIONS else exc
        ) from None
    if read_mode != "efo":
        return None
    if stream is None:
        raise typer.BadParameter("it is for --stream", param_hint="--read-mode")
    return arn or name


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
    return {
        "ok": not failures(one.finding for one in found),
        "findings": [
            {
                "area": one.area,
                "about": one.finding.about,
                "verdict": one.finding.verdict.value,
                "sentence": one.finding.sentence,
            }
            for one in found
        ],
        "counts": {
            verdict.value: sum(one.finding.verdict is verdict for one in found)
            for verdict in Verdict
        },
    }


def _code_of(exc: Exception) -> int:
    return USAGE if isinstance(exc, ConfigError | InvalidStoreSettingError) else FAILED
