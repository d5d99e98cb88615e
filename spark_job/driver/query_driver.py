"""The driver's side of a query: a loop over the query's streams that plans one batch from all of
them. The work for one stream is done by its `Coordinator`; a query of one stream runs the same loop
with one coordinator.

Why one source reads several streams, instead of a Spark union of sources: Spark refuses a
checkpoint location whose number of sources has changed ("There are [2] sources in the checkpoint
offsets and now there are [3] sources requested by the query", PySpark 4.3.0). A union could never
add or remove a stream. So the union is made below the source. Each stream keeps its own plans,
states, limits, connections and owner lock in ZooKeeper, as in a query of its own, and the offset
names one plan per stream. A batch consists of the tasks of all streams that have records to read.

- Each stream's plan is settled separately, and settling can be repeated. If the driver is killed
  between two streams, the next driver settles the rest: Spark passes it the same offset.
- A stream without records to read has no plan in the batch. No older plan of that stream may stay
  open then, because a tracked batch treats open plans as its own. So `tasks` closes such a plan.
- A batch starts as soon as one stream has records. An idle query waits once for all streams.
- The query starts only if every stream exists and is not owned by another query.

Only a query of several streams skips a stream for a while:

- A stream that is throttled or does not answer is skipped for some seconds, longer each time, with
  a warning. The other streams are still read. If that lasts `GIVEN_UP_S` while no other stream has
  records either, the stream's error ends the query. The stream is requested once more before that,
  because its error may be a minute old. Any other error ends the query at once. The error's text
  names the stream. In a query of one stream every error ends the query, because the client has
  already retried for long enough.
- A stream that is behind, but whose tasks return no record (another consumer uses up its requests),
  would delay each batch by `maxSearchTime`. Its tasks search for `maxFetchTime` only, doubled each
  time, and afterwards the stream is skipped for as long as its tasks searched.

With several streams, each step runs in a pool of threads; a call of `QueryDriver` returns only when
its steps have ended, and a stream runs one step at a time. With one stream, the steps run in the
caller's thread.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kinesis_spout.backoff import Backoff
from kinesis_spout.config import duration
from kinesis_spout.errors import ConfigError, KinesisError
from kinesis_spout.threads import thread_pool
from spark_job.driver.backlog import POLL_S, Found
from spark_job.driver.coordinator import Coordinator
from spark_job.driver.planner import shares
from spark_job.process_services import ProcessServices
from spark_job.query_failure import named_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kinesis_spout.clock import Clock
    from kinesis_spout.threads import NewPool
    from spark_job.settings import QuerySettings, SourceSettings
    from state.plan import TaskPlan

_T = TypeVar("_T")
log = logging.getLogger("kinesis_spout")
RETRY_FOR_S = 10.0  # a call of one stream, for which the others wait
GIVEN_UP_S = 60.0
LEFT_OUT = Backoff(first_s=5.0, longest_s=60.0)
MAX_THREADS = 16
MAX_DOUBLINGS = 16
# Bounds for recognising a trigger's interval from the times of Spark's calls.
_SHORTEST_MS = 2_000
_MINUTE_MS = 60_000
_SLACK_MS = 1_000
_MAX_CALLS = 4
_NEW_LOCATION = (
    "give the query a new checkpointLocation. Each stream then continues from its state in "
    "ZooKeeper. A stream without state starts at its startingPosition. The position LATEST skips "
    "the records that the stream already contains"
)


class QueryTask(NamedTuple):
    """A task of a batch. `stream`: the index of the task's stream in the query's settings."""

    stream: int
    plan_id: str
    task: int
    plan: TaskPlan


@dataclass(slots=True)
class _Trouble:
    """Failing requests to one stream: the last error, since when, and how many in a row."""

    error: BaseException
    since_s: float
    times: int = 0


@dataclass(slots=True, eq=False)
class _Stream:
    """One stream of the query.

    - `trouble`: set while requests to the stream fail. `left_out_until_s`: until when the stream is
      skipped, because of trouble or of empty plans. `empty_plans`: the number of plans in a row
      whose tasks returned no record.
    - Valid during one `next_offset`: `is_settled`; `has_failed`: a request has failed; `found`: the
      result of the last look; `searched_s`: the time spent looking, without skipped time.
    """

    index: int
    coordinator: Coordinator
    trouble: _Trouble | None = None
    left_out_until_s: float = 0.0
    empty_plans: int = 0
    is_settled: bool = False
    has_failed: bool = False
    found: Found = field(default_factory=Found)
    searched_s: float = 0.0

    @property
    def settings(self) -> SourceSettings:
        return self.coordinator.settings

    @property
    def name(self) -> str:
        return self.settings.state_name

    @property
    def search_ms(self) -> int:
        """How long the stream's tasks may search for a first record; other streams wait for it."""
        settings = self.settings
        longest = settings.max_fetch_time_ms << min(self.empty_plans, MAX_DOUBLINGS)
        return min(settings.max_search_time_ms, longest)


