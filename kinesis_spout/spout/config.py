"""What a standalone spout runs on: frozen, and checked when it is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kinesis_spout.config import AwsConfig, ReadRate, StreamRef
from kinesis_spout.errors import ConfigError
from kinesis_spout.shards.start_position import RequestedStart
from state.errors import InvalidPositionError
from state.position import StartingPosition
from state.retry_policy import RetryPolicy
from state.task_share import MAX_TASKS

if TYPE_CHECKING:
    from kinesis_spout.spout.dead_letter import DeadLetter
    from kinesis_spout.spout.emission import SpoutEmission
    from kinesis_spout.spout.listener import SpoutListener
    from scheme.record_scheme import RecordScheme

DEFAULT_MAX_PENDING = 10_000
STATES_PER_WRITE = 100
UNTIL_NOW_MARGIN_MS = (
    2_000  # the service's Date header is cut to whole seconds, and arrival times are approximate
)

WaitStrategy = Callable[[int], float]
"""How long a loop over emissions waits when there is none. Takes how often in a row there was none,
from 1, and gives the longest wait in seconds; 0 does not wait. The wait ends early when something
changes: a record has come, an outcome was told, the spout was closed.
"""

_FIRST_S = 0.001
_LONGEST_S = 0.1
_DOUBLINGS = 7  # to the longest


def exponential_backoff(streak: int) -> float:
    """From a millisecond, doubling, to a tenth of a second."""
    return _LONGEST_S if streak > _DOUBLINGS else min(_LONGEST_S, _FIRST_S * 2.0 ** (streak - 1))


def do_not_wait(_streak: int) -> float:
    """Ask again at once: lowest latency, and a core of the machine for it."""
    return 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutConfig:
    """The settings of a `KinesisSpout`. Durations in seconds, sizes in bytes. The repr masks
    secrets, which are in `aws` only.

    - `stream`: its name, or its ARN.
    - `application`: the name under which positions are kept; `zookeeper`: where, as
      `host:port,host:port/chroot`, or `embedded:<directory>` for a server on this machine. Both or
      neither: without them nothing is remembered, and each run begins at `starting_position`.
    - `starting_position`: where an application without state begins: LATEST, TRIM_HORIZON, an ISO
      time, or a time ago like -2h.
    - `until`: `now`, an ISO time, or a time ago: only what has arrived by then, by the service's
      clock, is handed over, and `emissions()` ends when all of that has an outcome. None for no
      end.
    - `shards`: the ids of the only shards to read; none for all. Among these, children still wait
      for their parents.
    - `max_records`: so many records are handed over at most; after that only their retries are.
      None for no end.
    - `scheme`: gives an emission its `values`; None for the payload alone. What it finds malformed
      is dead-lettered at once.
    - `max_pending`: so many emissions may be without an outcome before new ones wait (retries go
      on); `max_unresolved_per_shard`: so many records of a shard may be pending or waiting for a
      retry before its new ones wait.
    - `message_timeout_s`: an emission without an outcome for so long has failed; None for no such
      limit.
    - `tracking`: False counts each emission as acked at once. That is not a retry limit of 0:
      nothing is ever dead-lettered.
    - `retry`: limit, backoff and maximum age; `dead_letter`: gets what is exhausted, from a thread
      of the spout's own; it is called again, with backoff, until it returns. Without one, exhausted
      records are logged, without their payload.
    - `breaker_failures`: the spout stops with an error when so many emissions failed and none was
      ever acked; None for never.
    - `prefetch_records` a shard, and `prefetch_bytes` of all shards, are read ahead; as many bytes
      again may be kept for retries.
    - `idle_poll_s`: how long a shard without news is left alone, growing to `max_idle_poll_s` as it
      stays without; the service allows 5 reads a second and shard.
    - `start_active`: False puts even the connecting off until `activate` is called.
    - `task_index`, `total_tasks`: this process is one of several that share the stream's shards.
    - `fail_on_data_loss`: whether records that expired unread stop the spout, or are told in the
      log.
    - `on_ack`, `on_fail`: called with each emission that is acked or has failed, in the thread that
      tells the outcome.
    """

    stream: str
    application: str | None = None
    zookeeper: str | None = None
    zookeeper_root: str = "kinesis-spout"
    zookeeper_session_timeout_s: float = 10.0
    aws: AwsConfig = field(default_factory=AwsConfig)
    starting_position: str = "LATEST"
    until: str | None = None
    shards: tuple[str, ...] = ()
    max_records: int | None = None
    scheme: RecordScheme | None = None
    max_pending: int = DEFAULT_MAX_PENDING
    max_unresolved_per_shard: int = 100_000
    message_timeout_s: float | None = 30.0
    tracking: bool = True
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letter: Callable[[DeadLetter], None] | None = None
    breaker_failures: int | None = 1_000
    commit_interval_s: float = 1.0
    prefetch_records: int = 10_000
    prefetch_bytes: int = 64 * 1024 * 1024
    fetch_concurrency: int = 8
    idle_poll_s: float = 0.25
    max_idle_poll_s: float = 1.0
    rate: ReadRate = field(default_factory=ReadRate)
    shard_refresh_interval_s: float = 30.0
    fail_on_data_loss: bool = True
    refuse_aggregated: bool = True
    owner_wait_s: float = 60.0
    task_index: int = 0
    total_tasks: int = 1
    start_active: bool = True
    listeners: tuple[SpoutListener, ...] = ()
    on_ack: Callable[[SpoutEmission], None] | None = None
    on_fail: Callable[[SpoutEmission, str | None], None] | None = None
    idle_wait: WaitStrategy = exponential_backoff
    limit_wait: WaitStrategy = exponential_backoff

    def __post_init__(self) -> None:
        self.stream_ref.region_or(self.aws.region)
        self.start  # noqa: B018  # raises what is wrong with it
        self.until_ms(0)
        if (self.application is None) != (self.zookeeper is None):
            given, missing = (
                ("application", "zookeeper")
                if self.zookeeper is None
                else ("zookeeper", "application")
            )
            raise ConfigError.of(
                given, f"is given without {missing}; give both, or neither to remember nothing"
            )
        for name in _COUNTS:
            _require(name, getattr(self, name), "1 or more", holds=getattr(self, name) >= 1)
        for name in _DURATIONS:
            value = getattr(self, name)
            _require(
                name, value, "above 0 and at most a day", holds=value is None or 0 < value <= 86_400
            )
        _require(
            "max_records",
            self.max_records,
            "None, or 1 or more",
            holds=self.max_records is None or self.max_records >= 1,
        )
        _require(
            "until",
            self.until,
            "left out where there are other tasks",
            holds=self.until is None or self.total_tasks == 1,
        )
        _require(
            "breaker_failures",
            self.breaker_failures,
            "None, or 1 or more",
            holds=self.breaker_failures is None or self.breaker_failures >= 1,
        )
        _require(
            "owner_wait_s", self.owner_wait_s, "0 or more", holds=0 <= self.owner_wait_s < math.inf
        )
        _require(
            "total_tasks",
            self.total_tasks,
            f"at most {MAX_TASKS}",
            holds=self.total_tasks <= MAX_TASKS,
        )
        _require(
            "task_index",
            self.task_index,
            "from 0 to total_tasks - 1",
            holds=0 <= self.task_index < self.total_tasks,
        )
        if self.total_tasks > 1 and self.application is None:
            raise ConfigError.of(
                "total_tasks",
                "needs application and zookeeper, where tasks see each other",
                self.total_tasks,
            )

    @property
    def stream_ref(self) -> StreamRef:
        """Raises `ConfigError`."""
        try:
            return (
                StreamRef.parse(arn=self.stream)
                if self.stream.startswith("arn:")
                else StreamRef.parse(name=self.stream)
            )
        except ConfigError as exc:
            raise exc.respelt("stream") from None

    @property
    def start(self) -> RequestedStart:
        """Raises `ConfigError`."""
        try:
            return RequestedStart(default=StartingPosition.parse(self.starting_position))
        except InvalidPositionError as exc:
            raise ConfigError(
                f"option starting_position: {exc}", option="starting_position"
            ) from exc

    def until_ms(self, service_now_ms: int) -> int | None:
        """The last arrival time that is of interest, in ms since 1970. Raises `ConfigError`."""
        if self.until is None:
            return None
        if self.until == "now":
            return service_now_ms + UNTIL_NOW_MARGIN_MS
        try:
            moment = StartingPosition.parse(self.until)
        except InvalidPositionError:
            moment = None
        pinned_ms = (
            None
            if moment is None or moment.text == "LATEST"
            else moment.pin(service_now_ms).timestamp_ms
        )
        if pinned_ms is None:
            raise ConfigError.of(
                "until",
                "is not a time; use now, -2h, or an ISO time like 2026-01-31T12:00:00Z",
                self.until,
            )
        return pinned_ms

    @property
    def message_timeout_ms(self) -> int | None:
        return None if self.message_timeout_s is None else round(self.message_timeout_s * 1000)


_COUNTS = (
    "max_pending",
    "max_unresolved_per_shard",
    "prefetch_records",
    "prefetch_bytes",
    "fetch_concurrency",
    "total_tasks",
)
_DURATIONS = (
    "zookeeper_session_timeout_s",
    "message_timeout_s",
    "commit_interval_s",
    "idle_poll_s",
    "max_idle_poll_s",
    "shard_refresh_interval_s",
)


def _require(name: str, value: object, rule: str, *, holds: bool) -> None:
    if not holds:
        raise ConfigError.of(name, f"must be {rule}", value)
