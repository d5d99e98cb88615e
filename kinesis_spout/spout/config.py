"""The configuration of a standalone spout, and the strategies by which its loop waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from kinesis_spout.backoff import Backoff
from kinesis_spout.config import AwsConfig, ReadRate, StreamRef, check_function, check_scheme
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import SHARED, check_consumer
from kinesis_spout.shards.start_position import RequestedStart
from kinesis_spout.spout.listener import SpoutListener
from state.errors import InvalidPositionError
from state.position import StartingPosition
from state.retry_policy import RetryPolicy, plain_number
from state.store.ownership import MAX_TASKS
from state.zookeeper.security import ZookeeperSecurity

if TYPE_CHECKING:
    from kinesis_spout.dead_letter.letter import Letter
    from kinesis_spout.spout.emission import SpoutEmission
    from scheme.record_scheme import RecordScheme

DEFAULT_MAX_PENDING = 10_000
# The service's Date header has whole seconds only, and arrival times are approximate.
UNTIL_NOW_MARGIN_MS = 2_000

WaitStrategy = Callable[[int], float]
"""How long `emissions()` waits when there is no record to emit. Maps the number of times in a row
that there was none, from 1, to the longest wait in seconds; 0 does not wait. The wait ends early at
a new record, an outcome, or the spout's closing.
"""

_IDLE = Backoff(first_s=0.001, longest_s=0.1)


def exponential_backoff(streak: int) -> float:
    """From 1 ms, doubling, to 100 ms."""
    return _IDLE.wait_s(streak)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoutConfig:
    """The settings of a `KinesisSpout`. Frozen, and validated when created. The repr masks secrets,
    which only `aws` and `zookeeper_security` contain. A field that is not described here is the
    Spark source's option of the same name (`kinesis_spout.options`, and the reference). Durations
    are in seconds.

    - `stream`: the name or the ARN of the stream that the spout reads.
    - `application`: the name under which ZooKeeper stores the checkpoints. Set both `application`
      and `zookeeper`, or neither of them. Without them, the spout stores nothing, and each run
      starts at `starting_position`.
    - `zookeeper`: the ZooKeeper connect string. A spout with `zookeeper` also requires
      `application`.
    - `zookeeper_security`: TLS, the spout's identity, and the access control of the znodes that the
      spout creates. By default, there is no security.
    - `starting_position`: the position at which a new application starts: LATEST, TRIM_HORIZON, an
      ISO time, or a relative time like -2h.
    - `until`: the arrival time of the last records to deliver: `now`, an ISO time, `14:00`, or a
      relative time like -2h. The spout delivers only records that arrived by this time, by
      Kinesis's clock. `emissions()` ends when all these records have an outcome. None delivers
      records without end.
    - `shards`: the ids of the shards that the spout reads; empty for all shards. A child shard is
      read only after those of its parents that are in `shards`.
    - `max_records`: the number of new records after which the spout delivers only retries; None for
      no limit.
    - `scheme`: the payload decoder, which fills an emission's `values`; None for no decoder. A
      malformed record is dead-lettered at once. If the scheme raises another error, the record
      fails and is retried.
    - `max_pending`: the number of emissions in flight at which the spout delivers no new records.
      The spout still delivers retries.
    - `max_unresolved_per_shard`: the number of unresolved records of a shard (in flight or waiting
      for a retry) at which the spout delivers no new records of the shard.
    - `message_timeout_s`: the time after which an emission that was neither acked nor failed counts
      as failed; None for no timeout.
    - `tracking`: False counts each emission as acked at once, so that no record is retried or
      dead-lettered.
    - `retry`: the limit, the backoff and the maximum age of a record's retries.
    - `dead_letter`: a function that stores a record that has used up its retries. The function must
      be thread-safe, because the spout's threads call it for up to four records at once. The spout
      repeats a call that has raised an exception, with a backoff. A call that runs for more than 30
      seconds no longer delays other dead letters. Without a `dead_letter`, the spout logs such
      records without their payload.
    - `breaker_failures`: the number of failures without a single ack after which the spout stops
      with an error; None for no limit.
    - `prefetch_records`: how many records of each shard the spout reads ahead.
    - `prefetch_bytes`: how many bytes the spout reads ahead, over all shards. Retries may take as
      many bytes again, half of them for dead letters.
    - `give_up_after_s`: the number of seconds without a successful read, listing or commit after
      which the spout stops with the last error; None for no limit. A permanent error, such as a
      missing permission, stops the spout at once.
    - `idle_poll_s`: the pause between two reads of a shard without unread records. The pause grows
      to `max_idle_poll_s` while the shard gets no records. Kinesis allows 5 reads per second for
      each shard.
    - `efo_fallback_after_s`: the number of seconds without a subscription after which the spout
      reads a shard with GetRecords, until the shard has a subscription again.
    - `close_timeout_s`: how long `close` waits if Kinesis, ZooKeeper or `dead_letter` does not
      respond. `close` returns at most a second later. Records that have no stored outcome by then
      are redelivered.
    - `start_active`: False defers all the spout's work, even the connection, until `activate` is
      called.
    - `task_index`: this process's index among the processes that share the shards, counted from 0.
    - `total_tasks`: the number of processes that share the stream's shards.
    - `on_ack`: a function that the spout calls with each acked emission, in the thread that acked
      it.
    - `on_fail`: a function that the spout calls with each failed emission and the reason, in the
      thread that failed it.
    """

    stream: str
    application: str | None = None
    zookeeper: str | None = None
    zookeeper_root: str = SHARED["zookeeper_root"].value
    zookeeper_session_timeout_s: float = SHARED["zookeeper_session_timeout"].value / 1000
    zookeeper_security: ZookeeperSecurity = field(default_factory=ZookeeperSecurity)
    aws: AwsConfig = field(default_factory=AwsConfig)
    starting_position: str = SHARED["starting_position"].value.text
    until: str | None = None
    shards: tuple[str, ...] = ()
    max_records: int | None = None
    scheme: RecordScheme | None = None
    max_pending: int = DEFAULT_MAX_PENDING
    max_unresolved_per_shard: int = SHARED["max_unresolved_per_shard"].value
    message_timeout_s: float | None = 30.0
    tracking: bool = True
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    dead_letter: Callable[[Letter], None] | None = None
    breaker_failures: int | None = 1_000
    give_up_after_s: float | None = None
    commit_interval_s: float = 1.0
    prefetch_records: int = 10_000
    prefetch_bytes: int = 64 * 1024 * 1024
    fetch_concurrency: int = 8
    idle_poll_s: float = 0.25
    max_idle_poll_s: float = 1.0
    read_mode: str = SHARED["read_mode"].value
    consumer_name: str | None = None
    consumer_arn: str | None = None
    efo_fallback_after_s: float = 30.0
    rate: ReadRate = field(default_factory=ReadRate)
    shard_refresh_interval_s: float = 30.0
    fail_on_data_loss: bool = SHARED["fail_on_data_loss"].value
    aggregated_records: str = SHARED["aggregated_records"].value
    owner_wait_s: float = 60.0
    close_timeout_s: float = 8.0
    task_index: int = 0
    total_tasks: int = 1
    start_active: bool = True
    listeners: tuple[SpoutListener, ...] = ()
    on_ack: Callable[[SpoutEmission], None] | None = None
    on_fail: Callable[[SpoutEmission, str | None], None] | None = None
    idle_wait: WaitStrategy = exponential_backoff
    limit_wait: WaitStrategy = exponential_backoff

    def __post_init__(self) -> None:
        self._check_types()
        self.stream_ref.region_or(self.aws.region)
        self.start  # noqa: B018  # validates starting_position
        self.until_ms(0)
        for given, missing in (_STORE, _STORE[::-1]):
            if getattr(self, given) is not None and getattr(self, missing) is None:
                remedy = "set both application and zookeeper; to store no checkpoints, set neither"
                raise ConfigError.of(given, f"is set, but {missing} is not", remedy=remedy)
        for name, takes in _FUNCTIONS.items():
            if (function := getattr(self, name)) is not None or name in _STRATEGIES:
                check_function(f"option {name}", function, takes=takes)
        shared = {name: getattr(self, name) for name in _CHECKED}
        check_consumer(shared, self.stream_ref)
        for name, value in shared.items():
            SHARED[name].check(name, value)
        for names, rule, holds in self._rules():
            for name in names:
                value = getattr(self, name)
                if not holds(value):
                    raise ConfigError.of(name, f"must be {rule}", value)
        if self.total_tasks > 1 and self.application is None:
            rule = "requires application and zookeeper, because the tasks share state in ZooKeeper"
            raise ConfigError.of("total_tasks", rule, self.total_tasks)

    def _check_types(self) -> None:
        """Raise `ConfigError`, without the value, which may contain a secret."""
        for one in fields(self):
            kind, words = _KINDS.get(str(one.type).removesuffix(" | None"), (object, ""))
            value = getattr(self, one.name)
            if value is None and str(one.type).endswith("None"):
                continue
            is_bool = isinstance(value, bool) and kind in {Integral, Real}
            if is_bool or not isinstance(value, kind):
                problem = f" is of type {type(value).__name__}"
                raise ConfigError.about(one.name, problem, f"pass {words}")
            if kind in {Integral, Real}:
                object.__setattr__(self, one.name, plain_number(value))
        if self.scheme is not None:
            check_scheme("scheme", self.scheme)

    def _rules(self) -> Iterator[tuple[Sequence[str], str, Callable[[Any], bool]]]:
        """The fields of a rule, what their values must be, and whether one is."""
        tasks = self.total_tasks
        in_seconds = [one.name for one in fields(self) if one.name.endswith("_s")]
        in_seconds.remove("owner_wait_s")
        yield _COUNTS, "1 or more", lambda count: count >= 1
        yield _LIMITS, "None or at least 1", lambda limit: limit is None or limit >= 1
        yield (
            in_seconds,
            "above 0 and at most 86400 (a day)",
            lambda seconds: seconds is None or 0 < seconds <= 86_400,
        )
        yield (
            ["until"],
            "None if total_tasks is above 1",
            lambda until: until is None or tasks == 1,
        )
        yield ["shards"], "a tuple of shard ids", partial(_all_of, str)
        yield ["listeners"], "a tuple of SpoutListener objects", partial(_all_of, SpoutListener)
        yield ["owner_wait_s"], "0 or more", lambda seconds: 0 <= seconds < math.inf
        yield ["total_tasks"], f"at most {MAX_TASKS}", lambda count: count <= MAX_TASKS
        yield ["task_index"], "from 0 to total_tasks - 1", lambda index: 0 <= index < tasks

    @property
    def stream_ref(self) -> StreamRef:
        """Raises `ConfigError`."""
        try:
            return StreamRef.of(self.stream)
        except ConfigError as exc:
            raise exc.respelt("stream") from None

    @property
    def start(self) -> RequestedStart:
        """Raises `ConfigError`."""
        try:
            return RequestedStart(default=StartingPosition.parse(self.starting_position))
        except InvalidPositionError as exc:
            raise ConfigError.about("starting_position", f": {exc}") from exc

    def until_ms(self, service_now_ms: int) -> int | None:
        """The last arrival time to deliver, in ms since 1970; None without `until`. Raises
        `ConfigError`.
        """
        if self.until is None:
            return None
        if self.until == "now":
            return service_now_ms + UNTIL_NOW_MARGIN_MS
        with suppress(InvalidPositionError):
            moment = StartingPosition.parse(self.until)
            if moment.is_time:
                return moment.pin(service_now_ms).timestamp_ms
        remedy = (
            "use now, a time today such as 14:00, a relative time such as -2h, or an ISO time such "
            "as 2026-01-31T12:00:00Z"
        )
        raise ConfigError.of("until", f"{self.until!r} is not a time", remedy=remedy)

    @property
    def message_timeout_ms(self) -> int | None:
        return None if self.message_timeout_s is None else round(self.message_timeout_s * 1000)


def _all_of(kind: type, values: Collection[object]) -> bool:
    return not isinstance(values, str) and all(isinstance(one, kind) for one in values)


_STORE = ("application", "zookeeper")
_CHECKED = (
    "read_mode",
    "consumer_name",
    "consumer_arn",
    "aggregated_records",
    "max_unresolved_per_shard",
)
_STRATEGIES = ("idle_wait", "limit_wait")
_FUNCTIONS = {
    "dead_letter": ("a dead letter",),
    "on_ack": ("an emission",),
    "on_fail": ("an emission", "a reason"),
    **dict.fromkeys(_STRATEGIES, ("a number",)),
}
_COUNTS = ("max_pending", "prefetch_records", "prefetch_bytes", "fetch_concurrency", "total_tasks")
_LIMITS = ("max_records", "breaker_failures")
# By the annotation of a field: the types that it takes, and their words.
_KINDS: dict[str, tuple[Any, str]] = {
    "str": (str, "a string"),
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": (bool, "True or False"),
    "tuple[str, ...]": (Collection, "a tuple of shard ids"),
    "tuple[SpoutListener, ...]": (Collection, "a tuple of listeners"),
    **{
        kind.__name__: (kind, f"a value of class {kind.__name__}")
        for kind in (AwsConfig, ReadRate, RetryPolicy, ZookeeperSecurity)
    },
}