class TriggerInterval:
    """The interval of a query's trigger, derived from the times of Spark's calls. Pure.

    Spark does not tell a source its trigger. With a processing-time trigger, Spark calls at
    multiples of the interval since 1970 (`ProcessingTimeExecutor`), unless a batch takes longer. So
    calls that are one interval apart, at multiples of that interval, reveal the trigger. Without
    such a trigger, Spark calls every few milliseconds while there are no records.

    `known_ms`: the interval; None if there is none. `is_known`: whether enough calls were seen.
    """

    def __init__(self) -> None:
        self._calls: deque[int] = deque(maxlen=_MAX_CALLS)
        self.known_ms: int | None = None
        self.is_known = False

    def called(self, now_ms: int) -> None:
        """Note that Spark has asked for a batch at this time of the driver's clock."""
        self._calls.append(now_ms)
        gaps_ms = [after - before for before, after in pairwise(self._calls)]
        interval_ms = round(gaps_ms[-1] / 1_000) * 1_000 if gaps_ms else 0
        # Calls rarely fall on whole minutes by chance. Any other interval needs one more call.
        wanted = 2 if interval_ms % _MINUTE_MS == 0 else 3
        last = list(self._calls)[-wanted:]
        slack_ms = min(_SLACK_MS, interval_ms // 10)
        if (
            interval_ms >= _SHORTEST_MS
            and len(last) == wanted
            and all(call % interval_ms <= slack_ms for call in last)
            and all(
                after // interval_ms == before // interval_ms + 1
                for before, after in pairwise(last)
            )
        ):
            self.known_ms, self.is_known = interval_ms, True
        elif len(gaps_ms) == _MAX_CALLS - 1 and max(gaps_ms) < _SHORTEST_MS:
            self.known_ms, self.is_known = None, True


class QueryDriver:
    """Plans and settles the batches of a query. `close` releases the ownership of all streams. Use
    it from one thread. Blocks on ZooKeeper and Kinesis.

    `coordinators`: one for each stream, in the order of the query.
    """

    def __init__(
        self,
        query: QuerySettings,
        coordinators: Sequence[Coordinator],
        *,
        new_pool: NewPool = thread_pool,
    ) -> None:
        self._query = query
        self._clock: Clock = coordinators[0].clock
        self._streams = [
            _Stream(index, coordinator) for index, coordinator in enumerate(coordinators)
        ]
        self._pool = new_pool(min(MAX_THREADS, len(self._streams)), "kinesis-stream")
        self._turn = 0
        self._trigger = TriggerInterval()
        self._found: dict[str, str] = {}  # stream by plan id, as far as looked up

    @classmethod
    def connected(cls, query: QuerySettings) -> QueryDriver:
        """Return the driver of a query. Its streams connect at their first use."""
        # With several streams, a failing stream must not delay the others for long.
        services = [
            ProcessServices.connect(stream)
            if query.is_of_one
            else ProcessServices.connect(stream, retry_for_s=RETRY_FOR_S)
            for stream in query.streams
        ]
        return cls(query, list(map(Coordinator, query.streams, services)))

    @property
    def _is_available_now(self) -> bool:
        return self._streams[0].coordinator.is_available_now  # the same for all streams

    # Spark's calls
    def prepare_available_now(self) -> None:
        self._each(
            self._streams, lambda stream: stream.coordinator.prepare_available_now(), strict=True
        )

    def next_offset(self, start: Mapping[str, Any], *, max_records: int | None) -> dict[str, Any]:
        """Settle the plans of offset `start`, and return the offset of the next batch, or `start`
        unchanged if there is nothing to read (Spark takes any other value for a new batch).

        `max_records`: the limit of the batch over all streams. Waits up to `idleWait` for records
        or for the end of a pause. In an AvailableNow run, returning `start` ends the query. Such a
        run waits up to `maxSearchTime` for shards that are not yet read up to the run's start, and
        up to `availableNowRetryWait` for retries. If the application is paused, the run ends.
        """
        plans = self._named(start)
        self._trigger.called(self._clock.now_ms())
        for stream in self._streams:
            stream.is_settled = stream.has_failed = False
            stream.searched_s = 0.0
        begun_s = self._clock.monotonic_s()
        while True:
            settled = self._settled_streams(plans)
            now_s = self._clock.monotonic_s()
            looked_at = self._look(settled, now_s)
            is_any = any(stream.found.is_any for stream in looked_at)
            pause_s = POLL_S if is_any else self._pause_s(looked_at, begun_s)
            is_over = is_any or pause_s is None
            if is_over and (new := self._planned(plans, looked_at, max_records)):
                after = plans | new
                names_streams = not self._query.is_of_one or any(read_offset(start))
                return offset_of(after, names_streams=names_streams)
            if pause_s is None:
                break
            self._clock.sleep(pause_s)
            for stream in looked_at:
                stream.coordinator.note_waited(pause_s)
                stream.searched_s += self._clock.monotonic_s() - now_s
        if self._is_available_now:
            for stream in self._streams:
                stream.coordinator.end_run(is_paused=stream.found.is_paused)
        return dict(start)

    def tasks(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[QueryTask]:
        """Return the tasks of the batch between two offsets.

        A batch that Spark repeats must have the same rows again: Spark would count an omitted row
        as delivered, so its record would be lost. Raises `ConfigError` for a batch with records of
        a stream that the query no longer reads.
        """
        if start == end:
            return []
        begins, ends = self._named(start), self._named(end)
        wanted = {name: plan for name, plan in ends.items() if plan != begins.get(name, "")}
        for missing in sorted(wanted.keys() - {stream.name for stream in self._streams}):
            application, name = missing.split("/", 1)
            raise ConfigError(
                f"the batch that Spark is repeating contains records of stream {name} (application "
                f"{application}, batch {wanted[missing]}), which this query no longer reads",
                f"run the query with stream {name} until the batch is done, for example with "
                "trigger(availableNow=True), and then remove the stream",
            )

        def tasks_of(stream: _Stream) -> list[QueryTask]:
            plan_id = wanted.get(stream.name, "")
            tasks = stream.coordinator.tasks(plan_id, known_plan=ends.get(stream.name, ""))
            return [QueryTask(stream.index, plan_id, task, plan) for task, plan in tasks.items()]

        found = self._each(self._streams, tasks_of, strict=True)
        # The same order again, however the query names its streams.
        streams = sorted(self._streams, key=lambda stream: stream.settings.label)
        return [task for stream in streams for task in found[stream]]

    def report(self) -> dict[str, Any]:
        """Return the reports of all streams (`Coordinator.report`). Does no I/O."""
        if self._query.is_of_one:
            return self._streams[0].coordinator.report()
        return {
            "format": 2,
            "streams": [
                stream.coordinator.report()
                | ({} if stream.trouble is None else {"trouble": str(stream.trouble.error)})
                for stream in self._streams
            ],
        }

    def failed(self, error: BaseException) -> None:
        """Store this error as the end of each stream's run. Raises nothing."""
        for stream in self._streams:
            stream.coordinator.session.run.failed(error)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for stream in self._streams:
            stream.coordinator.close()

    # looking and planning
    def _settled_streams(self, plans: Mapping[str, str]) -> list[_Stream]:
        """Settle the plans of all streams that are not skipped now. Return the settled streams."""
        now_s = self._clock.monotonic_s()
        awake = [stream for stream in self._streams if stream.left_out_until_s <= now_s]
        streams = [stream for stream in awake if not stream.is_settled]
        settled = self._each(
            streams, lambda stream: stream.coordinator.settle(plans.get(stream.name, ""))
        )
        for stream, was_empty in settled.items():
            stream.is_settled = True
            if self._trigger.is_known and not self._is_available_now:
                stream.coordinator.session.run.write(trigger_ms=self._trigger.known_ms)
            if was_empty is False:
                stream.empty_plans = 0
            elif was_empty and not self._query.is_of_one:
                stream.left_out_until_s = now_s + stream.search_ms / 1000
                log.warning(
                    "the query lags on stream %s, but Kinesis has returned none of its records for "
                    "%s. For the same time, the next batches read only the other streams",
                    stream.settings.label,
                    duration(stream.search_ms),
                )
                stream.empty_plans += 1
        return [
            stream for stream in awake if stream.is_settled and stream.left_out_until_s <= now_s
        ]

    def _look(self, streams: Sequence[_Stream], now_s: float) -> list[_Stream]:
        """Let each coordinator look for records, and return the streams whose requests succeeded.
        The time in which a stream was skipped does not count as part of its wait.
        """
        found = self._each(
            streams, lambda stream: stream.coordinator.look(now_s - stream.searched_s)
        )
        for stream, one in found.items():
            stream.found = one
            if stream.trouble is not None:
                log.warning(
                    "Kinesis responds to requests for stream %s again", stream.settings.label
                )
            stream.trouble = None
        return list(found)

    def _pause_s(self, looked_at: Sequence[_Stream], begun_s: float) -> float | None:
        """The seconds until the next pass; None if all waits are over.

        A stream that this pass did not look at counts as skipped, even if its time is over by now:
        the requests of the other streams may have taken that long.
        """
        is_any_left_out = any(
            stream not in looked_at or stream.trouble is not None for stream in self._streams
        )
        waits = [stream.found.pause_s for stream in looked_at if stream.found.pause_s is not None]
        if not waits and not (is_any_left_out and self._waits_for_left_out(begun_s)):
            return None
        return min([POLL_S, *waits] if is_any_left_out else waits)

    def _waits_for_left_out(self, begun_s: float) -> bool:
        """Whether to wait for skipped streams, given that no other stream has records. Raises the
        error of a stream that has failed for `GIVEN_UP_S`, if it has also failed during this wait.
        A stream that has not been tried during this wait is tried at once.
        """
        now_s = self._clock.monotonic_s()
        is_any_asked = False
        for stream in self._streams:
            if stream.trouble is None or now_s - stream.trouble.since_s < GIVEN_UP_S:
                continue
            if stream.has_failed:
                raise named_error(stream.settings.label, stream.trouble.error)
            stream.left_out_until_s, is_any_asked = now_s, True
        idle_s = min(stream.settings.idle_wait_ms for stream in self._streams) / 1000
        return is_any_asked or self._is_available_now or now_s - begun_s < idle_s

    def _planned(
        self, plans: Mapping[str, str], looked_at: Sequence[_Stream], max_records: int | None
    ) -> dict[str, str]:
        """Make new plans, by stream. The limit of tasks is shared in proportion to the shards.

        While a stream searches for a record that ends the process, no other stream has records in
        the batch: they could end it, too, and the search would not end.
        """
        self._turn += 1
        working = [stream for stream in looked_at if stream.found.is_any]
        searching = [stream for stream in working if stream.found.delivery_limit is not None]
        working = searching[:1] or working
        limits = {stream: stream.settings.max_records_per_trigger for stream in working}
        if max_records is not None:
            limits = {
                stream: min(most, limits[stream] or most)
                for stream, most in shares(working, max_records, self._turn).items()
            }
        shards = sum(len(stream.found.shards) for stream in limits)
        max_tasks = max(stream.settings.max_tasks for stream in self._streams)

        def share_of_tasks(stream: _Stream) -> int:
            own = max_tasks * len(stream.found.shards) // shards if shards else max_tasks
            return min(stream.settings.max_tasks, max(1, own))

        made = self._each(
            [stream for stream in looked_at if not stream.found.is_paused],
            lambda stream: stream.coordinator.plan(
                plans.get(stream.name, ""),
                stream.found if stream in limits else Found(),
                max_records=limits.get(stream),
                max_tasks=share_of_tasks(stream),
                max_search_ms=None if self._query.is_of_one else stream.search_ms,
            ),
        )
        return {stream.name: plan_id for stream, plan_id in made.items() if plan_id is not None}

    def _named(self, offset: Mapping[str, Any]) -> dict[str, str]:
        """The plans of an offset, by stream. Blocks only if the offset does not name its stream.

        If the offset has a plan of the same stream under an application that the query does not
        read, the application was renamed. The stream then gets that plan, so that the missing state
        of the new application is detected as a loss. Without that plan, the driver would read the
        stream from its starting position.
        """
        plans = {name or self._stream_of(plan): plan for name, plan in read_offset(offset).items()}
        read = {stream.name: stream.settings.stream.name for stream in self._streams}
        left = {name.partition("/")[2]: plan for name, plan in plans.items() if name not in read}
        renamed = {name: left[stream] for name, stream in read.items() if stream in left}
        return renamed | plans

    def _stream_of(self, plan_id: str) -> str:
        """The stream of a plan that a query of one stream has written."""
        if self._query.is_of_one:
            return self._streams[0].name
        if plan_id not in self._found:
            known = self._each(
                self._streams, lambda stream: stream.coordinator.plans.knows(plan_id), strict=True
            )
            name = next((stream.name for stream, is_known in known.items() if is_known), None)
            if name is None:
                raise self._unknown_plan(plan_id)
            self._found[plan_id] = name
        return self._found[plan_id]

    def _unknown_plan(self, plan_id: str) -> KinesisError:
        # Another driver may have taken over and removed the plan.
        opened = [stream for stream in self._streams if stream.coordinator.session.is_loaded]
        self._each(opened, lambda stream: stream.coordinator.session.lead(), strict=True)
        moved = self._each(
            self._streams, lambda stream: stream.coordinator.session.was_moved(), strict=True
        )
        labels = [stream.settings.label for stream in self._streams]
        moved_labels = [stream.settings.label for stream in self._streams if moved[stream]]
        moved_text, first_try = "", f"run the query with the stream of batch {plan_id} too"
        if moved_labels:
            # An import has no plans, so the plan may belong to an imported stream of this query.
            moved_text = (
                ". An operator has moved, imported or removed the state of "
                f"{', '.join(moved_labels)}, so the batch may belong to one of these streams"
            )
            first_try = (
                f"run the query with only the stream of batch {plan_id} until a batch has ended"
            )
        return KinesisError(
            f"the newest offset in the checkpoint location is batch {plan_id} of a query of "
            f"one stream, but none of the streams {', '.join(labels)} has that batch in "
            f"ZooKeeper{moved_text}",
            f"{first_try}, or {_NEW_LOCATION}",
        )

    # threads and errors
    def _each(
        self, streams: Sequence[_Stream], step: Callable[[_Stream], _T], *, strict: bool = False
    ) -> dict[_Stream, _T]:
        """Run a step for each stream, and return the results by stream. A stream with a transient
        error has no result. The error is raised instead if `strict`, or if the stream has not been
        reached once.
        """
        if self._query.is_of_one:
            return {stream: step(stream) for stream in streams}
        futures = {stream: self._pool.submit(step, stream) for stream in streams}
        # Wait for all steps before the first error is raised.
        errors = {stream: future.exception() for stream, future in futures.items()}
        for stream, error in errors.items():
            if error is None:
                continue
            is_transient = isinstance(error, KinesisError) and error.retryable
            if strict or not is_transient or not stream.coordinator.session.is_loaded:
                raise named_error(stream.settings.label, error)
            self._on_trouble(stream, error)
        return {
            stream: future.result() for stream, future in futures.items() if errors[stream] is None
        }

    def _on_trouble(self, stream: _Stream, error: BaseException) -> None:
        now_s = self._clock.monotonic_s()
        before = stream.trouble or _Trouble(error, since_s=now_s)
        stream.trouble = replace(before, error=error, times=before.times + 1)
        stream.has_failed = True
        wait_s = LEFT_OUT.wait_s(stream.trouble.times)
        stream.left_out_until_s = now_s + wait_s
        log.warning(
            "the next batches omit stream %s for %.0f s, and read the other streams: %s",
            stream.settings.label,
            wait_s,
            error,
        )


# The offsets that Spark logs for a query: the plan of each stream with which a batch ends.
#
#     {"format": 1, "plan": "7-a1b2"}                               a query of one stream
#     {"format": 2, "plans": {"etl/orders": "7-a1b2", ...}}         a query of several streams
#
# A stream is named by application and stream name, like its state in ZooKeeper. A stream that the
# query no longer reads stays in the offsets with its last plan. If the query reads that stream
# again later, the plan is settled as the plan of a finished batch, so none of its records is
# delivered twice. So a query that once read several streams keeps format 2, even with one stream.
OF_ONE = 1
OF_SEVERAL = 2


def offset_of(plans: Mapping[str, str], *, names_streams: bool) -> dict[str, Any]:
    """Return the offset that names these plans. An offset without a plan comes before all others.
    `names_streams`: false for a query that has only ever read one stream; earlier versions read
    that form.
    """
    if names_streams:
        return {"format": OF_SEVERAL, "plans": dict(plans)}
    return {"format": OF_ONE, "plan": next(iter(plans.values()), "")}


def read_offset(offset: Mapping[str, Any]) -> dict[str, str]:
    """Return the plans in an offset, by stream. The plan of an offset that does not name its stream
    is under "". Raises `ConfigError` for an offset of an unknown format or of another source, which
    may be any JSON value.
    """
    match offset:
        case {"format": 1, "plan": str(plan)}:
            return {"": plan} if plan else {}
        case {"format": 2, "plans": dict(plans)} if all(
            isinstance(plan, str) for plan in plans.values()
        ):
            return plans
    if not isinstance(offset, dict) or "format" not in offset:
        raise ConfigError(
            "the checkpoint location belongs to a query of another source, because the newest "
            "offset in this location is not a batch of kinesis-spout",
            f"keep that checkpoint location for the other query, and {_NEW_LOCATION}",
        )
    raise ConfigError(
        f"the checkpoint location contains an offset of format {offset.get('format')!r}, not "
        f"{OF_ONE} or {OF_SEVERAL}",
        f"use the kinesis-spout version that wrote the checkpoint location, or {_NEW_LOCATION}",
    )
