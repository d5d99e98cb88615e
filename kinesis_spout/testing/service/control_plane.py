"""Operations that create, describe, change and delete streams (API reference, each operation)."""

from __future__ import annotations

from typing import Any

import msgspec

from kinesis_spout.testing.errors import ServiceError, in_use, invalid_argument, limit_exceeded
from kinesis_spout.testing.service import constraints, requests
from kinesis_spout.testing.service.account import Account
from kinesis_spout.testing.service.answers import (
    DescribeLimitsAnswer,
    DescribeStreamAnswer,
    DescribeStreamSummaryAnswer,
    ListStreamsAnswer,
    StreamDescription,
    StreamDescriptionSummary,
    UpdateShardCountAnswer,
)
from kinesis_spout.testing.service.control_limits import CHANGES_UNDER_WAY, DAY_MS, SCALINGS_PER_DAY
from kinesis_spout.testing.service.list_shards import shard_answer
from kinesis_spout.testing.stream.stream import AUTO, BY_KEY, Stream

ON_DEMAND_STREAMS = 50
ON_DEMAND_SHARDS = 4  # of a new stream (Developer Guide, "Choose the right mode")


class ControlPlane(Account):
    """Each method takes the operation's request and returns its answer. Raises `ServiceError`."""

    def create_stream(self, request: requests.CreateStream) -> None:
        name = constraints.name("streamName", request.stream_name)
        distribution = _distribution(request)
        count = ON_DEMAND_SHARDS
        if distribution is None or request.shard_count is not None:
            count = constraints.number("shardCount", request.shard_count, low=1)
        size_kib = request.max_record_size_kib
        now_ms = self.clock.now_ms()
        self._forget_deleted(now_ms)
        if name in self._streams:
            raise in_use(f"Stream {name} under account {self.settings.account_id} already exists.")
        self._check_changes(now_ms)
        self._check_shard_limit(count)
        self._streams[name] = Stream(
            name=name,
            arn=f"arn:aws:kinesis:{self.settings.region}:{self.settings.account_id}:stream/{name}",
            shard_count=count,
            created_ms=self._creation_ms(now_ms),
            opened_ms=now_ms,
            ready_ms=now_ms + self.settings.create_ms,
            max_record_bytes=self.settings.default_max_record_bytes
            if size_kib is None
            else _record_bytes(size_kib),
            distribution=distribution,
        )

    def delete_stream(self, request: requests.DeleteStream) -> None:
        """Refused for a stream with consumers, unless `EnforceConsumerDeletion` is set."""
        stream = self._stream_of(request)
        now_ms = self.clock.now_ms()
        if stream.consumers and not request.enforce_consumer_deletion:
            raise in_use(
                f"Stream {stream.name} under account {self.settings.account_id} has "
                f"{len(stream.consumers)} registered "
                "consumers; deregister them, or delete with EnforceConsumerDeletion."
            )
        if stream.deleted_ms is None:
            self._check_changes(now_ms)
            stream.deleted_ms = now_ms
        self._forget_deleted(now_ms)

    def list_streams(self, request: requests.ListStreams) -> ListStreamsAnswer:
        limit = constraints.limit("limit", request.limit, default=100)
        self._forget_deleted(self.clock.now_ms())
        names = sorted(
            name for name in self._streams if name > (request.exclusive_start_stream_name or "")
        )
        return ListStreamsAnswer(names[:limit], len(names) > limit)

    def describe_stream(self, request: requests.DescribeStream) -> DescribeStreamAnswer:
        stream = self._stream_of(request)
        limit = constraints.limit("limit", request.limit, default=100)
        status = stream.status(self.clock.now_ms())
        after = request.exclusive_start_shard_id or ""
        shards = (
            []
            if status == "CREATING"
            else [shard for shard in stream.shards.values() if shard.shard_id > after]
        )
        return DescribeStreamAnswer(
            StreamDescription(
                **_description(stream, status),
                shards=[shard_answer(shard) for shard in shards[:limit]],
                has_more_shards=len(shards) > limit,
            )
        )

    def describe_stream_summary(
        self, request: requests.DescribeStreamSummary
    ) -> DescribeStreamSummaryAnswer:
        stream = self._stream_of(request)
        return DescribeStreamSummaryAnswer(
            StreamDescriptionSummary(
                **_description(stream, stream.status(self.clock.now_ms())),
                open_shard_count=len(stream.open_shards()),
                consumer_count=len(stream.consumers),
                max_record_size_kib=stream.max_record_bytes // 1024,
                record_distribution_strategy=stream.distribution or msgspec.UNSET,
            )
        )

    def update_max_record_size(self, request: requests.UpdateMaxRecordSize) -> None:
        """Records that are there already stay as they are."""
        stream = self._active_stream(request)
        stream.max_record_bytes = _record_bytes(request.max_record_size_kib)

    def update_stream_record_distribution_strategy(
        self, request: requests.UpdateStreamRecordDistributionStrategy
    ) -> None:
        """Records that are there already stay in their shards. On-demand streams only."""
        strategy = _strategy(request.record_distribution_strategy)
        stream = self._active_stream(request)
        if stream.distribution is None:
            raise _is_provisioned(stream.name)
        stream.distribution = strategy

    def describe_limits(self, _: requests.DescribeLimits) -> DescribeLimitsAnswer:
        return DescribeLimitsAnswer(
            shard_limit=self.settings.shard_limit,
            open_shard_count=self._open_shard_count(),
            on_demand_stream_count=0,
            on_demand_stream_count_limit=ON_DEMAND_STREAMS,
        )

    def split_shard(self, request: requests.SplitShard) -> None:
        stream = self._active_stream(request)
        shard_id = constraints.name("shardToSplit", request.shard_to_split)
        new_start = constraints.hash_key_text("NewStartingHashKey", request.new_starting_hash_key)
        now_ms = self.clock.now_ms()
        self._check_changes(now_ms)
        self._check_shard_limit(1)
        stream.split(shard_id, new_start, now_ms=now_ms, due_ms=now_ms + self.settings.reshard_ms)

    def merge_shards(self, request: requests.MergeShards) -> None:
        stream = self._active_stream(request)
        shard_id = constraints.name("shardToMerge", request.shard_to_merge)
        adjacent_id = constraints.name("adjacentShardToMerge", request.adjacent_shard_to_merge)
        now_ms = self.clock.now_ms()
        self._check_changes(now_ms)
        stream.merge(shard_id, adjacent_id, now_ms=now_ms, due_ms=now_ms + self.settings.reshard_ms)

    def update_shard_count(self, request: requests.UpdateShardCount) -> UpdateShardCountAnswer:
        constraints.one_of("scalingType", request.scaling_type, ("UNIFORM_SCALING",))
        target = constraints.number("targetShardCount", request.target_shard_count, low=1)
        stream = self._active_stream(request)
        current = len(stream.open_shards())
        self._check_shard_limit(max(0, target - current))
        now_ms = self.clock.now_ms()
        self._check_scalings(stream, now_ms)
        stream.scale(target, now_ms=now_ms, due_ms=now_ms + self.settings.reshard_ms)
        stream.scaled_ms.append(now_ms)
        return UpdateShardCountAnswer(
            stream_name=stream.name,
            current_shard_count=current,
            target_shard_count=target,
            stream_arn=stream.arn,
        )

    def increase_stream_retention_period(self, request: requests.ChangeRetention) -> None:
        """At most 8,760 hours."""
        self._change_retention(request, is_longer=True)

    def decrease_stream_retention_period(self, request: requests.ChangeRetention) -> None:
        """At least 24 hours. Records older than the new period are gone at once."""
        self._change_retention(request, is_longer=False)

    def _change_retention(self, request: requests.ChangeRetention, *, is_longer: bool) -> None:
        hours = constraints.needed("retentionPeriodHours", request.retention_period_hours)
        if not 24 <= hours <= 8_760:
            raise invalid_argument(
                f"Retention period must be between 24 and 8760 hours, not {hours}."
            )
        stream = self._active_stream(request)
        if hours != stream.retention_hours and (hours > stream.retention_hours) is not is_longer:
            than, other = ("shorter", "Decrease") if is_longer else ("longer", "Increase")
            raise invalid_argument(
                f"Requested retention period ({hours} hours) for stream {stream.name} can not be "
                f"{than} than existing retention period ({stream.retention_hours} hours). Use "
                f"{other}RetentionPeriod API."
            )
        stream.retention_hours = hours

    def _active_stream(self, request: requests.Request) -> Stream:
        stream = self._stream_of(request)
        status = stream.status(self.clock.now_ms())
        if status != "ACTIVE":
            raise self._not_active(stream, status)
        return stream

    def _check_shard_limit(self, more: int) -> None:
        opened = self._open_shard_count()
        if opened + more > self.settings.shard_limit:
            raise limit_exceeded(
                "This request would exceed the shard limit for the account "
                f"{self.settings.account_id} in "
                f"{self.settings.region}. Current shard count for the account: {opened}. Limit: "
                f"{self.settings.shard_limit}. "
                f"Number of additional shards that would have resulted from this request: {more}."
            )

    def _open_shard_count(self) -> int:
        return sum(len(stream.open_shards()) for stream in self._streams.values())

    def _check_changes(self, now_ms: int) -> None:
        """Refuse a change while too many streams are changing.

        The API reference gives a number for CREATING only; of other changes it says that there may
        be too many. This number holds for all.
        """
        for stream in self._streams.values():
            stream.settle(now_ms)
        changing = [
            stream.name for stream in self._streams.values() if stream.status(now_ms) != "ACTIVE"
        ]
        if self.settings.control_limits and len(changing) >= CHANGES_UNDER_WAY:
            raise limit_exceeded(
                f"Account {self.settings.account_id} has {len(changing)} streams with a change in "
                f"progress, which is the maximum: {', '.join(changing)}."
            )

    def _check_scalings(self, stream: Stream, now_ms: int) -> None:
        stream.scaled_ms = [at_ms for at_ms in stream.scaled_ms if at_ms > now_ms - DAY_MS]
        if self.settings.control_limits and len(stream.scaled_ms) >= SCALINGS_PER_DAY:
            raise limit_exceeded(
                f"Stream {stream.name} under account {self.settings.account_id} was scaled "
                f"{SCALINGS_PER_DAY} times within "
                "24 hours, which is the maximum that UpdateShardCount allows."
            )


