"""Faults of what plans and writers do with aggregates. See `tests.simulation.mutants`."""

from __future__ import annotations

from tests.simulation.mutants import SIMULATION, Mutant

_DRIVER = "tests/unit/spark_job/driver/test_aggregates.py"
_EXECUTOR = "tests/unit/spark_job/executor/test_aggregates.py"
_STATES = "tests/unit/state/codec/test_shard_states.py"
_SETTLING = "tests/unit/state/test_settle_tracked.py"
_PUTTER = "tests/unit/kinesis_spout/cli/test_aggregating_putter.py"
_SINK = "tests/integration/sink/test_record_writer.py"
_LETTERS = "tests/unit/spark_job/dead_letter/test_payload_records.py"
_AUTO = "tests/integration/records/test_auto_streams.py -k without_keys"
_BY_OPTION = (
    "spark_job/rows.py",
    "    return settings.aggregated_records if mode in (None, FAIL) else mode\n",
    "    return settings.aggregated_records\n",
)

AGGREGATES = (
    Mutant("a replay reads aggregates by the option of today", *_BY_OPTION, _DRIVER),
    Mutant("a task reads aggregates by the option of today", *_BY_OPTION, _EXECUTOR),
    Mutant(
        "a plan does not say what its option was",
        "spark_job/driver/planner.py",
        "        aggregated_records=limits.aggregated_records,\n",
        "",
        SIMULATION,
    ),
    Mutant(
        "outcomes are of whole records by the option of today",
        "spark_job/tracking/foreach_batch.py",
        "            if mode_of(part.plan, part.settings) == RAW:\n",
        "            if part.settings.aggregated_records == RAW:\n",
        "tests/integration/outcomes/test_aggregates.py",
    ),
    Mutant(
        "a plan that refused aggregates goes on with any option",
        "spark_job/driver/coordinator.py",
        "        if plan.aggregated_records == FAIL",
        "        if False and plan.aggregated_records == FAIL",
        _DRIVER,
    ),
    Mutant(
        "a plan does not say which hash keys its shards have",
        "spark_job/driver/planner.py",
        "hash_keys=_texts(self.hash_keys.get(shard)),",
        "hash_keys=None,",
        _DRIVER,
    ),
    Mutant(
        "a plan has hash keys where no record is in a shard because of its key",
        "kinesis_spout/shards/catalog.py",
        "        if self._may_have_ignored_keys:\n            return {}\n",
        "",
        _DRIVER,
    ),
    Mutant(
        "all user records are handed over, whatever the plan says",
        "spark_job/executor/task_reader.py",
        "                hash_range=hash_range_of(self._slices[shard_id]),\n",
        "                hash_range=None,\n",
        _EXECUTOR,
    ),
    Mutant(
        "a range that is retried has the user records of other shards",
        "kinesis_spout/reading/user_records.py",
        "        if not is_owned.false_count:\n",
        "        if True:\n",
        _EXECUTOR,
    ),
    Mutant(
        "a retry without a sub-sequence number is read as a whole record",
        "spark_job/executor/retries.py",
        "        only_subs=plan.aggregated_records is None,\n",
        "        only_subs=True,\n",
        _EXECUTOR,
    ),
    Mutant(
        "a plan of a version that said whole of nothing has first user records",
        "spark_job/executor/retries.py",
        "        only_subs=plan.aggregated_records is None,\n",
        "",
        _EXECUTOR,
    ),
    Mutant(
        "a queue of a version that said whole of nothing has first user records",
        "state/codec/unresolved.py",
        "    return records if user_records else tuple(map(_of_earlier_version, records))\n",
        "    return records\n",
        _STATES,
    ),
    Mutant(
        "a queue is merged over a change of the option",
        "state/codec/unresolved_ranges.py",
        "        if records[start].whole == records[start + 1].whole:\n",
        "        if True:\n",
        _EXECUTOR,
    ),
    Mutant(
        "a whole range that begins with user records is unpacked",
        "kinesis_spout/reading/user_records.py",
        "        if retry.whole:\n",
        "        if retry.whole and not retry.first.sub:\n",
        _EXECUTOR,
    ),
    Mutant(
        "the sink packs for a stream whose strategy its boto3 does not know",
        "kinesis_spout/service/botocore_connection.py",
        "                summary_wire.hook(client)\n",
        "",
        _SINK,
    ),
    Mutant(
        "a user record that fails again under raw is queued as its aggregate",
        "state/settle.py",
        "        left = [replace(one, whole=stored.whole) for one in left]\n",
        "        left = [replace(one, whole=one.whole or stored.whole) for one in left]\n",
        _SETTLING,
    ),
    Mutant(
        "a whole record that fails again under unpack is queued as a user record",
        "state/settle.py",
        "        left = [replace(one, whole=stored.whole) for one in left]\n",
        "",
        _SETTLING,
    ),
    Mutant(
        "a read within an aggregate without a user record of the shard fits no state",
        "state/plan.py",
        "        begin = self.first if start is None else max(start, self.first)\n",
        "        begin = self.first\n",
        _DRIVER,
    ),
    Mutant(
        "a record that is an aggregate is put as it is",
        "kinesis_spout/aggregation/packing.py",
        "    if not is_kpl_aggregate(user.data):\n",
        "    if True:\n",
        _SINK,
    ),
    Mutant(
        "a record that a reshard has misplaced is put again as it is",
        "kinesis_spout/shards/shard_packer.py",
        "_outgoing(alone(user)) for user",
        "OutgoingRecord(*user) for user",
        _PUTTER,
    ),
    Mutant(
        "an aggregate of one record is put again and again while its shard is not listed",
        "kinesis_spout/aggregation/packing.py",
        "        if len(self.users) == 1:\n            return ()\n",
        "        if not self.is_aggregate:\n            return ()\n",
        _PUTTER,
    ),
    Mutant(
        "a row that its stream cannot take in an aggregate is left to the service",
        "spark_job/sink/record_writer.py",
        "            if user_count(record) == 1 and record.size_bytes > self.most_record_bytes:\n",
        "            if False:\n",
        _SINK,
    ),
    Mutant(
        "an aggregate of a dead letter is put under the key of the letter",
        "spark_job/dead_letter/payload_records.py",
        "    if not is_kpl_aggregate(data):\n",
        "    if True:\n",
        _LETTERS,
    ),
    Mutant(
        "a user record that is an aggregate is put back in pieces",
        "spark_job/dead_letter/payload_records.py",
        "    users = unpacked(data) if letter.sub_sequence_number is None else None\n",
        "    users = unpacked(data)\n",
        _LETTERS,
    ),
    Mutant(
        "a bare payload on a dead-letter stream loses user records",
        "spark_job/dead_letter/stream_sink.py",
        "            bare = payload_records(letter)\n",
        "            bare = [OutgoingRecord(str(letter.partition_key), letter.data)]\n",
        _LETTERS,
    ),
    Mutant(
        "records without a key wait for each other as if they shared one",
        "spark_job/tracking/outcomes.py",
        '    own = b"\\xff" + f"{shard_id}:{number[0]}.{number[1]}".encode()\n',
        '    own = b"\\xff"\n',
        _AUTO,
    ),
    Mutant(
        "the rows of a page come in another order than its records",
        "spark_job/rows.py",
        "    return pa.RecordBatch.from_arrays(\n        [_column(name,",
        "    records = records.take(pa.array(range(records.num_rows - 1, -1, -1)))\n"
        "    return pa.RecordBatch.from_arrays(\n        [_column(name,",
        _AUTO,
    ),
)
