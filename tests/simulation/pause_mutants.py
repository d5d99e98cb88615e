"""Faults of pauses, of records that are given up, and of going back, to put back into the product.
See `tests.simulation.mutants`.
"""

from __future__ import annotations

from tests.simulation.mutants import Mutant
from tests.simulation.spout_mutants import SPOUT_SIMULATION

_DRIVER = "tests/unit/spark_job/driver/test_pause.py"
_SPOUT = "tests/unit/kinesis_spout/spout/test_pause.py"
_SKIP = "tests/unit/kinesis_spout/checkpoints/test_skip.py"

PAUSES = (
    Mutant(
        "a paused job plans on",
        "spark_job/driver/coordinator.py",
        "        if not self._pause.look():\n",
        "        if self._pause.look() or True:\n",
    ),
    Mutant(
        "a paused job does not settle its last batch",
        "spark_job/driver/coordinator.py",
        "        self._settle_if_current(start, self._open(start))\n",
        "        pin = self._open(start)\n        if self._pause.look():\n            return\n"
        "        self._settle_if_current(start, pin)\n",
        _DRIVER,
    ),
    Mutant(
        "a paused job loses its ownership with its session",
        "spark_job/driver/coordinator.py",
        "            self._pause.hold(self._acquire)\n",
        "",
        _DRIVER,
    ),
    Mutant(
        "a pause is seen at the next start only",
        "kinesis_spout/shards/pause.py",
        "        self._may_have_changed = True\n        self._on_change()\n",
        "        self._on_change()\n",
    ),
    Mutant(
        "a paused spout reads ahead",
        "kinesis_spout/spout/prefetcher.py",
        "            if self._scheduler.is_paused:\n                self._reader.replace([])",
        "            if False:\n                self._reader.replace([])",
        SPOUT_SIMULATION,
    ),
    Mutant(
        "a paused spout reads for its retries",
        "kinesis_spout/spout/retry_fetcher.py",
        "            if self._scheduler.is_paused:\n",
        "            if False:\n",
        SPOUT_SIMULATION,
    ),
    Mutant(
        "a paused spout emits what it has",
        "kinesis_spout/spout/scheduler.py",
        "        self.is_paused = True\n        self._unchecked_pending = 0\n",
        "        self.is_paused = True\n",
        SPOUT_SIMULATION,
    ),
    Mutant(
        "what a pause has cost a spout is not reported",
        "kinesis_spout/spout/coordinator.py",
        "[one for one in assigned if not self.catalog.states[one].state.end_was_read]",
        "[]",
        _SPOUT,
    ),
    Mutant(
        "a shard that another task has given up is stored as it was read",
        "kinesis_spout/spout/coordinator.py",
        "        is_missed = pages is not None and (pages.gone or not assigned.shard.ended)\n",
        "        is_missed = pages is not None and pages.gone\n",
        SPOUT_SIMULATION,
    ),
    Mutant(
        "a number within a range gives up the number alone",
        "kinesis_spout/checkpoints/skip.py",
        "    records = tuple(record for record in unresolved if record in chosen)\n",
        "    records = tuple(one for one in unresolved if one in chosen and one.count == 1)\n",
        _SKIP,
    ),
    Mutant(
        "records are given up while a batch may still publish",
        "kinesis_spout/checkpoints/skip.py",
        "    close_open_plan(plans)\n",
        "",
        _SKIP,
    ),
    Mutant(
        "the history takes unresolved records for acked",
        "state/moves/history.py",
        "    if state.unresolved:\n        return Position.at(state.unresolved[0].first)\n",
        "",
    ),
    Mutant(
        "an application that goes back goes to the newest entry",
        "state/moves/history.py",
        "enumerate(entries) if entry.time_ms <= time_ms), default=-1)",
        "enumerate(entries) if entries[0].time_ms <= time_ms), default=-1)",
    ),
    Mutant(
        "who goes back to just before a move goes to where it moved from",
        "state/moves/history.py",
        "if entry.cause is not None and entry.time_ms <= time_ms + MAX_LATE_MS:",
        "if entry.cause is not None and entry.time_ms <= time_ms:",
        "tests/unit/state/moves/test_history.py",
    ),
    Mutant(
        "an entry of the history has a time before its states",
        "kinesis_spout/shards/history_recorder.py",
        "MARGIN_MS = 1_000\n",
        "MARGIN_MS = -5_000\n",
    ),
)
