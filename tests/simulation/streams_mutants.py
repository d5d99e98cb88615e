"""Faults of queries of several streams to put into the product. See `tests.simulation.mutants`."""

from __future__ import annotations

from tests.simulation.mutants import Mutant

_JOINT = "spark_job/driver/query_driver.py"
_OFFSETS = "spark_job/driver/offsets.py"
_TESTS = "tests/unit/spark_job/driver/test_joint_batches.py"

STREAMS = (
    Mutant(
        "the plan of each stream is settled by the plan of the first one",
        _JOINT,
        'lambda one: one.coordinator.settle(plans.get(one.name, ""))',
        'lambda one: one.coordinator.settle(plans.get(self._streams[0].name, ""))',
        _TESTS,
    ),
    Mutant(
        "the limit of a batch is that of each of its streams",
        _JOINT,
        "        (one, min(each + (place < rest), one",
        "        (one, min(max_records, one",
        _TESTS,
    ),
    Mutant(
        "a stream that has nothing in a batch keeps its plan open",
        _JOINT,
        '        one.coordinator.close_open_plan(ends.get(one.name, ""))\n',
        "",
        _TESTS,
    ),
    Mutant(
        "the last plan of a removed stream is forgotten",
        _JOINT,
        "return plans | new\n",
        "return {name: plan for name, plan in (plans | new).items() "
        "if name in {one.name for one in self._streams}}\n",
        _TESTS,
    ),
    Mutant(
        "a batch is repeated without the records of a removed stream",
        _JOINT,
        "        refuse_missing(begins, ends, {one.name for one in self._streams})\n",
        "",
        _TESTS,
    ),
    Mutant(
        "the trouble of one stream ends the query",
        _JOINT,
        "            if strict or not is_transient or not one.coordinator.is_opened:\n",
        "            if True:\n",
    ),
    Mutant(
        "the tasks of all streams are read from the first one",
        _JOINT,
        "        QueryTask(one.index, plan_id, task, plan)",
        "        QueryTask(0, plan_id, task, plan)",
    ),
    Mutant(
        "the retries of a paused stream are planned",
        _JOINT,
        "        return not self.is_paused and self.coordinator.has_work\n",
        "        return self.coordinator.has_work\n",
        _TESTS,
    ),
    Mutant(
        "a plan of a query of one stream is taken for one of the first of several",
        _JOINT,
        "self._streams[i].name for i, is_known in known.items() if is_known)",
        "self._streams[i].name for i, is_known in known.items())",
        _TESTS,
    ),
    Mutant(
        "a query that reads one of several streams forgets the others",
        _OFFSETS,
        "    if is_of_one and not start.by_stream:\n        (plan,) = plans.values()\n",
        "    if is_of_one:\n        plan = max(plans.values())\n",
        "tests/unit/spark_job/driver/test_offsets.py",
    ),
    Mutant(
        "message ids do not name the stream",
        "spark_job/settings.py",
        '        return f"{self.named_in_ids}/" if self.named_in_ids else ""\n',
        '        return ""\n',
    ),
    Mutant(
        "a stream whose rest ends within a pass is not waited for",
        _JOINT,
        "            one.index not in pauses or one.error is not None for one in self._streams\n",
        "            one.rests_until_s > self._clock.monotonic_s() for one in self._streams\n",
        _TESTS,
    ),
    Mutant(
        "an error ends a query though it may have healed",
        _JOINT,
        "            if one.failed_s >= begun_s:\n",
        "            if one.failed_s:\n",
        "tests/unit/spark_job/driver/test_joint_coordinator.py",
    ),
    Mutant(
        "an error does not name its stream",
        "spark_job/query_failure.py",
        '    named = StreamError(f"stream {label}: {error}")\n',
        '    named = StreamError(f"a stream: {error}")\n',
    ),
)
