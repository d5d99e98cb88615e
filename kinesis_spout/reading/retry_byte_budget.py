"""The bytes that the retries of a task's shards may hold together."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from kinesis_spout.service.record_columns import fitting_records, payload_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

BOUNDLESS = sys.maxsize


class RetryByteBudget:
    """Shared by the readers of a task; safe for threads, never blocks."""

    def __init__(self, max_bytes: int = BOUNDLESS) -> None:
        self._lock = threading.Lock()
        self._max_bytes = max_bytes
        self._held_bytes = 0

    def take(self, records: pa.RecordBatch, *, at_least: int) -> int:
        """Hold as many of the first records as fit, `at_least` so many; returns how many."""
        with self._lock:
            fitting = fitting_records(
                records, self._max_bytes - self._held_bytes, at_least=at_least
            )
            self._held_bytes += payload_bytes([records.slice(0, fitting)])
            return fitting

    def take_all(self, pages: Sequence[pa.RecordBatch], *, anyway: bool) -> bool:
        """Hold the pages if all of them fit, or `anyway`."""
        with self._lock:
            wanted = payload_bytes(pages)
            taken = anyway or self._held_bytes + wanted <= self._max_bytes
            self._held_bytes += wanted if taken else 0
            return taken

    def would_take(self, pages: Sequence[pa.RecordBatch]) -> bool:
        with self._lock:
            return self._held_bytes + payload_bytes(pages) <= self._max_bytes
