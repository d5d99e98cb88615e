"""Faults of the standalone spout to put back into the product. See `tests.simulation.mutants`."""

from __future__ import annotations

from tests.simulation.mutants import SIMULATION, TRACKER, Mutant

SPOUT_SIMULATION = "the spout's simulation"
PROPERTY = "tests/property/test_tracked_shard.py"
TREES = "tests/property/test_tuple_trees.py"
ACKER = "tests/property/test_standalone_acker.py"
FETCHING = "tests/unit/kinesis_spout/reading/test_round_robin.py"
GETTER = "tests/unit/kinesis_spout/reading/test_shard_getter.py"
_UNIT = "tests/unit/kinesis_spout/spout"
STATES = f"{_UNIT}/test_states.py"
OUTAGES = f"{_UNIT}/test_outages.py"
HELD_BYTES = f"{_UNIT}/test_held_bytes.py"
SHARD = f"{_UNIT}/test_tracked_shard.py"
PLAN = f"{_UNIT}/test_superseded_plan.py"
CAREFUL = f"{_UNIT}/test_careful.py"
CLOSING = f"{_UNIT}/test_closing.py"
LETTERS = f"{_UNIT}/test_dead_letter_queue.py"

_DELIVERING = (
    Mutant(
        "an ack in the spout is lost",
        "kinesis_spout/spout/tracked_shard.py",
        "        states[index] = ACKED\n        run.data",
        "        run.data",
        PROPERTY,
    ),
    Mutant(
        "an ack of an attempt that was never made counts",
        "state/tracker/inflight_record_tracker.py",
        "        if node is None or not 1 <= attempt <= node.deliveries:\n"
        "            return Effect.UNKNOWN\n        self._resolve(node, Event.ACK)\n",
        "        if node is None or node.state is NodeState.ACKED:\n"
        "            return Effect.UNKNOWN\n        self._resolve(node, Event.ACK)\n",
        TRACKER,
    ),
    Mutant(
        "an emission times out a moment before its deadline",
        "kinesis_spout/spout/tracked_shard.py",
        "        expired = self.tracker.expire(now_ms)\n",
        "        expired = self.tracker.expire(now_ms + 1)\n",
        PROPERTY,
    ),
    Mutant(
        "an emission times out after its deadline only",
        "kinesis_spout/spout/scheduler.py",
        "(due_ms := shard.next_deadline_ms()) is None or due_ms > now_ms:\n",
        "(due_ms := shard.next_deadline_ms()) is None or due_ms >= now_ms:\n",
        PROPERTY,
    ),
    Mutant(
        "an emission times out twice",
        "state/tracker/inflight_record_tracker.py",
        "        node.record = record\n        self._deadlines.discard(node.first)\n",
        "        node.record = record\n",
        TRACKER,
    ),
    Mutant(
        "a retry goes out before it is due",
        "kinesis_spout/spout/tracked_shard.py",
        "        sequence = self.held.due_retry(now_ms)\n        run =",
        "        sequence = self.held.due_retry(now_ms + 60_000)\n        run =",
        PROPERTY,
    ),
    Mutant(
        "retries starve new records",
        "kinesis_spout/spout/tracked_shard.py",
        "        is_new_first = run is not None and self._retries_in_a_row >= RETRIES_IN_A_ROW\n",
        "        is_new_first = False\n",
        SHARD,
    ),
    Mutant(
        "new records starve retries",
        "kinesis_spout/spout/tracked_shard.py",
        "            self.open_run.granted = 0  #",
        "            self.open_run.granted += 0  #",
        SHARD,
    ),
    Mutant(
        "max_pending is ignored",
        "kinesis_spout/spout/scheduler.py",
        "        self._max_pending = limits.max_pending  #",
        "        self._max_pending = 1 << 40  #",
        PROPERTY,
    ),
    Mutant(
        "retries wait at max_pending",
        "kinesis_spout/spout/scheduler.py",
        "            if not assigned.in_retry_rotation:\n                assigned.in_retry",
        "            if False:\n                assigned.in_retry",
        PROPERTY,
    ),
    Mutant(
        "max_unresolved_per_shard is ignored",
        "kinesis_spout/spout/scheduler.py",
        "        self._max_unresolved = limits.max_unresolved_per_shard\n",
        "        self._max_unresolved = 1 << 40\n",
        PROPERTY,
    ),
    Mutant(
        "a shard that was full never gets its turn again",
        "kinesis_spout/spout/scheduler.py",
        "        if not assigned.in_rotation and shard.open_run is not None:\n",
        "        if False:\n",
        PROPERTY,
    ),
    Mutant(
        "an outcome for a released shard counts",
        "kinesis_spout/spout/scheduler.py",
        "        assigned.is_released = True\n",
        "",
        SHARD,
    ),
)
_STORING = (
    Mutant(
        "the checkpoint passes a pending record",
        "state/tracker/transitions.py",
        "    (Neighbour.UNRESOLVED, Neighbour.NONE): Cell(()),\n",
        "    (Neighbour.UNRESOLVED, Neighbour.NONE): Cell((), checkpoint=SELF),\n",
        PROPERTY,
    ),
    Mutant(
        "the state drops the records that were emitted last",
        "state/tracker/snapshot.py",
        "        if node is tail:\n            before = node.before\n",
        "        if node is tail:\n            break\n            before = node.before\n",
        PROPERTY,
    ),
    Mutant(
        "the state has acks that nobody told",
        "kinesis_spout/spout/record_run.py",
        "            found = states.find(PENDING if state == ACKED else ACKED, first, emitted)\n",
        "            found = -1\n",
        PROPERTY,
    ),
    Mutant(
        "a child is read before its parent's last record has an outcome",
        "kinesis_spout/spout/tracked_shard.py",
        "        if self.pages.is_at_end and not self._runs and not self.ended and all_answered:\n",
        "        if self.pages.is_at_end and not self._runs and not self.ended:\n",
        SHARD,
    ),
    Mutant(
        "a shard's end is not noticed",
        "kinesis_spout/spout/record_run.py",
        "        return self.last_page is not None and self.last_page.ended\n",
        "        return self.last_page is not None and self.last_page.count and "
        "self.last_page.ended\n",
        SHARD,
    ),
    Mutant(
        "an outcome during a commit is never stored",
        "kinesis_spout/spout/coordinator.py",
        "        self._outages.succeeded(SpoutPart.COMMIT)\n        if careful",
        "        for assigned in self._scheduler.assigned.values():\n"
        "            assigned.is_dirty = False\n        if careful",
        STATES,
    ),
    Mutant(
        "a failed commit is not repeated",
        "kinesis_spout/spout/coordinator.py",
        "                for assigned in dirty:\n                    assigned.is_dirty = True\n",
        "                pass\n",
        STATES,
    ),
    Mutant(
        "an outage of reading stops the spout",
        "kinesis_spout/spout/prefetcher.py",
        "            raise FetchPostponedError(str(exc)) from exc\n",
        "            raise\n",
        OUTAGES,
    ),
    Mutant(
        "a shard in trouble is read again at once",
        "kinesis_spout/spout/prefetcher.py",
        "max(self._source.ready_at_s(), retry_at_s)",
        "self._source.ready_at_s()",
        OUTAGES,
    ),
    Mutant(
        "what was read again before a fault is forgotten",
        "kinesis_spout/spout/retry_fetcher.py",
        "        self._restock(assigned, list(_found(records[: reader.done], rows)))\n",
        "        if error is None:\n"
        "            self._restock(assigned, list(_found(records[: reader.done], rows)))\n",
        OUTAGES,
    ),
    Mutant(
        "a conflict is not followed by a reload",
        "kinesis_spout/spout/coordinator.py",
        "        self._must_reload = True\n",
        "",
        SPOUT_SIMULATION,
    ),
    Mutant(
        "closing does not commit",
        "kinesis_spout/spout/session.py",
        "            if writes and not self._coordinator.commit_last(in_order=in_order):\n",
        "            if not writes:\n",
        STATES,
    ),
    Mutant(
        "what the last letters have resolved is not stored",
        "kinesis_spout/spout/session.py",
        "                self._coordinator.commit_last(in_order=in_order)\n            tell()\n",
        "                pass\n            tell()\n",
        CLOSING,
    ),
    Mutant(
        "a backoff goes on while the spout is closed",
        "kinesis_spout/spout/session.py",
        "        self._services.closing.set()\n",
        "",
        CLOSING,
    ),
    Mutant(
        "a listing that hangs holds the lock of the states",
        "kinesis_spout/shards/catalog.py",
        "        with self._listing_at(now_s):\n            summary = self.bind()\n",
        "        with self.lock, self._listing_at(now_s):\n            summary = self.bind()\n",
        CLOSING,
    ),
    Mutant(
        "an ack counts after the last commit",
        "kinesis_spout/spout/session.py",
        "            self._is_closed = True  #",
        "            self._is_closed = False  #",
        STATES,
    ),
    Mutant(
        "a stale session takes the epoch of its successor",
        "state/znodes/ownership.py",
        "            if self._fence.ever_held:\n"
        "                self._fence.commit([])  # raises if another process has taken over\n",
        "            self._fence._overtaken = False\n",
        "tests/contract/test_state_store_tasks.py -k memory",
    ),
    Mutant(
        "a spout leaves the plan of a Spark job open",
        "kinesis_spout/spout/coordinator.py",
        "        close_open_plan(self._store.plans)\n",
        "",
        PLAN,
    ),
    Mutant(
        "a spout gives up when another task closes the plan",
        "kinesis_spout/shards/open_plan.py",
        "        except ConflictError:\n            continue  #",
        "        except ConflictError:\n            raise  #",
        PLAN,
    ),
)
_RETRYING = (
    Mutant(
        "a dead letter is counted before it is written",
        "kinesis_spout/spout/dead_letter_queue.py",
        "        self._sent[one.key] = one\n",
        "        self._sent[one.key] = one\n"
        "        self._scheduler.dead_lettered(one.assigned, one.letter.record.first, 1)\n",
        LETTERS,
    ),
    Mutant(
        "a letter is sent again while its call hangs",
        "kinesis_spout/spout/dead_letter_queue.py",
        "            if new.key in self._sent or new.key in tried:\n",
        "            if new.key in tried:\n",
        LETTERS,
    ),
    Mutant(
        "calls that hang take the places of the others",
        "kinesis_spout/spout/dead_letter_queue.py",
        "        is_full = len(self._sent) - hanging >= LETTERS_AT_ONCE or",
        "        is_full = len(self._sent) >= LETTERS_AT_ONCE or",
        LETTERS,
    ),
    Mutant(
        "a payload is dropped while its record is pending",
        "kinesis_spout/spout/tracked_shard.py",
        "        if effect in {Effect.QUEUED, Effect.EXHAUSTED}:\n            self.held.fit",
        "        if True:\n            self.held.fit",
        PROPERTY,
    ),
    Mutant(
        "payloads of resolved records are kept",
        "kinesis_spout/spout/retry_buffer.py",
        "        self.held_bytes -= run.payload_bytes\n",
        "",
        PROPERTY,
    ),
    Mutant(
        "payloads of exhausted records are kept without a limit",
        "kinesis_spout/spout/retry_buffer.py",
        "        if self.held_bytes > max_bytes or (is_letter and",
        "        if not is_letter and self.held_bytes > max_bytes or (False and",
        HELD_BYTES,
    ),
    Mutant(
        "a run keeps the payloads of acked records",
        "kinesis_spout/spout/tracked_shard.py",
        "        run.data[index] = RELEASED\n",
        "",
        HELD_BYTES,
    ),
    Mutant(
        "a run keeps its payloads when the tracker knows its records",
        "kinesis_spout/spout/record_run.py",
        "        self.data = []\n",
        "",
        HELD_BYTES,
    ),
    Mutant(
        "letters that are refused keep the others from being read",
        "kinesis_spout/spout/retry_buffer.py",
        "            if drop:\n",
        "            if False:\n",
        HELD_BYTES,
    ),
    Mutant(
        "a due retry without a payload blocks the others",
        "kinesis_spout/spout/retry_buffer.py",
        "            self._missing.add(sequence)\n            self._tracker.postpone(",
        "            self._missing.add(sequence)\n            return None\n"
        "            self._tracker.postpone(",
        PROPERTY,
    ),
    Mutant(
        "a range counts as one record when it is read again",
        "kinesis_spout/spout/retry_buffer.py",
        "        if queued.count > 1:\n",
        "        if False:\n",
        SHARD,
    ),
)
_READING = (
    Mutant(
        "the budget of the buffers is ignored",
        "kinesis_spout/reading/buffered_getter.py",
        "                or wanted <= self.max_bytes\n",
        "                or wanted > 0\n",
        FETCHING,
    ),
    Mutant(
        "a failed fetch keeps its reservation",
        "kinesis_spout/reading/buffered_getter.py",
        "            self.budget.settle(page_bytes, reserved_bytes)\n",
        "            if page_bytes:\n"
        "                self.budget.settle(page_bytes, reserved_bytes)\n",
        FETCHING,
    ),
    Mutant(
        "a page that was replaced is dropped with its successor's records",
        "kinesis_spout/reading/buffered_getter.py",
        "            if not self._pages or self._pages[0] is not page:\n",
        "            if not self._pages:\n",
        FETCHING,
    ),
    Mutant(
        "a shard without budget loses its place in the rotation",
        "kinesis_spout/reading/round_robin.py",
        "            self._next = index\n            if not",
        "            self._next = index + 1\n            if not",
        FETCHING,
    ),
    Mutant(
        "a shard that must wait delays the others",
        "kinesis_spout/reading/round_robin.py",
        "min(soonest_s, ready_at_s)\n                continue\n",
        "min(soonest_s, ready_at_s)\n                break\n",
        FETCHING,
    ),
    Mutant(
        "a page from before the position is taken",
        "kinesis_spout/reading/shard_getter.py",
        "        self._refuse_disorder(decoded)\n",
        "",
        GETTER,
    ),
    Mutant(
        "an expired iterator ends the read",
        "kinesis_spout/reading/shard_getter.py",
        "                if is_fresh:\n                    raise\n",
        "                raise\n",
        GETTER,
    ),
    Mutant(
        "iterators that expire at once are asked for without a pause",
        "kinesis_spout/reading/shard_getter.py",
        "        self._pacer.back_off(now_s, self._random)\n",
        "",
        GETTER,
    ),
    Mutant(
        "until is ignored",
        "kinesis_spout/spout/prefetcher.py",
        "        if in_time < page.count:\n",
        "        if False:\n",
        "tests/integration/spout/test_end.py",
    ),
    Mutant(
        "the shares of two tasks overlap",
        "kinesis_spout/shards/assignment.py",
        "    return task_of(shard_id, total_tasks) == task_index\n",
        "    return task_of(shard_id, total_tasks) >= task_index\n",
        STATES,
    ),
)
_TREES = (
    Mutant(
        "a tuple tree is acked while a child is under way",
        "kinesis_spout/tuple_tree/tracked_tuple.py",
        "            self._made ^= edge\n        return",
        "            self._made ^= 0\n        return",
        TREES,
    ),
    Mutant(
        "the edges of the acker are not random",
        "kinesis_spout/tuple_tree/xor_ledger.py",
        "        while not (edge := self._random.getrandbits(_EDGE_BITS)):\n",
        "        while not (edge := 1):\n",
        ACKER,
    ),
    Mutant(
        "a tuple that is anchored to several trees counts in one only",
        "kinesis_spout/tuple_tree/tracked_tuple.py",
        "    return TrackedTuple(acker, tuple(edges.items()))\n",
        "    return TrackedTuple(acker, tuple(edges.items())[:1])\n",
        TREES,
    ),
    Mutant(
        "a failure before the init of a root is forgotten",
        "kinesis_spout/tuple_tree/xor_ledger.py",
        "        if entry.failed:\n            return self._end(root, entry, entry.init, "
        "Ending.FAILED)\n        return None if entry.value",
        "        return None if entry.value",
        ACKER,
    ),
    Mutant(
        "an exception after a tuple's own ack does not fail its tree",
        "kinesis_spout/tuple_tree/tracked_tuple.py",
        "        if error is not None:\n            self._fail_with(error)\n",
        "        if error is not None and self._ending is None:\n"
        "            self._fail_with(error)\n",
        "tests/unit/kinesis_spout/tuple_tree/test_tracked_tuple.py",
    ),
)
_CAREFUL = (
    Mutant(
        "openings are not counted",
        "kinesis_spout/spout/openings.py",
        "        self._count = before + 1\n",
        "        self._count = before\n",
        CAREFUL,
    ),
    Mutant(
        "a spout counts as having outlived a record that is still in flight",
        "kinesis_spout/spout/openings.py",
        "        return scheduler.has_passed(self._marks)\n",
        "        return True\n",
        CAREFUL,
    ),
    Mutant(
        "a spout counts as having outlived records that it has to read again",
        "kinesis_spout/spout/openings.py",
        "        if scheduler.is_careful or scheduler.has_restored(self._now_ms()):\n",
        "        if scheduler.is_careful:\n",
        CAREFUL,
    ),
    Mutant(
        "a careful delivery goes out before it is stored",
        "kinesis_spout/spout/scheduler.py",
        "        return self.is_announced and not self.is_out\n",
        "        return not self.is_out\n",
        CAREFUL,
    ),
    Mutant(
        "careful deliveries do not wait for each other",
        "kinesis_spout/spout/scheduler.py",
        "        if careful is not None and not careful.has_outcome:\n"
        "            if not careful.may",
        "        if careful is not None and not careful.is_out:\n            if not careful.may",
        CAREFUL,
    ),
    Mutant(
        "full speed begins before the last outcome is stored",
        "kinesis_spout/spout/scheduler.py",
        "        self._ends_when_settled = self.careful is not None and not "
        "self.careful.is_settled\n",
        "        self._ends_when_settled = False\n",
        CAREFUL,
    ),
    Mutant(
        "a record that has ended a process is delivered at full speed",
        "kinesis_spout/spout/scheduler.py",
        "        if shard.has_unanswered:\n            self.begin_careful(0)\n",
        "",
        CAREFUL,
    ),
    Mutant(
        "an orderly end counts an attempt of the announced record",
        "kinesis_spout/spout/coordinator.py",
        "        if in_order:\n            with self._changed:\n",
        "        if False:\n            with self._changed:\n",
        CAREFUL,
    ),
    Mutant(
        "a worker's crash is an orderly end",
        "kinesis_spout/spout/session.py",
        "in_order=not crashed,\n",
        "in_order=True,\n",
        CAREFUL,
    ),
    Mutant(
        "an announced attempt outlasts its outcome",
        "state/tracker/inflight_record_tracker.py",
        "        self._deadlines.discard(node.first)\n        self.withdraw(node.first)\n",
        "        self._deadlines.discard(node.first)\n",
        "tests/unit/state/tracker/test_outcomes.py",
    ),
    Mutant(
        "an announced record is read again as a new one",
        "state/tracker/snapshot.py",
        "        and node.first not in announced\n",
        "",
        TRACKER,
    ),
    Mutant(
        "children overtake a record whose first delivery is announced",
        "kinesis_spout/spout/tracked_shard.py",
        "            and not self._first_delivery_is_announced()\n",
        "",
        CAREFUL,
    ),
    Mutant(
        "the deadline of a careful delivery begins before it goes out",
        "kinesis_spout/spout/tracked_shard.py",
        "        self.tracker.extend(delivery.sequence, delivery.attempt, None)\n",
        "",
        CAREFUL,
    ),
)
_AGGREGATES = (
    Mutant(
        "an aggregate that was delivered in part counts as read",
        "kinesis_spout/spout/tracked_shard.py",
        "        if run.rest is not None:\n            self.tracker.leave_rest(run.rest)\n",
        "",
        SPOUT_SIMULATION,
    ),
    Mutant(
        "the checkpoint passes an aggregate of which a user record is unresolved",
        "state/tracker/inflight_record_tracker.py",
        "            acked_to = self._acked_below\n",
        "            pass\n",
        SPOUT_SIMULATION,
    ),
    Mutant(
        "an aggregate that was delivered in part is delivered from its start again",
        "kinesis_spout/reading/user_records.py",
        "    if begins_within(page, start):\n        columns",
        "    if False:\n        columns",
        SPOUT_SIMULATION,
    ),
    Mutant(
        "the user records of an aggregate share their retry",
        "kinesis_spout/reading/retry_reader.py",
        "        numbers = numbers_of(records)\n",
        '        numbers = records.column("sequenceNumber")\n',
        SPOUT_SIMULATION,
    ),
    Mutant(
        "a stored position after an aggregate lets its user records come again",
        "state/tracker/inflight_record_tracker.py",
        "        return not bound < number or (is_stored and number.shares_record(bound))\n",
        "        return not bound < number\n",
        "tests/unit/state/tracker/test_inflight_record_tracker.py",
    ),
    Mutant(
        "outcomes count Kinesis records where user records were handed over",
        "state/plan.py",
        "        if users is None or self.first is None or self.last is None:\n",
        "        if True:\n",
        SIMULATION,
    ),
    Mutant(
        "user records of an aggregate are one in the queue of retries",
        "spark_job/driver/retry_planner.py",
        "limited = chosen[shard, first] =",
        "first = first.whole\n        limited = chosen[shard, first] =",
        "tests/unit/spark_job/driver/test_aggregates.py",
    ),
    Mutant(
        "a task delivers an aggregate again that a spout has delivered in part",
        "spark_job/rows.py",
        "                rest = part.filter(rest_of(part, self._start))\n",
        "                rest = part\n",
        "tests/unit/spark_job/executor/test_aggregates.py",
    ),
    Mutant(
        "an aggregate that failed under raw is its first user record under unpack",
        "state/codec/unresolved.py",
        "        whole=row.whole,\n",
        "",
        "tests/unit/kinesis_spout/spout/test_aggregates.py",
    ),
    Mutant(
        "a user record that failed is gone where raw is set later",
        "spark_job/executor/retries.py",
        "        unpacker=Unpacker(lambda: hash_range_of(shard)),\n",
        "        unpacker=None,\n",
        "tests/unit/spark_job/executor/test_aggregates.py",
    ),
    Mutant(
        "a first user record that failed is its aggregate where raw is set later",
        "kinesis_spout/spout/tracked_shard.py",
        "        if self._last_restored is not None:\n",
        "        if False and self._last_restored is not None:\n",
        "tests/unit/kinesis_spout/spout/test_aggregates.py",
    ),
)
_RETENTION = (
    Mutant(
        "a spout takes a backlog for read up to its start",
        "kinesis_spout/spout/tracked_shard.py",
        "        if begun is not None and self._verified_ms is not None:\n",
        "        if False:\n",
        "tests/unit/kinesis_spout/spout/test_retention.py",
    ),
    Mutant(
        "a spout emits what comes behind records that have expired",
        "kinesis_spout/spout/record_run.py",
        "        if self._page is not None:\n            self.lapse.note(self._page)\n",
        "",
        "tests/unit/kinesis_spout/spout/test_retention.py",
    ),
)
SPOUT = (
    *_DELIVERING,
    *_STORING,
    *_RETRYING,
    *_READING,
    *_TREES,
    *_CAREFUL,
    *_AGGREGATES,
    *_RETENTION,
)
