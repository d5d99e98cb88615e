"""`kinesis-spout ui`: an application as a page in a browser, which is observed in a thread.
Read-only.
"""

import json
import os
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kinesis_spout.cli.exit_codes import Interrupted
from kinesis_spout.cli.explain import explained_json
from kinesis_spout.cli.letter_folder import LetterFolder
from kinesis_spout.cli.looking import REFRESH_S, MovingWindow, look_once, looking
from kinesis_spout.cli.page_server import LOOPBACK, Answer, PageServer, is_loopback, text
from kinesis_spout.cli.places import ASK, WINDOW, Operation, Place, command, say, write_file
from kinesis_spout.cli.shared_options import check_host, note, option, shard_id_of, wrong_usage
from kinesis_spout.cli.status import look_at_all
from kinesis_spout.clock import Clock
from kinesis_spout.config import StreamRef
from kinesis_spout.errors import error_sentence
from kinesis_spout.inspection.explanation import Group, explain, grouped
from kinesis_spout.inspection.health import Look
from kinesis_spout.inspection.status import ApplicationStatus, status_of
from kinesis_spout.page import page
from kinesis_spout.page.page_json import needy, observation_json, sample_json, shard_json

DEFAULT_PORT = 8_642
READER_STAYS_S = 30.0
LATE_S = 15.0  # an observation that takes longer is reported, though it has not failed
END_S = 0.5
MAX_SAMPLES = 900  # half an hour at the faster pace
MAX_EXPLAINED, MAX_GROUPS = 300, 8  # shards that are explained, and groups of them that are shown
MAX_OPEN = 8  # applications that are observed at a time
_HTML, _JSON = "text/html; charset=utf-8", "application/json"


class Observed(ABC):
    """What is observed. For one thread."""

    @abstractmethod
    def observe(self) -> dict[str, Any]:
        """The page's JSON. Blocks, and connects first where it has not. An error changes
        nothing.
        """

    def shard(self, shard_id: str) -> dict[str, Any] | None:
        """What the page shows of one shard of the last observation; None for one that it does not
        have. Any thread may ask.
        """
        del shard_id
        return None

    def close(self) -> None:  # noqa: B027  # not every one has something to close
        """Close the connections."""


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
    """Observes in a thread. `newest` may be called by several threads.

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
        trouble = seen.trouble or "ZooKeeper or Kinesis does not answer"
        return replace(seen, trouble=trouble, since_ms=round(late_s * 1000))

    # in the thread --------------------------------------------------------------------------------
    def _run(self) -> None:
        pace_s = 0.0 if self._seen.data is None else self._pace_s()
        try:
            while not self._stop.wait(pace_s):
                try:
                    self._observe()
                except Exception as exc:  # noqa: BLE001  # whatever it is, the page reports it
                    self._keep(trouble=error_sentence(exc))
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


@dataclass(kw_only=True)
class ObservedApplication(Observed):
    """One application, over a window that moves along."""

    place: Place
    window_s: float
    max_asked: int
    letters: LetterFolder | None = None
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _window: MovingWindow | None = field(default=None, init=False)
    _look: Look | None = field(default=None, init=False)
    _samples: deque[dict[str, Any]] = field(
        default_factory=partial(deque, maxlen=MAX_SAMPLES), init=False
    )

    def observe(self) -> dict[str, Any]:
        if (window := self._window) is None:
            self._stack.close()  # of what an earlier attempt has opened
            looks = looking(self.place, self._stack, max_asked=self.max_asked)
            window = MovingWindow(looks, self.window_s)
        look = window.look()
        self._window = window
        self._samples.append(sample_json(look, None if self._look is None else self._look.now))
        self._look = look
        return self.json_of(status_of(look))

    def json_of(self, status: ApplicationStatus) -> dict[str, Any]:
        """The page's JSON of an observation."""
        look, shards = status.look, needy(status)
        groups = grouped(look, shards[:MAX_EXPLAINED])[:MAX_GROUPS] if shards else []
        return {
            **observation_json(status, [self._explained(look, one) for one in groups]),
            "letters": None if self.letters is None else self.letters.read(),
            "samples": list(self._samples),
        }

    def shard(self, shard_id: str) -> dict[str, Any] | None:
        look = self._look
        if look is None or shard_id not in look.now.known_shards:
            return None
        group = Group(explain(look, shard_id), (shard_id,))
        return shard_json(look, shard_id, self._explained(look, group))

    def close(self) -> None:
        self._stack.close()

    def _explained(self, look: Look, group: Group) -> dict[str, Any]:
        return explained_json(look, group, self.place)


@dataclass(slots=True)
class ObservedApplications(Observed):
    """All applications under the root, as `status` lists them without `--application`.
    `is_at_once`: the next observation is of one look each, so that it does not take a window.
    """

    op: Operation
    window_s: float
    max_asked: int
    is_at_once: bool = True
    streams: dict[tuple[str, str], str] = field(default_factory=dict, init=False)
    """By application and stream, the stream's ARN, which tells its region too."""

    def observe(self) -> dict[str, Any]:
        is_at_once = self.is_at_once or not self.window_s
        wait = None if is_at_once else partial(self.op.signals.wait, self.window_s)
        lines = look_at_all(self.op.place, wait, self.max_asked)
        self.is_at_once = False
        self.streams = {
            (one.application, one.stream): one.status.look.now.stream.arn
            if one.status
            else one.stream
            for one in lines
        }
        listed = [one.as_json() for one in lines]
        return {"kind": "applications", "timeMs": self.op.clock.now_ms(), "applications": listed}


