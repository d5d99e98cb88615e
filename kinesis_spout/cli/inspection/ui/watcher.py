"""Looks at an application in a thread of its own, however many readers there are."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.cli.exit_codes import sentence_of
from kinesis_spout.cli.inspection.looking import REFRESH_S
from kinesis_spout.inspection.page.throughput import sample_of
from kinesis_spout.inspection.page.view import Trouble

if TYPE_CHECKING:
    from typing import Self

    from kinesis_spout.cli.inspection.looking import MovingWindow
    from kinesis_spout.cli.inspection.ui.letter_folder import LetterFolder
    from kinesis_spout.clock import Clock
    from kinesis_spout.inspection.health import Look
    from kinesis_spout.inspection.page.letter_reasons import Letters
    from kinesis_spout.inspection.page.throughput import Sample

MAX_SAMPLES = 900  # half an hour at the faster pace
READER_STAYS_S = 30.0
LATE_S = 15.0  # a look that takes longer is said to be missing, though it has not failed
END_S = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known now. `version` counts the looks, also those that failed."""

    version: int
    look: Look
    samples: tuple[Sample, ...]
    letters: Letters | None
    trouble: Trouble | None


class Watcher:
    """A context manager around the thread. `newest` may be called by several threads.

    Looks follow each other at the pace of `status --watch` while somebody reads, and once in the
    window otherwise; never two at a time. A look that fails changes nothing but `Seen.trouble`.
    """

    def __init__(
        self,
        window: MovingWindow,
        *,
        window_s: float,
        clock: Clock,
        letters: LetterFolder | None = None,
    ) -> None:
        self._window = window
        self._slow_s = max(window_s, REFRESH_S)
        self._clock = clock
        self._letters = letters
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looks", daemon=True)
        self._looked_s = self._asked_s = clock.monotonic_s()
        self._seen: Seen | None = None

    def open(self) -> None:
        """The first look, in this thread, and the start of the other one. Raises what it raises."""
        self._window.begin()
        self._look()
        self._thread.start()

    def close(self) -> bool:
        """Whether the thread has ended. A call that is under way may keep it for longer."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(END_S)
        return not self._thread.is_alive()

    def newest(self) -> Seen:
        """Does not block for a look."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._asked_s = now_s
            seen = self._seen
            if seen is None:
                raise RuntimeError("the watcher has not looked yet; call open first")
            late_s = now_s - self._looked_s
        if seen.trouble is None and late_s < self._slow_s + LATE_S:
            return seen
        says = "ZooKeeper or Kinesis does not answer" if seen.trouble is None else seen.trouble.says
        return Seen(
            seen.version,
            seen.look,
            seen.samples,
            seen.letters,
            Trouble(says, round(late_s * 1000)),
        )

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # in the thread --------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._stop.wait(self._pace_s()):
            try:
                self._look()
            except Exception as exc:  # noqa: BLE001  # whatever it is, the page says it and goes on
                self._fail(sentence_of(exc))

    def _pace_s(self) -> float:
        with self._lock:
            is_read = self._clock.monotonic_s() - self._asked_s < READER_STAYS_S
        return REFRESH_S if is_read else self._slow_s

    def _look(self) -> None:
        was = self._seen
        look = self._window.look()
        self._samples.append(sample_of(look, None if was is None else was.look.now))
        letters = None if self._letters is None else self._letters.read()
        with self._lock:
            self._looked_s = self._clock.monotonic_s()
            version = 1 if was is None else was.version + 1
            self._seen = Seen(version, look, tuple(self._samples), letters, None)

    def _fail(self, says: str) -> None:
        with self._lock:
            if self._seen is not None:
                one = self._seen
                self._seen = Seen(
                    one.version + 1,
                    one.look,
                    one.samples,
                    one.letters,
                    Trouble(says, 0),
                )
