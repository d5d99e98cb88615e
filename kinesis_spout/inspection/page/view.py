"""What the pages show: the newest look, and what was remembered of earlier ones. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from kinesis_spout.inspection.status import ApplicationStatus, status_of
from kinesis_spout.inspection.wording import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kinesis_spout.inspection.health import Look
    from kinesis_spout.inspection.page.letter_reasons import Letters
    from kinesis_spout.inspection.page.throughput import Sample

SPANS_MS = {"15m": 900_000, "2h": 7_200_000, "24h": 86_400_000, "all": None}
ROWS = 50  # of a page of the table of shards


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why the looks stopped: a sentence, and for how long there was no new one."""

    says: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a reader asked for: a text that the shards shown must have, the number of the table's
    page from 1 on, and how much time the picture shows (a key of `SPANS_MS`; empty: what matters).
    """

    text: str = ""
    page: int = 1
    span: str = ""


@dataclass(frozen=True, kw_only=True)
class View:
    """- `commands`: the commands of `kinesis-spout` that advice may name; None: all.
    - `whole_command`: writes a command, given by its arguments, with the options that say where the
      application is; None: they are not known.
    - `letters`: None where no place of dead letters was given.
    - `is_live`: a server has the page, so links lead somewhere.
    """

    look: Look
    samples: Sequence[Sample] = ()
    trouble: Trouble | None = None
    letters: Letters | None = None
    commands: Collection[str] | None = None
    whole_command: Callable[[Sequence[str]], str] | None = None
    is_live: bool = True
    wish: Wish = field(default_factory=Wish)

    @cached_property
    def status(self) -> ApplicationStatus:
        return status_of(self.look)

    @property
    def now_ms(self) -> int:
        return self.look.now.now_ms

    def ago(self, time_ms: int | None) -> str:
        """`3 min ago`, and `in 3 min` of a time to come; a dash where it is not known."""
        if time_ms is None:
            return "-"
        passed_ms = self.now_ms - time_ms
        return f"{duration(passed_ms)} ago" if passed_ms >= 0 else f"in {duration(-passed_ms)}"

    def looked(self) -> str:
        now = moment(self.now_ms, self.now_ms)
        return f"Looked at {now} UTC, over a window of {duration(self.look.window_ms)}."