def _description(stream: Stream, status: str) -> dict[str, Any]:
    """The members that both descriptions of a stream have."""
    mode = "PROVISIONED" if stream.distribution is None else "ON_DEMAND"
    return {
        "stream_name": stream.name,
        "stream_arn": stream.arn,
        "stream_status": status,
        "stream_mode_details": requests.StreamMode(mode),
        "retention_period_hours": stream.retention_hours,
        "stream_creation_timestamp": stream.created_ms / 1000,
        "enhanced_monitoring": [{"ShardLevelMetrics": []}],
    }


def _distribution(request: requests.CreateStream) -> str | None:
    """The record distribution strategy of a new stream; None for a provisioned one."""
    details = request.stream_mode_details
    mode = None if details is None else details.stream_mode
    mode = constraints.one_of("streamMode", mode or "PROVISIONED", ("PROVISIONED", "ON_DEMAND"))
    strategy = request.record_distribution_strategy
    if mode == "ON_DEMAND":
        return BY_KEY if strategy is None else _strategy(strategy)
    if strategy is not None:
        raise _is_provisioned(request.stream_name)
    return None


def _strategy(value: str | None) -> str:
    return constraints.one_of("recordDistributionStrategy", value, (AUTO, BY_KEY))


def _is_provisioned(stream_name: str | None) -> ServiceError:
    return invalid_argument(
        f"Stream {stream_name} is provisioned; only on-demand streams have a record distribution "
        "strategy."
    )


def _record_bytes(size_kib: int | None) -> int:
    return 1024 * constraints.number("maxRecordSizeInKiB", size_kib, low=1024, high=10240)
