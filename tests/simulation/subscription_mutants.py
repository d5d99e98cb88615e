"""Faults of reading by subscription in the Spark source, to put back into the product. See
`tests.simulation.mutants`.
"""

from __future__ import annotations

from tests.simulation.mutants import Mutant

GETTER = "kinesis_spout/reading/push_or_poll_getter.py"
TIMES = "tests/unit/spark_job/driver/test_consumer.py"

SUBSCRIPTIONS = (
    Mutant(
        "polling begins with the last record that was pushed",
        GETTER,
        "            self._polling.move_to(Position.after(part.last))\n",
        "            self._polling.move_to(Position.at(part.last))\n",
    ),
    Mutant(
        "polling goes on from where the subscription began",
        GETTER,
        "            self._polling.move_to(Position.after(part.last))\n",
        "",
    ),
    Mutant(
        "the rest of an event is dropped with its subscription",
        GETTER,
        "        self._rest = page.after(part.count) if part.count < page.count else None\n",
        "        self._rest = None\n",
    ),
    Mutant(
        "an attempt that finds a log subscribes",
        "spark_job/executor/task_reader.py",
        "            if plan.consumer_arn is None or is_retry or stored.log is not None\n",
        "            if plan.consumer_arn is None or is_retry\n",
    ),
    Mutant(
        "a task that Spark runs again subscribes",
        "spark_job/executor/task_reader.py",
        "            if plan.consumer_arn is None or is_retry or stored.log is not None\n",
        "            if plan.consumer_arn is None or stored.log is not None\n",
    ),
    Mutant(
        "a batch that another run replays subscribes",
        "spark_job/driver/coordinator.py",
        "        if plan_id != self._plan_of_this_run:  # a replay, which polls\n",
        "        if False:\n",
        TIMES,
    ),
    Mutant(
        "a shard is subscribed to before the service allows it",
        "spark_job/driver/coordinator.py",
        "            next_subscribes=self._tips.next_subscribes(shards, now_ms),\n",
        "",
        TIMES,
    ),
    Mutant(
        "a task waits for a subscription that pushes nothing",
        GETTER,
        "        is_late = self._clock.monotonic_s() >= self._poll_from_s\n",
        "        is_late = False\n",
        "tests/unit/kinesis_spout/reading/test_push_or_poll_getter.py",
    ),
    Mutant(
        "a task leaves its subscription open",
        "spark_job/executor/task_reader.py",
        "        finally:\n            self._unsubscribe()\n",
        "        finally:\n            pass\n",
        "tests/unit/spark_job/executor/test_subscribed_tasks.py",
    ),
)
