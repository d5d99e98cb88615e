"""Faults of the protocol between plans, results, reports and states to put back into the product:
what settling verifies, and what else holds across processes. See `tests.simulation.mutants`.
"""

from __future__ import annotations

from tests.simulation.mutants import Mutant

_DRIVER = "tests/unit/spark_job/driver"
VERIFIES = f"{_DRIVER}/test_settling_verifies.py"
ORDER = f"{_DRIVER}/test_order_over_reshards.py"
RULES = "tests/unit/spark_job/tracking/test_outcome_rules.py"
READER = "tests/unit/spark_job/executor/test_task_reader.py"
PLANNER = f"{_DRIVER}/test_planner.py"

PROTOCOL = (
    Mutant(
        "a lost ZooKeeper starts at the requested position in silence",
        "spark_job/driver/coordinator.py",
        "            if known_plan:\n                self._report_lost_progress(known_plan)\n",
        "            known_plan = ''\n",
        VERIFIES,
    ),
    Mutant(
        "an application that ZooKeeper has lost starts at now",
        "spark_job/driver/coordinator.py",
        "                OLDEST if known_plan else self.settings.starting_position,\n",
        "                self.settings.starting_position,\n",
        VERIFIES,
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
        "kinesis_spout/reading/lapse.py",
        "self._verify(page.last_arrival_ms, page.service_time_ms if page.at_tip else None)\n",
        "self.retention_ms = None\n",
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
        "        self._refresh(pin)\n        settled = self._settled(plan_id, pin)\n",
        "        settled = self._settled(plan_id, pin)\n",
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
        "page.ended or (page.at_tip and self._began_at == self._tip_at == missing)\n",
        "page.ended or (page.at_tip and not page.count)\n",
        "tests/unit/kinesis_spout/reading/test_retry_reader.py",
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
        "what is withheld of a range counts less than the range's ends",
        "state/plan.py",
        "    count = 1 if first == record.last else max(2, left)\n",
        "    count = left\n",
        "tests/unit/spark_job/tracking/test_unanswered.py",
    ),
    Mutant(
        "an attempt overwrites what another one has appended",
        "state/znodes/plans.py",
        "else [Set(path, data, version)]\n",
        "else [Set(path, data, self._tree.read([path])[0].version)]\n",
    ),
    Mutant(
        "a task appends under a closed plan",
        "state/znodes/plans.py",
        "self._tree.commit([Check(self._paths.batch(plan_id), OPEN_VERSION), *write])",
        "self._tree.commit([Check(self._paths.task(plan_id, task), 0), *write])",
        "tests/contract/test_state_store_plans.py",
    ),
    Mutant(
        "an attempt that loses an append hands over its own pages",
        "spark_job/executor/task_reader.py",
        "            self._follow()\n            return\n",
        "            self._log, self._is_complete = new, new.sealed\n            return\n",
    ),
    Mutant(
        "an attempt hands over whole pages whatever the log says",
        "spark_job/executor/shard_feed.py",
        "            part = page.head(page.up_to(entry.last))\n",
        "            part = page\n",
    ),
    Mutant(
        "a log that somebody has removed is begun again",
        "state/znodes/plans.py",
        "            [Create(path, data), Create(begun,",
        "            [Create(path, data)] or [Create(begun,",
        "tests/contract/test_state_store_task_logs.py",
    ),
    Mutant(
        "a crash between the first states hides a shard that has expired since",
        "kinesis_spout/shards/data_loss.py",
        "    if lost and has_begun():\n",
        "    if lineage.states:\n",
        f"{_DRIVER}/test_lost_records.py",
    ),
    Mutant(
        "a finished shard of the pin is taken for lost when its state was removed",
        "kinesis_spout/shards/data_loss.py",
        "    if lost and has_begun():\n        lost = []\n",
        "",
        f"{_DRIVER}/test_lost_records.py",
    ),
    Mutant(
        "a plan whose log was removed is replayed",
        "spark_job/driver/coordinator.py",
        "        if removed := self._store.plans.removed_logs(plan.plan_id):\n",
        "        removed = []\n        if removed:\n",
        f"{_DRIVER}/test_coordinator.py",
    ),
    Mutant(
        "the log of a closed plan is not taken as complete",
        "spark_job/executor/task_reader.py",
        "        self._is_complete = self._log.sealed or not stored.plan_is_open\n",
        "        self._is_complete = self._log.sealed\n",
        READER,
    ),
    Mutant(
        "an attempt that was overtaken by the plan's closing goes on",
        "spark_job/executor/task_reader.py",
        "        if not stored.plan_is_open and not current.sealed:\n",
        "        if False:\n",
        READER,
    ),
    Mutant(
        "records of a log that was removed under its reader are delivered again",
        "spark_job/executor/task_reader.py",
        "        if not current.continues(self._log.entries[: self._cursor]):\n",
        "        if False:\n",
        READER,
    ),
    Mutant(
        "a shard is polled on at its tip while its rows are handed over",
        "spark_job/executor/task_reader.py",
        "                self._step(0)  #",
        "                self._reader.step(0)  #",
        READER,
    ),
    Mutant(
        "a later attempt takes what it reads again for lapsed",
        "spark_job/executor/shard_feed.py",
        "        self._lapse.follow(entry)\n",
        "",
        "tests/unit/spark_job/executor/test_shard_feed.py",
    ),
    Mutant(
        "an attempt reads on after an end that is in the log",
        "spark_job/executor/task_reader.py",
        "        return {entry.shard_id for entry in self._log.entries if entry.at_shard_end}\n",
        "        return set()\n",
        READER,
    ),
    Mutant(
        "what a log says of the tip is that of its first round",
        "state/task_log.py",
        "    return replace(\n        entry,\n        first=",
        "    return replace(\n        before,\n        first=",
        "tests/unit/state/test_task_log.py",
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
        "state/znodes/ownership.py",
        " or is_provably_dead(holder.info):\n                return True\n",
        ":\n                return True\n",
        "tests/contract/test_state_store_task_changes.py -k memory",
    ),
    Mutant(
        "a batch whose report holds is run again after its plan was closed",
        "spark_job/tracking/foreach_batch.py",
        " for one in store.plans.known() if store.reports.read(one) is not None]\n",
        " for one in store.plans.known() if not one]\n",
        "tests/integration/outcomes/test_tracked_batches.py -k reported_before",
    ),
    Mutant(
        "the report of another plan holds for a replayed batch",
        "spark_job/tracking/foreach_batch.py",
        "        except BatchContentError:\n            return False\n        return True\n",
        "        except BatchContentError:\n            return True\n        return True\n",
        "tests/integration/outcomes/test_tracked_batches.py -k another_batch",
    ),
    Mutant(
        "a backlog counts as read up to the start of its application",
        "state/settle.py",
        "        verified_ms = verified_by_first_read(verified_ms, state.read_position, "
        "end.last_arrival_ms)\n",
        "        pass\n",
        f"{_DRIVER}/test_retention.py",
    ),
)
