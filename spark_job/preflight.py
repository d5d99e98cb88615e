"""What can be checked before a query starts, in the user's own process, so that errors are seen
where they are made.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from kinesis_spout.errors import ConfigError
from spark_job.process_services import WorkerServices
from state.zookeeper.connect_string import EMBEDDED_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import SourceSettings


SERVICE_READS_PER_SECOND = 5


def preflight(settings: SourceSettings, *, master: str | None) -> list[str]:
    """Ask the stream and ZooKeeper once, and return what the user should be warned of. Blocks on
    both; raises what they raise.
    """
    refuse_embedded_on_cluster(settings.zookeeper, master)
    warnings = list(_too_fast(settings))
    services = WorkerServices.connect(settings)
    services.client.describe()
    with closing(services.store) as store:
        pin = store.read_start()
    if pin is None or settings.start_is_default or pin.wish == settings.starting_position.text:
        return warnings
    return [*warnings, _stored_state_wins(settings, pin.wish)]


def _too_fast(settings: SourceSettings) -> Iterator[str]:
    if (
        settings.aws.endpoint_url is None
        and settings.rate.reads_per_second > SERVICE_READS_PER_SECOND
    ):
        yield (
            f"option readsPerSecond is {settings.rate.reads_per_second:g}, but Kinesis allows "
            f"{SERVICE_READS_PER_SECOND} reads "
            "a second and shard for all consumers together: the rest will be throttled"
        )


def _stored_state_wins(settings: SourceSettings, wish: str) -> str:
    application, stream = settings.application, settings.stream.name
    return (
        f"application {application} has progress on stream {stream} (started at {wish}), so "
        "startingPosition "
        f"{settings.starting_position.text} has no effect; use another applicationName, or remove "
        "the progress with "
        f"`kinesis-spout reset --application {application} --stream {stream} --zookeeper "
        f"{settings.zookeeper}`"
    )


def refuse_embedded_on_cluster(zookeeper: str, master: str | None) -> None:
    """An embedded ZooKeeper listens on 127.0.0.1: executors on other machines would
    never reach it.
    """
    if zookeeper.startswith(EMBEDDED_PREFIX) and master is not None and not is_one_machine(master):
        raise ConfigError(
            f"option zookeeper is {zookeeper!r}, which is for one machine, but the Spark master is "
            f"{master!r}; "
            "give the connect string of an ensemble"
        )


def is_one_machine(master: str) -> bool:
    return master == "local" or master.startswith(("local[", "local-cluster["))
