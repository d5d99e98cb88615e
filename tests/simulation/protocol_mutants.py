"""Faults of the protocol between plans, results, reports and states to put back into the product:
what settling verifies, and what else holds across processes. See `tests.simulation.mutants`.
"""

from __future__ import annotations

from tests.simulation.mutants import Mutant

_DRIVER = "tests/unit/spark_job/driver"
VERIFIES = f"{_DRIVER}/test_settling_verifies.py"
ORDER = f"{_DRIVER}/test_order_over_reshards.py"
RULES = "tests/unit/spark_job/tracking/test_outcome_rules.py"
PLANNER = f"{_DRIVER}/test_planner.py"

PROTOCOL = (
    Mutant(
        "a lost ZooKeeper starts at the requested position in silence",
        "spark_job/driver/coordinator.py",
        "            if known_plan:\n                self._report_lost_progress(known_plan)\n",
        "            known_plan = ''\n",
    ),
    Mutant(
        "an application that ZooKeeper has lost starts at now",
        "spark_job/driver/coordinator.py",
        "                OLDEST if known_plan else self._settings.starting_position,\n",
        "                self._settings.starting_position,\n",
    ),
    Mutant(
        "a plan is settled into a state that stands elsewhere",
        "state/settle.py",
        "    if reads_new and position is not None and position != state.read_position:\n",
        "    if False:\n",
        VERIFIES,
    ),
    Mutant(
        "a plan is settled into a state as if it had been read from there",
        "state/settle.py",
        "    _check_position(state, planned, end, plan_id)\n",
        "    state = replace(state, read_position=TRIM_HORIZON, checkpoint=None)\n",
    ),
    Mutant(
        "a retry that another process has tried since loses that attempt",
        "state/settle.py",
        "        if stored.last != planned.end or stored.attempts != planned.attempts:\n",
        "        if stored.last != planned.end:\n",
        "tests/unit/state/test_settle_tracked.py",
    ),
    Mutant(
        "ends that the report has not seen are acked",
        "spark_job/driver/settle_plan.py",
        "    late = [] if named is None else sorted(results.keys() - set(named))\n",
        "    late: list[int] = []\n",
    ),
    Mutant(
        "a batch without a report is acked",
        "spark_job/driver/settle_plan.py",
        "    seen = [] if unreported else _seen(results, report, plan_id)\n",
        "    seen = _seen(results, report, plan_id)\n",
    ),
    Mutant(
        "records that expire between planning and reading are skipped in silence",
        "spark_job/driver/settle_plan.py",
        "    if lapsed := [end.shard_id for end in seen if end.lapsed_ms is not None]:\n",
        "    if lapsed := list[str]():\n",
    ),
    Mutant(
        "only the first page of a read is compared with the retention",
        "spark_job/executor/first_read.py",
        "        self.verified_ms = max(ms for ms in known if ms is not None)\n",
        "        self.retention_ms = None\n",
        VERIFIES,
    ),
    Mutant(
        "what expired after the last look at the retention counts as looked at",
        "kinesis_spout/shards/catalog.py",
        "            self._checked_ms |= dict.fromkeys(shards, now_ms)\n",
        "            self._checked_ms |= dict.fromkeys(shards, now_ms + 80_000_000)\n",
    ),
    Mutant(
        "the number of a plan may be one that the states know",
        "spark_job/driver/coordinator.py",
        "            *self._settled_plans(),\n        ]\n",
        "        ]\n",
        VERIFIES,
    ),
    Mutant(
        "the driver settles before it lists",
        "spark_job/driver/coordinator.py",
        "        self._refresh(pin)\n        self._settle_if_current(start, pin)\n",
        "        self._settle_if_current(start, pin)\n",
        VERIFIES,
    ),
    Mutant(
        "a shard that a later reshard has closed keeps an AvailableNow run",
        "spark_job/driver/available_now.py",
        "            self._closed.setdefault(shard_id, is_closed)\n",
        "            self._closed[shard_id] = is_closed\n",
        f"{_DRIVER}/test_available_now.py",
    ),
    Mutant(
        "one answer that a shard is gone makes its retries gone",
        "kinesis_spout/reading/retry_reader.py",
        "            elif page.gone:\n                self.shard_gone = True\n",
        "            elif page.gone:\n                self.shard_gone = True\n"
        "                self.gone += [one.first for one in self._retries[self.done :]]\n"
        "                self.done = len(self._retries)\n",
    ),
    Mutant(
        "one empty page at the tip makes retries gone",
        "kinesis_spout/reading/retry_reader.py",
        "        proven = bool(page.child_shards) or self._began_at == self._tip_at == missing\n",
        "        proven = bool(page.child_shards) or self._began_at == missing\n",
    ),
    Mutant(
        "a shard counts as gone after one listing",
        "kinesis_spout/shards/data_loss.py",
        "        proven = {shard for shard in asked if not self._is_there(shard)}\n",
        "        proven = set(unlisted)\n",
        "tests/unit/kinesis_spout/shards/test_catalog.py",
    ),
    Mutant(
        "new records overtake failed ones of the shard's ancestors",
        "spark_job/tracking/withholding.py",
        "            blocking += [(BEFORE_ALL, record) for record in inherited]\n",
        "",
        "tests/unit/spark_job/tracking/test_withholding.py",
    ),
    Mutant(
        "a shard is read on while records of its ancestors block it",
        "spark_job/driver/retry_queue.py",
        "        ancestors = unresolved_ancestors(states) if self.in_order else {}\n",
        "        ancestors: dict[str, tuple[str, ...]] = {}\n",
        ORDER,
    ),
    Mutant(
        "suspected failures never count",
        "spark_job/tracking/outcome_rules.py",
        ">= SUSPICION_MS",
        "< 0",
        RULES,
    ),
    Mutant(
        "an outage of a few records never ends",
        "spark_job/tracking/outcome_rules.py",
        "        and context.now_ms - _suspected_since_ms(context) < SMALL_OUTAGE_MS\n",
        "",
        RULES,
    ),
    Mutant(
        "three bad records in different eighths fail a bisected batch",
        "spark_job/tracking/bisect.py",
        "_MOST_FAILED_EIGHTHS = 4\n",
        "_MOST_FAILED_EIGHTHS = 2\n",
        "tests/unit/spark_job/tracking/test_bisect.py",
    ),
    Mutant(
        "a delivery that never answered is not counted",
        "spark_job/tracking/unanswered.py",
        "    return planned is not None or openings >= UNLIMITED_OPENINGS\n",
        "    return planned is not None\n",
        f"{_DRIVER}/test_killing_records.py",
    ),
    Mutant(
        "a task plan with hints is too large for its node",
        "spark_job/driver/planner.py",
        "        tasks.extend(_that_fit(_task(tuple(slices), limits)))\n",
        "        tasks.append(_task(tuple(slices), limits))\n",
        PLANNER,
    ),
    Mutant(
        "a process that waits for an owner does not see its death",
        "state/znodes/fence.py",
        " or is_provably_dead(holder.info):\n                return True\n",
        ":\n                return True\n",
        "tests/unit/state/znodes/test_claim.py",
    ),
)
