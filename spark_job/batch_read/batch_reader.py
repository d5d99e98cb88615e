"""The reader that Spark runs: `spark.read.format("kinesis")`.

Spark makes a reader at the planning of each action, in a process of its own, and sends it to the
executors. What all actions of a frame share is the pin of `load()`.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kinesis_spout.clock import SystemClock
from kinesis_spout.errors import ConfigError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.surroundings import for_executors
from kinesis_spout.shards.lineage import open_range_holes
from kinesis_spout.shards.start_position import refusal_of
from spark_job.batch_read.batch_settings import BatchSettings
from spark_job.batch_read.pushed_filters import PushedFilters
from spark_job.batch_read.range_reader import read_ranges, report_expired
from spark_job.batch_read.shard_ranges import LoadPin, grouped, settled_in_s, shard_ranges
from spark_job.rows import COLUMNS
from state.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from kinesis_spout.clock import Clock
    from kinesis_spout.service.shard_info import ShardInfo
    from spark_job.batch_read.shard_ranges import ShardRange

log = logging.getLogger("kinesis_spout")
# New shards may be listed late.
_LISTINGS = 5
_LIST_AGAIN_S = 1.0
_CLOCK = SystemClock()


class RangesPartition(InputPartition):
    """One task, as Spark sends it to an executor."""

    def __init__(self, ranges: Sequence[ShardRange], retention_ms: int) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.retention_ms = retention_ms


class KinesisBatchReader(DataSourceReader):
    """One action's reader. `partitions` runs in a planning process, `read` on executors."""

    def __init__(self, settings: BatchSettings, pin: LoadPin, columns: Sequence[str]) -> None:
        self._settings = settings
        self._pin = pin
        self._columns = columns
        self._filters = PushedFilters()

    def partitions(self) -> list[InputPartition]:
        """The tasks. Calls the service, and blocks until the shards show the whole range: a few
        seconds at most, right after `load()`. Raises `KinesisError`.
        """
        settings = self._settings
        with closing(KinesisClient(settings.aws, settings.stream)) as client:
            summary = client.describe()
            if summary.created_ms != self._pin.created_ms:
                raise ConfigError(
                    f"stream {settings.stream.name} was deleted and created again since load()",
                    "load it again",
                )
            now_ms = summary.now_ms(_CLOCK.now_ms())
            ranges = shard_ranges(
                settings,
                complete_listing(client, _CLOCK),
                self._pin,
                self._filters,
                service_time_ms=now_ms,
            )
            for each in ranges:
                for option, position in (
                    ("startingPosition", each.start),
                    ("endingPosition", each.end),
                ):
                    # A task that found a refused number would be tried again, and an end is only
                    # compared with.
                    if position is not None and position.sequence is not None:
                        refused = refusal_of(client.shard_iterator, each.shard_id, position)
                        if refused:
                            raise ConfigError.of(option, refused, str(position))
        if summary.may_have_ignored_keys:  # no record is in a shard because of its key
            ranges = [replace(each, hash_range=None) for each in ranges]
        oldest_ms = now_ms - summary.retention_ms
        covered = [each.covered_ms for each in ranges if each.covered_ms is not None]
        if covered and (covered_ms := min(covered)) < oldest_ms:
            report_expired(
                f"the read begins at {Position.at_timestamp(covered_ms)}, and records from before "
                f"{Position.at_timestamp(oldest_ms)} have expired",
                settings,
            )
        _CLOCK.sleep(settled_in_s(ranges, now_ms))
        return [
            RangesPartition(group, summary.retention_ms)
            for group in grouped(ranges, settings.max_tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangesPartition):
            return iter(())  # Spark makes a partition of its own where there are none
        return read_ranges(
            partition.ranges,
            self._settings,
            self._filters,
            retention_ms=partition.retention_ms,
            columns=self._columns,
        )


class FilteringBatchReader(KinesisBatchReader):
    """A reader that takes filters over from Spark.

    Only on request. Spark 4.3.0 keeps what was planned for the last pushed filters with the loaded
    frame, and uses it for all that is made of that frame, whatever its filters are. Spark also
    refuses such a reader while `spark.sql.python.filterPushdown.enabled` is false, its default.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        self._filters, left = PushedFilters.of(filters)
        return left


def new_reader(
    options: Mapping[str, str], pin: LoadPin | None, columns: Sequence[str] = COLUMNS
) -> KinesisBatchReader:
    """The reader for these options. `pin`: of `load()`; without one the stream is pinned now.
    `columns`: of `spark_job.rows`, those that are wanted.
    """
    settings = BatchSettings.from_options(options)
    kind = FilteringBatchReader if settings.push_down_filters else KinesisBatchReader
    # The executors have neither the driver's files nor its environment.
    settings = replace(settings, aws=for_executors(settings.aws, settings.stream))
    return kind(settings, pin or pin_load(options), columns)


def pin_load(options: Mapping[str, str]) -> LoadPin:
    """Check the options of a batch read and that the stream exists, and pin the stream as it is
    now. Calls the service once. Raises `KinesisError`.
    """
    settings = BatchSettings.from_options(options)
    with closing(KinesisClient(settings.aws, settings.stream)) as client:
        summary = client.describe()
    return LoadPin.at(summary.now_ms(_CLOCK.now_ms()), summary.created_ms)


def complete_listing(client: KinesisClient, clock: Clock) -> tuple[ShardInfo, ...]:
    """All listed shards. Lists again while no open shard has some of the hash keys: a resharding is
    under way, and its children are not listed yet.
    """
    for left in reversed(range(_LISTINGS)):
        listed = client.list_shards()
        holes = open_range_holes(listed)
        if not holes:
            break
        if left:
            clock.sleep(_LIST_AGAIN_S)
    else:
        log.warning(
            "%s lists no open shard for the hash keys %d to %d. If a shard is missing in the "
            "list, its records are not read",
            client.where,
            *holes[0],
        )
    return listed
