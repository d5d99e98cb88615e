"""Faults to put back into the product that a recovery drill has to catch: for each drill, the
protection that it is about. See `tests.simulation.mutants`.

Where several protections stand behind each other, taking out one breaks no promise. These drills
have no mutant of their own here, for that reason:

- kill-python-worker, kill-executor, slow-worker and zombie-worker: a task that runs again reads
  what the log of its plan says, nothing is published under a closed plan, and settling leaves out
  each task that the batch's report has not seen. The last one covers both others.
- two-drivers: a second process that does not wait takes over at once, and the first can write
  nothing from then on. session-loss: nobody takes over meanwhile, so the process gets back what it
  had.
- replaced-while-frozen: a stale owner's write that passes the fence is refused all the same, by the
  versions of the states that it names.
- the drills at a step after the report: what is settled twice is refused by the plan's number in
  the state, and by the position from which the plan read.
"""

from __future__ import annotations

from tests.simulation.mutants import Mutant

DRILL = "drill "

_JUMPS = (
    "kinesis_spout/reading/shard_getter.py",
    "                fetched = self._get_records(self._iterator, limit)\n",
    """                try:
                    fetched = self._get_records(self._iterator, limit)
                except Exception:
                    now_ms = __import__("time").time_ns() // 1_000_000
                    self._position, self._iterator = Position.at_timestamp(now_ms), None
                    raise
""",
)
_CHILD_FIRST = (
    "kinesis_spout/shards/lineage.py",
    "        return parent in self.listed if state is None else not state.end_was_read\n",
    "        return False\n",
)
_UNREPORTED = (
    "spark_job/driver/settle_plan.py",
    "    seen = [] if unreported else _seen(results, report, plan_id)\n",
    "    seen = _seen(results, report, plan_id)\n",
)

DRILLED = (
    Mutant(
        "records that a killed process had in its hands count as resolved",
        "kinesis_spout/spout/record_run.py",
        "            found = states.find(PENDING if state == ACKED else ACKED, first, emitted)\n",
        "            found = -1\n",
        "drill --spout kill-driver",
    ),
    Mutant(
        "records of a driver that was killed before its report are acked",
        *_UNREPORTED,
        "drill kill-driver-at-sink-written",
    ),
    Mutant(
        "records of a driver that was killed while a task appended are acked",
        *_UNREPORTED,
        "drill kill-driver-at-log-appended",
    ),
    Mutant(
        "a child is read before its parent, with splits and merges",
        *_CHILD_FIRST,
        "drill --spout split-merge-burst",
    ),
    Mutant(
        "a child is read before its parent, with UpdateShardCount",
        *_CHILD_FIRST,
        "drill --spout update-shard-count",
    ),
    Mutant(
        "a child is read before its parent, after generations without a reader",
        *_CHILD_FIRST,
        "drill --spout reshard-while-down",
    ),
    Mutant("a throttled read goes on with the newest data", *_JUMPS, "drill --spout throttling"),
    Mutant("an outage of reading skips records", *_JUMPS, "drill --spout brown-out"),
    Mutant(
        "an expired iterator is replaced by one at the newest data",
        *_JUMPS,
        "drill --spout expired-iterators",
    ),
    Mutant(
        "an answer that is cut off skips records",
        *_JUMPS,
        "drill --spout slow-and-truncated-answers",
    ),
    Mutant(
        "iterators of another hour are replaced by ones at the newest data",
        *_JUMPS,
        "drill --spout service-clock",
    ),
    Mutant(
        "a retry of a clock that was ahead waits for hours",
        "state/shard_state.py",
        "    if not any((one.last_failure_ms or 0) > now_ms for one in records):\n",
        "    if now_ms:\n",
        "drill --spout job-clock",
    ),
    Mutant(
        "a record that kills its spout is never delivered carefully",
        "kinesis_spout/spout/openings.py",
        "UNCLOSED = 2  #",
        "UNCLOSED = 1 << 40  #",
        "drill --spout poison",
    ),
    Mutant(
        "a delivery that ended its driver is not counted",
        "spark_job/tracking/unanswered.py",
        "    return planned is not None or openings >= UNLIMITED_OPENINGS\n",
        "    return planned is not None\n",
        "drill poison",
    ),
)
