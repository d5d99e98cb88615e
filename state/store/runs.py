"""What an owner tells of itself, for somebody who only looks: its settings, what it waits for, and
how its last runs ended. Nothing is decided by it, so a lost write does no harm.

A run begins when a process takes the application, or a share of it. It ends when that process says
so. A process that was killed says nothing: its run has no end, and the next one begins behind it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from state.store.ownership import OwnerInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from state.store.ownership import TaskShare

MAX_RUNS = 10
MAX_SENTENCE = 500
MAX_THROTTLED = 20
MAX_LOSSES = 5
SPARK, SPOUT = "spark", "spout"
DEACTIVATED, FULL, NOT_TAKEN = "deactivated", "full", "not taken"
STOPPED, DONE, FAILED = "stopped", "done", "failed"
# `user:password@` of a URL, AWS access keys, and `name=value` of a name that means a secret.
_SECRETS = re.compile(
    r"(?<=//)[^/\s:@]+:[^/\s@]+(?=@)|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|"
    r"(?i:(?<=password=)|(?<=secret=)|(?<=token=)|(?<=accesskey=)|(?<=secretkey=))[^\s,;&'\"]+"
)


class ReportedError(NamedTuple):
    """An error as a process reports it: lines without secrets, each at most `MAX_SENTENCE` long.

    - `says`: its message. Of an error that was known as a text only, as of one that came through
      Spark, the whole text.
    - `remedy`: None where there is none, or where `says` contains it.
    - `error`: the name of its class, which says what the error is about.
    """

    says: str
    remedy: str | None = None
    error: str | None = None


class RunEnd(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How a run ended, told by the process that ends, by its own clock.

    - `kind`: `stopped`: somebody stopped it; `done`: nothing was left to do; `failed`: an error.
    - `says`, `remedy`, `error`: those of a `ReportedError`. Ends that older versions stored have
      the remedy in `says`, and no `error`. Of a run that is `done`, `says` is what it leaves to the
      next one, as a clause; None where that is nothing.
    """

    time_ms: int
    kind: str
    says: str | None = None
    remedy: str | None = None
    error: str | None = None


