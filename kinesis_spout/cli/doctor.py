"""`kinesis-spout doctor`: whether a job has what it needs. It writes nothing."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinesis_spout.cli.exit_codes import FAILED, UNREACHABLE
from kinesis_spout.cli.places import Operation, command
from kinesis_spout.cli.shared_options import errors, flag, option, parse_pairs, wrong_usage
from kinesis_spout.config import StreamRef
from kinesis_spout.doctor.examination import AreaFinding, Cluster, examine, examine_executors
from kinesis_spout.doctor.findings import Finding, Target, Verdict, failures
from kinesis_spout.options import SHARED, check_consumer
from state.znodes.paths import valid_name
from state.zookeeper.embedded import embedded_directory
from state.zookeeper.servers import ConnectString

COLOURS = {
    Verdict.OK: "green",
    Verdict.WARNING: "yellow",
    Verdict.FAILED: "bold red",
    Verdict.NOT_TRIED: "dim",
}
_THING_COLUMNS = 24  # as wide as the longest name of an action; other things are folded


@command("free", shows=True)
def doctor(
    op: Operation,
    *,
    read_mode: str = option(
        "With efo, the command also checks the consumer and the permissions for enhanced fan-out. "
        "The command registers no consumer.",
        default="polling",
        metavar="[polling|efo]",
    ),
    consumer_name: str | None = flag("consumer_name"),
    consumer_arn: str | None = flag("consumer_arn"),
    master: str | None = option("Start Spark on this master and check its executors too."),
    conf: list[str] | None = option(
        "Set a Spark configuration property for --master. Repeatable.", metavar="KEY=VALUE"
    ),
    profile: str | None = flag("profile"),
) -> None:
    """Check the packages, credentials, permissions, services and clock that a job needs.

    For each failed check, the command shows the remedy. The command writes
    nothing and reads at most one record. With --stream, --application and
    --zookeeper, the command also checks the stream, the application and
    ZooKeeper.

    The exit code is 0 if no check failed, 1 if a check failed, and 3 if checks
    failed only because Kinesis or ZooKeeper did not respond.
    """
    if conf and master is None:
        raise wrong_usage("--conf", "--conf needs --master")
    place = op.place
    named = StreamRef.of(place.stream) if place.stream else None
    # by the rules of the spout that is to read with it
    SHARED["read_mode"].check("--read-mode", read_mode)
    given = {"read_mode": read_mode, "consumer_name": consumer_name, "consumer_arn": consumer_arn}
    check_consumer(given, named or StreamRef.of("any"), lambda name: f"--{name.replace('_', '-')}")
    if read_mode == "efo" and named is None:
        raise wrong_usage("--read-mode", "--read-mode efo needs --stream")
    target = Target(
        aws=place.aws(profile=profile),
        stream=named,
        consumer=(consumer_arn or consumer_name) if read_mode == "efo" else None,
        zookeeper=place.zookeeper or None,
        zookeeper_root=valid_name("root", place.zookeeper_root),
        # with its password, which executors cannot read from a file of this machine
        security=place.security().loaded(),
        application=valid_name("application", place.application) if place.application else None,
    )
    if named is not None:
        named.region_or(target.aws.region)
    if place.zookeeper and embedded_directory(place.zookeeper) is None:
        ConnectString.parse(place.zookeeper)
    pairs, found = parse_pairs("--conf", conf or ()), list[AreaFinding]()
    with errors().status("checking ...") as status:
        for one in examine(target):
            found.append(one)
            status.update(f"checked {one.area}: {one.finding.about} ...")
        if master is not None:
            status.update(f"starting Spark on {master} to check its executors ...")
            found += examine_executors(Cluster(target=target, master=master, conf=pairs))
    op.show(_as_json(found), [doctor_screen(found)])
    if code := exit_code_for(one.finding for one in found):
        raise typer.Exit(code)


def exit_code_for(findings: Iterable[Finding]) -> int:
    """0 where none failed, `UNREACHABLE` where each failure is that a service does not answer, else
    `FAILED`.
    """
    bad = failures(findings)
    if not bad:
        return 0
    return UNREACHABLE if all(one.unreachable for one in bad) else FAILED


def _as_json(found: list[AreaFinding]) -> dict[str, object]:
    counts = Counter(one.finding.verdict for one in found)
    shown = [
        {"area": area, "about": one.about, "verdict": one.verdict.value, "sentence": one.sentence}
        for area, one in found
    ]
    return {
        "ok": not counts[Verdict.FAILED],
        "findings": shown,
        "counts": {verdict.value: counts[verdict] for verdict in Verdict},
    }


def doctor_screen(found: Sequence[AreaFinding]) -> RenderableType:
    """All areas in one table, so that their columns agree."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(width=_THING_COLUMNS, overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for area, of_area in groupby(found, key=lambda one: one.area):
        if table.row_count:
            table.add_row()
        table.add_row(Text(area, "bold"))
        for _, one in of_area:
            # The area's title says the rest.
            about = one.about.removeprefix("kinesis:").removeprefix("ZooKeeper ")
            colour = "dim" if one.verdict is Verdict.NOT_TRIED else ""
            verdict = Text(one.verdict.value, COLOURS[one.verdict])
            table.add_row(Text(about), verdict, Text(one.sentence, colour))
    counts = Counter(one.finding.verdict for one in found)
    total = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict)
    return Group(table, "", Text(total, "bold red" if counts[Verdict.FAILED] else "bold green"))