@dataclass(slots=True)
class PageAnswers:
    """- `first`: what is shown where the address names no application.
    - `opened`: observes an application of a stream from now on; None for one that does not exist.
      Without it, `first` is all that is shown.
    """

    first: Watcher
    opened: Callable[[str, str], Watcher | None] | None = None
    _open: OrderedDict[tuple[str, str], Watcher] = field(default_factory=OrderedDict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _kept: tuple[object, Answer] | None = field(default=None, init=False)

    def answer(self, target: str) -> Answer:
        try:
            address = urlsplit(target)
            asked = parse_qs(address.query, max_num_fields=10)
        except ValueError:
            return text(HTTPStatus.BAD_REQUEST, "the page's address is not valid")
        if address.path == "/":
            return Answer(HTTPStatus.OK, _HTML, page())
        if address.path not in {"/page.json", "/status.json"}:
            return text(
                HTTPStatus.NOT_FOUND, "the server has no page at this address; the first page is /"
            )
        application, stream, shard = (
            asked.get(name, [""])[-1] for name in ("application", "stream", "shard")
        )
        with self._lock:  # readers share the work
            watcher = self._watcher(application, stream)
            if watcher is None:
                return Answer(HTTPStatus.NOT_FOUND, _JSON, b'{"kind": "missing"}\n')
            seen = watcher.newest()
            if address.path == "/status.json":
                # While observations fail it is the last good one, with the status 503.
                shown = (seen.data or {}).get("status", (seen.data or {}).get("applications"))
                is_good = shown is not None and seen.trouble is None
                status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
                return Answer(status, _JSON, f"{json.dumps(shown, indent=2)}\n".encode())
            # An age grows without an observation: it is reported in steps of 5 s.
            key = watcher, seen.version, seen.since_ms // 5_000, shard
            if self._kept is None or self._kept[0] != key:
                detail = watcher.observed.shard(shard_id_of(shard)) if shard else None
                trouble = seen.trouble and {"says": seen.trouble, "sinceMs": seen.since_ms}
                data = {**(seen.data or {"kind": "waiting"}), "shard": detail, "trouble": trouble}
                body = json.dumps(data, separators=(",", ":")).encode()
                self._kept = key, Answer(HTTPStatus.OK, _JSON, body, f'"{hash(key)}"')
            return self._kept[1]

    def close(self) -> None:
        for one in (self.first, *self._open.values()):
            one.close()

    def _watcher(self, application: str, stream: str) -> Watcher | None:
        if not application or self.opened is None:
            return self.first
        name = application, stream
        if (found := self._open.pop(name, None) or self.opened(application, stream)) is None:
            return None
        self._open[name] = found  # as the newest
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)[1].close()
        return found


@command("any")
def ui(
    op: Operation,
    *,
    port: int = option(
        "Port to serve the page on; 0 chooses a free port.",
        default=DEFAULT_PORT,
        min=0,
        max=65_535,
    ),
    host: str = option(
        "Address to listen on. Unless it is a loopback address, other machines can open the page.",
        default=LOOPBACK,
    ),
    window: float = WINDOW,
    ask: int = ASK,
    dead_letters: Path | None = option(
        "File or directory with dead letters (JSON, parquet, orc). The page shows the dead "
        "letters' reasons.",
        metavar="PATH",
    ),
    once: Path | None = option(
        "Write the page to this file and exit, without serving it.", metavar="FILE"
    ),
) -> None:
    """Serve a live page of an application: its shards over time, their lags and failed records.

    Without --application, the page starts with a list of all applications in
    ZooKeeper. Click an application to open its page. The command only reads, so
    it may run while the jobs are running. The page has no login. Only this
    machine can open the page, unless you pass --host. Ctrl-C ends the command.
    """
    check_host(host)
    place, letters = op.place, None
    if dead_letters is not None:
        if not place.application:
            needs = (
                "--dead-letters needs --application: a page shows the dead letters of one "
                "application"
            )
            raise wrong_usage("--dead-letters", needs)
        letters = LetterFolder(dead_letters, place.application, StreamRef.of(place.stream).name)
        letters.check()
    every = ObservedApplications(op, window, ask, is_at_once=once is None)
    observed = partial(ObservedApplication, window_s=window, max_asked=ask)
    one = observed(place=place, letters=letters) if place.application else None
    if once is not None:
        if one is None:
            data = every.observe()
        else:
            looks = looking(place, op.stack, max_asked=ask)
            data = one.json_of(look_once(looks, op.window(window)))
        html = page({**data, "shard": None, "trouble": None})
        write_file(once, html, "--once ")
        return

    def opened(application: str, stream: str) -> Watcher | None:
        arn = every.streams.get((application, stream))
        if arn is None:
            return None
        found = observed(place=replace(place, application=application, stream=arn))
        watcher = Watcher(found, slow_s=window, clock=op.clock)
        watcher.open(first_look=False)
        return watcher

    first = Watcher(one or every, slow_s=window, clock=op.clock)
    answers = PageAnswers(first, None if one else opened)
    try:
        first.open()
        with PageServer(answers.answer, port, host) as server:
            if not is_loopback(host):
                note(
                    f"the page has no login: anyone who can reach {host}:{server.port} sees the "
                    "names, positions and failure reasons on it. To prevent this, listen on "
                    "127.0.0.1 and open the page through ssh -L"
                )
            say(server.url)
            op.signals.wait()
    except Interrupted as exc:
        if not first.close():
            # A call to a service that does not answer would hold the end up. Nothing is written.
            os._exit(exc.exit_code)
        raise
    finally:
        answers.close()