class Hold(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Why a spout gives its program no record, though it has some, since when: `deactivated`;
    `full`: `max_pending` records are out; or `not taken`: the program asks for none.
    """

    kind: str
    since_ms: int


class Throttle(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How many reads of a shard the service has throttled since the run began, and when the last
    one, by the owner's clock.
    """

    count: int
    last_ms: int


class RefusedLetters(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How many dead letters of a spout are refused at the moment, when the last refusal was, by the
    owner's clock, and the sentence of its error (`sentence`). Their records stay unresolved.
    """

    count: int
    last_ms: int
    says: str


class Run(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A process as the owner, and what it was told.

    - `kind`: `spark` or `spout`. `read_mode`: `polling` or `efo`.
    - `shards`: the only shards that it reads; empty for all. Kept for the newest run alone.
    - `max_records`: of a batch (Spark), or of the whole run (spout).
    - `tells_errors`: whether an error of a Spark query's sink or function would be told.
    - `message_timeout_ms`: a spout's; 0 where it has none, None where it was not told.
    - `reads_per_second`, `bytes_per_second`: a shard's, where they are less than the service's.
    - `max_attempts`, `max_age_ms`: after so many deliveries of a record, and so long after its
      first failure, a spout dead-letters it.
    """

    owner: OwnerInfo
    kind: str
    session_timeout_ms: int
    shards: tuple[str, ...] = ()
    read_mode: str = "polling"
    max_pending: int | None = None
    max_records: int | None = None
    max_unresolved_per_shard: int | None = None
    max_attempts: int | None = None
    max_age_ms: int | None = None
    tells_errors: bool = False
    message_timeout_ms: int | None = None
    reads_per_second: float | None = None
    bytes_per_second: float | None = None
    end: RunEnd | None = None


class ReadTrouble(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Since when an owner cannot read shards as it is to, by its clock, and the last error
    (`ReportedError`); without one, the service does not answer.
    """

    since_ms: int
    says: str | None = None
    remedy: str | None = None
    error: str | None = None


class NoAnswers(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Since when the program of a spout has answered no record, by its clock, and how many
    deliveries have timed out since then.
    """

    since_ms: int
    count: int


class Loss(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A loss of records after which an owner continued (`failOnDataLoss` is false): when it was
    reported, by the owner's clock, and the sentence of the log.
    """

    time_ms: int
    says: str


class RunLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The last runs, oldest first, at most `MAX_RUNS`.

    - `trigger_ms`: the interval of a Spark query's trigger, as it was told or was learned.
    - `throttled`: by shard; the `MAX_THROTTLED` that were throttled last.
    - `not_subscribed`: the owner cannot subscribe to shards that it is to read so. It polls them,
      at once or later. `failing_reads`: a spout gets no records of shards that it asks for.
    - `losses`: the newest ones, at most `MAX_LOSSES`. They stay known when further runs begin.
    - The others: what is wrong in the newest run, as `throttled` is, too; None where nothing is.
    """

    runs: tuple[Run, ...] = ()
    hold: Hold | None = None
    trigger_ms: int | None = None
    throttled: dict[str, Throttle] = {}
    refused_letters: RefusedLetters | None = None
    not_subscribed: ReadTrouble | None = None
    failing_reads: ReadTrouble | None = None
    no_answers: NoAnswers | None = None
    losses: tuple[Loss, ...] = ()
    format: int = 1

    @property
    def newest(self) -> Run | None:
        return self.runs[-1] if self.runs else None

    def begun(self, run: Run) -> RunLog:
        """With a run that begins now. The trigger is taken over: a query is seldom given another
        one, and it is corrected when it is.
        """
        before = tuple(replace(earlier, shards=()) for earlier in self.runs[1 - MAX_RUNS :])
        is_spark = run.kind == SPARK
        trigger_ms = self.trigger_ms if is_spark else None
        return RunLog(runs=(*before, run), trigger_ms=trigger_ms, losses=self.losses)

    def ended(self, end: RunEnd) -> RunLog:
        """With the end of the newest run. The first error counts: it is nearest to the cause."""
        newest = self.newest
        if newest is None:
            return self
        if newest.end is not None and (newest.end.kind == FAILED or end.kind != FAILED):
            return self
        return replace(self, runs=(*self.runs[:-1], replace(newest, end=end)), hold=None)


def throttled_again(
    known: Mapping[str, Throttle], shard_id: str, now_ms: int, *, count: int = 1
) -> dict[str, Throttle]:
    """With so many more refused reads of the shard. Only the last throttled shards are kept."""
    before = known[shard_id].count if shard_id in known else 0
    others = {one: told for one, told in known.items() if one != shard_id}
    after = others | {shard_id: Throttle(count=before + count, last_ms=now_ms)}
    return dict(list(after.items())[-MAX_THROTTLED:])


def sentence(text: str) -> str:
    """A text as one line without secrets, at most `MAX_SENTENCE` characters."""
    line = _SECRETS.sub("***", " ".join(text.split()))
    return line if len(line) <= MAX_SENTENCE else f"{line[: MAX_SENTENCE - 3]}..."


class RunStore(Protocol):
    """The last runs of the owners.

    Needs: a compare-and-set; for `begin`, with the owner's fence.
    """

    def begin(self, run: Run) -> None:
        """Add the run of this store's owner to those of its share, and remove what the owners of
        another number of shares told. A write of the owner; nothing if another process writes the
        node at the same time.
        """

    def amend(self, of: OwnerInfo, amended: Callable[[RunLog], RunLog]) -> bool:
        """Replace the log whose newest run is of this owner by `amended(log)`, which may be called
        several times. False, and nothing is written, if there is none. Needs no ownership; but a
        store that was overtaken writes nothing, and raises `StaleOwnerError`.
        """

    def read(self) -> Mapping[TaskShare | None, RunLog]:
        """The last runs by share; None for owners of the whole. Of damaged bytes, none."""
