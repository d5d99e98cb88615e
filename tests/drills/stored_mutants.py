"""Faults to put back into the product that the drills of damaged state have to catch: removed
znodes, old copies, outages of what the job writes to. See `tests.simulation.mutants`.

Where a disk is full, two protections stand behind each other: an error of the function fails its
batch, and nothing is settled before Spark has committed it. That mutant takes out both.

Where plan numbers begin again, or a plan is settled that is not the newest, the store refuses it.
Those mutants lose nothing: their job ends at each start, and never does its work.
"""

from __future__ import annotations

from tests.simulation.mutants import Edit, Mutant

_COORDINATOR = "spark_job/driver/coordinator.py"
_SETTLES_ANY = Edit(
    _COORDINATOR,
    "pointer is None or pointer.id != plan_id or pointer.status is PlanStatus.SETTLED:\n",
    "pointer is None or pointer.status is PlanStatus.SETTLED:\n",
)
_SWALLOWED = Edit(
    "spark_job/tracking/batch_run.py",
    "        if error is exc:\n            raise\n        raise error from None\n",
    "",
)
_SETTLED_BEFORE_COMMIT = Edit(
    _COORDINATOR,
    "        self._open(plan_id)\n        pointer = self._store.plans.pointer()\n",
    "        pin = self._open(plan_id)\n"
    "        if plan_id != self._plan_of_this_run:\n"
    "            self._settle_if_current(plan_id, pin)\n"
    "        pointer = self._store.plans.pointer()\n",
)

STORED = (
    Mutant(
        "a plan is settled into a shard that has begun again",
        "state/settle.py",
        "    if reads_new and position is not None and position != state.read_position:\n",
        "    if False:\n",
        "drill shard-state-removed",
    ),
    Mutant(
        "a task whose log was removed is to publish under a closed plan",
        _COORDINATOR,
        "        return {task: tasks[task] for task in tasks if task in ends}\n",
        "        return tasks\n",
        "drill task-log-removed",
    ),
    Mutant(
        "a batch whose report was removed is acked",
        "spark_job/driver/settle_plan.py",
        "    seen = [] if unreported else _seen(results, report, plan_id)\n",
        "    seen = _seen(results, report, plan_id)\n",
        "drill report-removed",
    ),
    Mutant(
        "a plan that was removed ends the query",
        _COORDINATOR,
        "        plan = self._plan_in_memory(plan_id) or self._store.plans.read(plan_id)\n"
        "        if plan is None:\n",
        "        plan = self._plan_in_memory(plan_id) or self._store.plans.read(plan_id)\n"
        "        if plan is None:\n"
        "            raise ConflictError(f'there is no plan {plan_id}')\n"
        "        if plan is None:\n",
        "drill plan-removed",
    ),
    Mutant(
        "an application that was removed begins again in silence",
        _COORDINATOR,
        "            if known_plan:\n                self._report_lost_progress(known_plan)\n",
        "            known_plan = ''\n",
        "drill application-removed",
    ),
    Mutant(
        "the numbers of plans begin again with a new checkpoint location",
        _COORDINATOR,
        '            pointer.id if pointer else "",\n'
        "            *self._store.plans.known(),\n"
        "            *self._settled_plans(),\n",
        "",
        "drill checkpoint-lost",
    ),
    Mutant(
        "a plan of an older checkpoint location is settled",
        *_SETTLES_ANY,
        "drill checkpoint-restored",
    ),
    Mutant(
        "a plan that an older ZooKeeper lacks is settled", *_SETTLES_ANY, "drill zookeeper-restored"
    ),
    Mutant(
        "an error of the function is swallowed",
        *_SWALLOWED,
        "drill sink-outage",
    ),
    Mutant(
        "what could not be written is settled, though Spark has not committed it",
        *_SWALLOWED,
        "drill disk-full",
        also=(_SETTLED_BEFORE_COMMIT,),
    ),
    Mutant(
        "failures in an outage count as attempts",
        "spark_job/tracking/outcome_rules.py",
        "        if self.outage:\n            return False\n        if record.attempt > 1 or",
        "        if True or",
        "drill record-outage",
    ),
    Mutant(
        "dead letters that could not be written are forgotten",
        "spark_job/dead_letter/dead_letter.py",
        "            cause = self.sink.without_secrets(",
        "            return\n            cause = self.sink.without_secrets(",
        "drill dead-letter-outage",
    ),
)
