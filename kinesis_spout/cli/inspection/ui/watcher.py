"""Observes in a thread of its own, however many readers there are."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from kinesis_spout.cli.exit_codes import sentence_of
from kinesis_spout.cli.inspection.looking import REFRESH_S

if TYPE_CHECKING:
    from typing import Self

    from kinesis_spout.clock import Clock

READER_STAYS_S = 30.0
LATE_S = 15.0  # an observation that takes longer is reported, though it has not failed
END_S = 0.5
_SILENT = "ZooKeeper or Kinesis does not answer"


class Observed(Protocol):
    """What is observed. For one thread."""

    def open(self) -> None:
        """Open the connections; again, after it has failed. May raise what `observe` raises."""
        ...

    def observe(self) -> dict[str, Any]:
        """The page's JSON. Blocks. An error changes nothing."""
        ...

    def shard(self, shard_id: str) -> dict[str, Any] | None:
        """What the page shows of one shard of the last observation; None for one that it does not
        have. Any thread may ask.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """`version` counts the observations, also those that failed. `data`: the last one that did not;
    None before the first. `trouble`: why there is no newer one, and `since_ms`: for how long.
    """

    version: int = 0
    data: dict[str, Any] | None = None
    trouble: str | None = None
    since_ms: int = 0


class Watcher:
    """A context manager around the thread. `newest` may be called by several threads.

    Observations follow each other at the pace of `status --watch` while somebody reads, and once in
    `slow_s` otherwise; never two at a time. One that fails changes nothing but `Seen.trouble`.
    """

    def __init__(self, observed: Observed, *, slow_s: float, clock: Clock) -> None:
        self.observed = observed
        self._slow_s = max(slow_s, REFRESH_S)
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._seen_s = self._asked_s = clock.monotonic_s()
        self._seen = Seen()

    def open(self, *, first_look: bool = True) -> None:
        """Start the thread. `first_look`: after the first observation, in this thread; raises what
        that raises.
        """
        if first_look:
            try:
                self.observed.open()
                self._observe()
            except BaseException:
                self.observed.close()
                raise
        self._thread.start()

    def close(self) -> bool:
        """Whether the thread has ended. A call that is under way may keep it for longer."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(END_S)
        return not self._thread.is_alive()

    def newest(self) -> Seen:
        """Does not block for an observation."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._asked_s = now_s
            seen, late_s = self._seen, now_s - self._seen_s
        if seen.trouble is None and late_s < self._slow_s + LATE_S:
            return seen
        return replace(seen, trouble=seen.trouble or _SILENT, since_ms=round(late_s * 1000))

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # in the thread --------------------------------------------------------------------------------
    def _run(self) -> None:
        is_open = self._seen.data is not None
        pace_s = self._pace_s() if is_open else 0.0
        try:
            while not self._stop.wait(pace_s):
                try:
                    if not is_open:
                        self.observed.open()
                        is_open = True
                    self._observe()
                except Exception as exc:  # noqa: BLE001  # whatever it is, the page reports it
                    self._keep(trouble=sentence_of(exc))
                pace_s = self._pace_s()
        finally:
            self.observed.close()

    def _pace_s(self) -> float:
        with self._lock:
            is_read = self._clock.monotonic_s() - self._asked_s < READER_STAYS_S
        return REFRESH_S if is_read else self._slow_s

    def _observe(self) -> None:
        self._keep(data=self.observed.observe(), trouble=None)

    def _keep(self, **changes: Any) -> None:
        with self._lock:
            self._seen = replace(self._seen, version=self._seen.version + 1, **changes)
            if self._seen.trouble is None:
                self._seen_s = self._clock.monotonic_s()
