"""The progress of a running query: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from rich.live import Live
from rich.text import Text

from kinesis_spout.config import duration
from spark_job.metrics.source_report import reports_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The figures of a query so far.

    - `rows_per_s`: of the last batch.
    - `lag_ms`, `unresolved`, `oldest_unresolved_ms`, `dead_lettered`, `outage`: from the source's
      reports, over all streams. `lag_ms` is None until there is one.
    """

    batches: int = 0
    rows: int = 0
    rows_per_s: float = 0.0
    lag_ms: int | None = None
    unresolved: int = 0
    oldest_unresolved_ms: int = 0
    dead_lettered: int = 0
    outage: bool = False
    last_batch: int = -1

    def after(self, report: Mapping[str, Any]) -> Progress:
        """The figures after one more of Spark's progress reports.

        A report of a batch already counted adds no rows: an idle query repeats its reports.
        """
        streams = [progress.report for progress in reports_in(report)]
        seen = replace(
            self,
            unresolved=sum(stream.unresolved for stream in streams),
            oldest_unresolved_ms=max((each.oldest_unresolved_ms for each in streams), default=0),
            outage=any(stream.outage for stream in streams),
        )
        if streams:
            seen = replace(
                seen,
                lag_ms=max(stream.lag_ms for stream in streams),
                dead_lettered=sum(stream.dead_lettered for stream in streams),
            )
        if int(report["batchId"]) <= self.last_batch or not report.get("numInputRows"):
            return seen
        return replace(
            seen,
            batches=self.batches + 1,
            rows=self.rows + int(report["numInputRows"]),
            rows_per_s=float(report.get("processedRowsPerSecond") or 0.0),
            last_batch=int(report["batchId"]),
        )

    @property
    def total(self) -> str:
        """The totals, without the momentary figures: a run that has ended has no rate or lag."""
        return f"{self.batches:,} {'batch' if self.batches == 1 else 'batches'}  {self.rows:,} rows"

    def __str__(self) -> str:
        parts = [self.total, f"{self.rows_per_s:,.0f} rows/s"]
        if self.lag_ms is not None:
            parts.append(f"lag {duration(self.lag_ms)}")
        if self.unresolved:
            oldest = (
                f" (oldest {duration(self.oldest_unresolved_ms)})"
                if self.oldest_unresolved_ms
                else ""
            )
            parts.append(f"{self.unresolved:,} unresolved{oldest}")
        if self.dead_lettered:
            parts.append(f"{self.dead_lettered:,} dead-lettered")
        if self.outage:
            parts.append("most records fail, no new ones are read")
        return "  ".join(parts)


class ProgressLine:
    """Shows progress on a console during a with block. Call `show` from the main thread only."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: Progress | None = None
        self._live = (
            Live(console=console, auto_refresh=False, transient=False)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        """Show the progress, unless it equals the last one shown."""
        if progress == self._shown:
            return
        self._shown = progress
        if self._live:
            self._live.update(Text(str(progress)), refresh=True)
        else:
            self._console.print(str(progress), highlight=False, soft_wrap=True)
