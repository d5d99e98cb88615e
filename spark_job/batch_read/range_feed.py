"""The records of one shard's range, cut out of its pages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_spout.errors import DataLossError
from kinesis_spout.reading.expiry import ExpiryDetector
from kinesis_spout.reading.user_records import refuse_aggregates
from state.position import Position, PositionKind

if TYPE_CHECKING:
    from kinesis_spout.reading.page import Page
    from spark_job.batch_read.batch_settings import BatchSettings
    from spark_job.batch_read.shard_ranges import ShardRange

log = logging.getLogger("kinesis_spout")


def report_expired(what: str, settings: BatchSettings) -> None:
    """Raise `DataLossError`, or warn where `failOnDataLoss` is false."""
    sentence = f"stream {settings.stream.name}: {what}"
    if settings.fail_on_data_loss:
        raise DataLossError(
            f"{sentence}; begin later or at TRIM_HORIZON, or set option failOnDataLoss to false to "
            "read what is left"
        )
    log.warning("%s; reading what is left, as failOnDataLoss is false", sentence)


class RangeFeed:
    """Takes the pages of a shard in order, from `first_position` on, and gives the part of each
    that is in the range. Does no I/O.
    """

    def __init__(
        self, one: ShardRange, settings: BatchSettings, *, retention_ms: int | None
    ) -> None:
        self._range = one
        self._settings = settings
        self._lapse = ExpiryDetector(one.covered_ms, retention_ms, one.start)
        self._awaits_start = one.start.sequence is not None
        self.is_done = False

    @property
    def first_position(self) -> Position:
        """Where to fetch from. For AFTER it is the record itself: that it is still there proves
        that the ones after it are.
        """
        sequence = self._range.start.sequence
        return self._range.start if sequence is None else Position.at(sequence)

    def accept(self, page: Page) -> Page | None:
        """The records of the next page that are in the range; None if there are none. Raises
        `AggregatedRecordError`, and `DataLossError` where records before them have expired.
        """
        self._lapse.note(page)
        if self._lapse.lapsed_ms is not None:
            self._lapse = ExpiryDetector(None, None, self._range.start)
            self._report("records after the start have expired before they were read")
        if page.gone:
            self.is_done = True
            if self._range.covered_ms is not None or self._awaits_start:
                self._report("the service does not know the shard any more")
            return None
        part = self._until_end(self._from_start(page))
        if page.ended or page.at_tip:
            self.is_done = True
        if self.is_done and self._awaits_start:
            self._report(f"record {self._range.start.sequence} is not there any more")
        if not part.count:
            return None
        if self._settings.aggregated_records == "fail":
            refuse_aggregates(part.records, part.shard_id)
        return part

    # private
    def _until_end(self, page: Page) -> Page:
        """The page up to the range's end; the page itself where the range goes on."""
        end = self._range.end
        if not page.count:
            return page
        # Not by the last record alone: the times of a shard may be out of order.
        count = page.arrived_by(self._range.until_ms - 1)
        if end is not None and end.sequence is not None and page.last and page.last >= end.sequence:
            self.is_done = True
            up_to = page.up_to(end.sequence)
            is_left_out = end.kind is PositionKind.AT and page.head(up_to).last == end.sequence
            count = min(count, up_to - is_left_out)
        if count < page.count:
            self.is_done = True
        return page.head(count)

    def _from_start(self, page: Page) -> Page:
        """The page without the record that the range starts after. Reports where that is gone."""
        start = self._range.start
        if not self._awaits_start or start.sequence is None or page.first is None:
            return page
        self._awaits_start = False
        if page.first.sequence != start.sequence.sequence:
            self._report(
                f"record {start.sequence} is not there any more, the first one is {page.first}"
            )
            return page
        if start.kind is PositionKind.AT or start.sequence.sub:
            return page
        return page.after(1) if page.count > 1 else page.head(0)

    def _report(self, what: str) -> None:
        report_expired(f"shard {self._range.shard_id}: {what}", self._settings)
