"""Faults to put back into the product that a recovery drill has to catch: for each drill, the
protection that it is about. See `tests.simulation.mutants`.

Where several protections stand behind each other, taking out one breaks no promise: then a mutant
takes out all of them. The stacks are:

- leases: a process waits for the lease, ZooKeeper checks the owner's epoch with each write, and
  states are written by compare-and-set.
- a task that runs again: it hands over what the log of its plan says, and the driver compares the
  rows of a batch with what was published.
- a plan that runs again: its tasks read from where the plan says, and settling compares that with
  the state.
- a late worker: nothing is published under a closed plan, and a log is written by compare-and-set.

At the steps after the report, what is settled twice is the same. There, mutants break what the
successor goes on from: the report, and the states.

"Records were lost" alone shows little: a machine that is too busy leaves records unread at the end,
too. "States passed records without an outcome" shows that they are lost.
"""

from __future__ import annotations

from tests.simulation.mutants import Edit, Mutant

DRILL = "drill "
_COORDINATOR = "spark_job/driver/coordinator.py"
_TREE = "state/zookeeper/tree.py"

_JUMPS = Edit(
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
_CHILD_FIRST = Edit(
    "kinesis_spout/shards/lineage.py",
    "        return parent in self.listed if state is None else not state.end_was_read\n",
    "        return False\n",
)

# leases: a process that has lost its own can write, and whatever others have written meanwhile
_NO_EPOCHS = Edit(_TREE, "transaction.check(path, version)\n", "transaction.check(path, -1)\n")
_NO_COMPARE = Edit(
    _TREE,
    "transaction.set_data(path, data, version)\n",
    "transaction.set_data(path, data, -1)\n",
)
_NO_WAITING = Edit(
    "state/znodes/claim.py",
    "        return is_provably_dead(holder.info)\n",
    "        return True\n",
)
_NO_REGAINING = Edit(
    "state/znodes/fence.py",
    "                    self._regain(held)\n                    continue\n",
    "                    self._held, self._overtaken = None, True\n"
    "                    raise self._stale() from refused\n",
)

# connections to ZooKeeper: what they were asked is not asked again, and nobody waits for another
_ASKS_ONCE = Edit(
    _TREE, "                if time.monotonic() >= deadline:\n", "                if exc:\n"
)
_WAITS_FOR_NO_CONNECTION = Edit(
    _TREE,
    "            if not remaining_s or (revived and not self._connected.wait(remaining_s)):\n",
    "            if not self._connected.wait(0.0):\n",
)
_OUTLIVES_NO_OUTAGE = Edit(
    "kinesis_spout/spout/outages.py",
    "    return isinstance(error, StoreUnavailableError)\n",
    "    return False\n",
)

# a task that runs again: what its log has counts as handed over, and nobody looks
_HANDED_OVER = Edit(
    "spark_job/executor/task_reader.py",
    "        self._cursor = 0  #",
    "        self._cursor = len(self._log.entries)  #",
)
_UNCHECKED_CONTENT = Edit(
    "spark_job/tracking/content_check.py",
    "        if found == expected:\n",
    "        if found or expected:\n",
)
# and where it goes on with the log: behind its last entries
_GOES_ON_BEHIND = (
    Edit(
        "spark_job/executor/task_reader.py",
        "                first.setdefault(entry.shard_id, entry)\n",
        "                first[entry.shard_id] = entry\n",
    ),
    Edit(
        "spark_job/executor/shard_feed.py",
        "Position.at(first.first)\n        self._polling",
        "Position.after(first.last)\n        self._polling",
    ),
)

# a plan that runs again: its tasks begin at the newest data, and nobody looks
_REPEATED_FROM_NOW = Edit(
    _COORDINATOR,
    "        tasks = dict(enumerate(plan.tasks))\n",
    """        tasks = dict(enumerate(plan.tasks))
        if plan_id != self._plan_of_this_run:
            from msgspec.structs import replace
            from state.position import Position
            now = Position.at_timestamp(self.clock.now_ms())
            tasks = {
                number: replace(
                    task,
                    shards=tuple(
                        replace(one, position=now, iterator=None) for one in task.shards
                    ),
                )
                for number, task in tasks.items()
            }
""",
)
_UNCHECKED_POSITION = Edit(
    "state/settle.py",
    "    if reads_new and position is not None and position != state.read_position:\n",
    "    if False:\n",
)

# a plan that another process has closed: its report is not read, and all of it is acked
_CLOSED_IS_ACKED = Edit(
    "spark_job/driver/settle_plan.py",
    "    plans.close(plan_id)\n",
    "    was_open = plans.pointer().status.value == 'open'\n    plans.close(plan_id)\n",
)
_NO_REPORT = Edit(
    "spark_job/driver/settle_plan.py",
    "    policy, report = reports.read_policy(), reports.read(plan_id)\n",
    "    policy, report = (\n"
    "        (reports.read_policy(), reports.read(plan_id)) if was_open else (None, None)\n"
    "    )\n",
)

_STATES_ARE_FORGOTTEN = Edit(
    _COORDINATOR,
    "            self._catalog.states = dict(self._store.shard_states.load())\n",
    """            from msgspec.structs import replace
            from state.position import Position
            now = Position.at_timestamp(self.clock.now_ms())
            self._catalog.states = {
                shard: replace(one, state=replace(one.state, read_position=now))
                for shard, one in self._store.shard_states.load().items()
            }
""",
)
_NUMBERS_BEGIN_AGAIN = Edit(
    _COORDINATOR,
    '            pointer.id if pointer else "",\n'
    "            *self._store.plans.known(),\n"
    "            *self._settled_plans(),\n",
    "",
)

# a late worker: it writes its log whatever that is now, and whether its plan is open or not
_LATE_LOGS = Edit(
    "state/znodes/plans.py",
    "            if version is None\n            else [Set(path, data, version)]\n",
    "            if (stored := self._tree.read([path])[0]) is None\n"
    "            else [Set(path, data, stored.version)]\n",
)
_LATE_PLANS = Edit(
    "state/znodes/plans.py",
    "            return self._tree.commit("
    "[Check(self._paths.batch(plan_id), OPEN_VERSION), *write])[1]\n",
    "            return self._tree.commit(write)[0]\n",
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
        "at some step, what the log of a task has counts as handed over",
        *_HANDED_OVER,
        "drill kill-driver-at-every-step",
        also=(_UNCHECKED_CONTENT,),
    ),
    Mutant(
        "a plan that was made and not logged is made again",
        *_NUMBERS_BEGIN_AGAIN,
        "drill kill-driver-at-plan-created",
    ),
    Mutant(
        "a plan that was logged begins at the newest data",
        *_REPEATED_FROM_NOW,
        "drill kill-driver-at-plan-logged",
        also=(_UNCHECKED_POSITION,),
    ),
    Mutant(
        "what a part of a task's log has counts as handed over",
        *_HANDED_OVER,
        "drill kill-driver-at-log-appended",
        also=(_UNCHECKED_CONTENT, *_GOES_ON_BEHIND),
    ),
    Mutant(
        "what a sealed log has counts as handed over",
        *_HANDED_OVER,
        "drill kill-driver-at-log-sealed",
        also=(_UNCHECKED_CONTENT,),
    ),
    Mutant(
        "a plan whose report was opened begins at the newest data",
        *_REPEATED_FROM_NOW,
        "drill kill-driver-at-report-opened",
        also=(_UNCHECKED_POSITION,),
    ),
    Mutant(
        "a batch that was written and not reported is not handed over again",
        *_HANDED_OVER,
        "drill kill-driver-at-sink-written",
        also=(_UNCHECKED_CONTENT,),
    ),
    Mutant(
        "a batch whose letters were written is not handed over again",
        *_HANDED_OVER,
        "drill kill-driver-at-dead-letters-written",
        also=(_UNCHECKED_CONTENT,),
    ),
    Mutant(
        "a batch that was reported and not committed is not handed over again",
        *_HANDED_OVER,
        "drill kill-driver-at-report-done",
        also=(_UNCHECKED_CONTENT,),
    ),
    Mutant(
        "a plan that a killed driver has closed is acked without its report",
        *_CLOSED_IS_ACKED,
        "drill kill-driver-at-plan-closed",
        also=(_NO_REPORT,),
    ),
    Mutant(
        "the rest of a plan that was settled in part is acked without its report",
        *_CLOSED_IS_ACKED,
        "drill kill-driver-at-shard-states-half-written",
        also=(_NO_REPORT,),
    ),
    Mutant(
        "what a killed driver has settled is not what its successor goes on from",
        *_STATES_ARE_FORGOTTEN,
        "drill kill-driver-at-plan-settled",
    ),
    Mutant(
        "what a killed worker has published counts as handed over",
        *_HANDED_OVER,
        "drill kill-python-worker",
        also=(_UNCHECKED_CONTENT,),
    ),
    Mutant(
        "what a worker of a killed executor has published counts as handed over",
        *_HANDED_OVER,
        "drill kill-executor",
        also=(_UNCHECKED_CONTENT,),
    ),
    Mutant(
        "a worker that was held up asks ZooKeeper once",
        *_ASKS_ONCE,
        "drill slow-worker",
        also=(_WAITS_FOR_NO_CONNECTION,),
    ),
    Mutant(
        "a late worker publishes under a closed plan",
        *_LATE_LOGS,
        "drill zombie-worker",
        also=(_LATE_PLANS,),
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
    Mutant(
        "a spout outlives no lost connection to ZooKeeper",
        *_ASKS_ONCE,
        "drill --spout zookeeper-restart",
        also=(_WAITS_FOR_NO_CONNECTION, _OUTLIVES_NO_OUTAGE),
    ),
    Mutant(
        "a client knows one server of the ensemble",
        _TREE,
        "            hosts=servers.hosts(),\n",
        "            hosts=servers.hosts().split(',')[-1],\n",
        "drill --spout zookeeper-leader-loss",
    ),
    Mutant(
        "a lease that lapsed is given up",
        *_NO_REGAINING,
        "drill --spout session-loss",
    ),
    Mutant(
        "a lease that lapsed while its owner was cut off is given up",
        *_NO_REGAINING,
        "drill --spout zookeeper-cut-off",
    ),
    Mutant(
        "a lease that lapsed without an error is given up",
        *_NO_REGAINING,
        "drill --spout zookeeper-stalled",
    ),
    Mutant(
        "a second process does not wait for the lease, and the first one goes on writing",
        *_NO_EPOCHS,
        "drill --spout two-drivers",
        also=(_NO_COMPARE, _NO_WAITING),
    ),
    Mutant(
        "a process that was replaced goes on writing",
        *_NO_EPOCHS,
        "drill --spout replaced-while-frozen",
        also=(_NO_COMPARE,),
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
