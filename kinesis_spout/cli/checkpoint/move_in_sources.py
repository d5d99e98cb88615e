"""Where `kinesis-spout import` finds the other consumer's state, by its options."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from kinesis_spout.checkpoints.migration import awslabs, databricks, kcl, storm_spout
from kinesis_spout.checkpoints.migration.origin import Origin
from kinesis_spout.cli.shared_options import security_of
from kinesis_spout.service.dynamodb import scan_table
from state.zookeeper.store import ZookeeperStateStore

if TYPE_CHECKING:
    from pathlib import Path

    from kinesis_spout.cli.places import Place
    from kinesis_spout.service.client import KinesisClient
    from kinesis_spout.service.shard_info import StreamSummary


class From(StrEnum):
    """The consumers that can be moved in from."""

    STORM_SPOUT = "storm-spout"
    KCL = "kcl"
    AWSLABS = "awslabs"
    DATABRICKS = "databricks"


_OF_SYSTEM = {
    From.STORM_SPOUT: ("topology", "prefix", "from_zookeeper"),
    From.KCL: ("lease_table", "dynamodb_endpoint_url"),
    From.AWSLABS: (
        "checkpoint_location",
        "metadata_path",
        "metadata_table",
        "dynamodb_endpoint_url",
    ),
    From.DATABRICKS: ("checkpoint_location", "progress"),
}
_NEEDED = {
    From.STORM_SPOUT: "topology",
    From.KCL: "lease_table",
    From.AWSLABS: "checkpoint_location",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options that say where the other consumer's state is. Unset ones are None."""

    system: From
    topology: str | None
    prefix: str | None
    from_zookeeper: str | None
    lease_table: str | None
    dynamodb_endpoint_url: str | None
    checkpoint_location: Path | None
    metadata_path: Path | None
    metadata_table: str | None
    progress: Path | None

    def check(self) -> None:
        """Raises typer's usage error for an option of another system, and for one that lacks."""
        own_options = _OF_SYSTEM[self.system]
        others = {name for names in _OF_SYSTEM.values() for name in names} - set(own_options)
        for name in sorted(others):
            if getattr(self, name) is not None:
                raise typer.BadParameter(
                    f"is not for --from {self.system}, which takes "
                    + ", ".join(map(_option, own_options)),
                    param_hint=_option(name),
                )
        needed = _NEEDED.get(self.system)
        if needed is not None and getattr(self, needed) is None:
            raise typer.BadParameter(
                f"--from {self.system} needs {_option(needed)}", param_hint=_option(needed)
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The application and the stream, opened. The stack closes what else is opened."""

    place: Place
    store: ZookeeperStateStore
    client: KinesisClient
    summary: StreamSummary
    stack: ExitStack


def origin_of(asked: Asked, opened: Opened) -> tuple[Origin, bool]:
    """Where the other consumer stands; and whether its state is the application's own, as it is
    where a topology's znodes are. Raises `MigrationError`, and errors of the service and the store.
    """
    stream = opened.summary.name
    location = asked.checkpoint_location
    if asked.system is From.STORM_SPOUT:
        return _storm_spout(asked, opened)
    if asked.system is From.KCL:
        name = asked.lease_table or ""
        items = _table(asked, opened, name)
        account = opened.summary.arn.split(":")[4]
        created_ms = opened.summary.created_ms
        return kcl.origin_of(items, name, stream, created_ms=created_ms, account=account), False
    if asked.system is From.AWSLABS and location is not None:
        name = asked.metadata_table or ""
        found = awslabs.origin_of(
            location,
            stream,
            metadata_path=asked.metadata_path,
            table_items=_table(asked, opened, name) if name else None,
        )
        return found, False
    if asked.progress is not None:
        return databricks.of_progress(asked.progress, stream), False
    if location is not None:
        return databricks.of_location(location, stream), False
    return Origin(name="databricks", shards={}), False


def _table(asked: Asked, opened: Opened, name: str) -> list[kcl.Item]:
    aws = opened.client.aws
    return scan_table(
        aws,
        name,
        region=opened.client.stream.region_or(aws.region),
        endpoint_url=asked.dynamodb_endpoint_url,
    )


def _storm_spout(asked: Asked, opened: Opened) -> tuple[Origin, bool]:
    place, topology = opened.place, asked.topology or ""
    prefix = asked.prefix or storm_spout.PREFIX
    zookeeper, root = storm_spout.chroot_and_root(asked.from_zookeeper or place.zookeeper, prefix)
    where = f"/{prefix.strip('/')}/{topology}/{opened.summary.name}"
    mine = (place.zookeeper.rstrip("/"), place.zookeeper_root, place.application)
    if (zookeeper, root, topology) == mine:
        return storm_spout.origin_of(opened.store, where), True
    other = ZookeeperStateStore(
        zookeeper,
        root=root,
        application=topology,
        stream=opened.summary.name,
        security=security_of(place.option or ()),
    )
    return storm_spout.origin_of(opened.stack.enter_context(closing(other)), where), False


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
