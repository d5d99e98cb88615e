"""All drills, by name: what each does, its steps, what it needs, and which processes must outlast
them. What every drill must show is in `history.checks`; which protection it tests, in the guide.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from kinesis_spout.drills import verbs
from kinesis_spout.drills.consumer import Outage
from kinesis_spout.drills.drill import Drill, Outlasts
from kinesis_spout.drills.setting import Need
from kinesis_spout.drills.verbs import ITERATOR, READ, do
from kinesis_spout.drills.world import World
from kinesis_spout.testing import (
    drop,
    expired_iterator,
    service_unavailable,
    slow,
    throttle,
    truncate,
)
from state import failpoint

if TYPE_CHECKING:
    from kinesis_spout.drills.verbs import Step

_SPARK = frozenset({Need.SPARK})
_OWN = frozenset({Need.OWN_KINESIS})
_LINK = frozenset({Need.LINK})

# A task appends a part of what it reads only while a shard answers late: that step has a drill of
# its own, `kill-driver-at-log-appended`. A report has parts only if ten thousands of records of a
# batch fail, for which a drill has not the time.
STEPS = tuple(
    step for step in failpoint.STEPS if step not in ("log-appended", "report-part-written")
)
# An application writes the first states of its shards before its first batch, and so passes this
# failpoint too early: a job has to work before.
_HALF_WRITTEN = "shard-states-half-written"
# Minutes ahead of the right time, within the stream's retention of 24 hours.
_JUMPS = (10, -10, 360, -360, 0)
_SESSION_S, _LESS_S = 8.0, 1.5  # more and less than the 4 s that a session lasts

start, kill = World.start, World.kill
wait, work = do(World.wait), do(World.work)
remove, while_down = do(verbs.remove), do(verbs.while_down)
kill_in_batch, strike = do(verbs.kill_in_batch), do(verbs.strike)


def _and_work(records: int, *steps: Step) -> tuple[Step, ...]:
    return tuple(each for one in steps for each in (one, work(records)))


# Of a Spark job; of one that the steps start; of faults of the service, which any job outlasts.
_of_spark = partial(Drill, needs=_SPARK)
_cold = partial(Drill, needs=_SPARK, is_cold=True)
_of_service = partial(Drill, needs=_OWN, outlasts=Outlasts.ANY)

_ALL = (
    Drill(
        "kill-driver",
        "kill the driver (kill -9) in the middle of its work, and start it again",
        (kill, start),
    ),
    _cold(
        "kill-driver-at-every-step",
        "kill the driver at each step of a batch, and start it again each time",
        (*(do(verbs.kill_at)(step) for step in STEPS), start, work(100)),
    ),
    *(
        Drill(
            f"kill-driver-at-{step}",
            f"kill the driver (kill -9) when its first batch is at the step {step}",
            (
                *((start, work(100), kill) if step == _HALF_WRITTEN else ()),
                *(do(verbs.kill_at)(step), start, work(100)),
            ),
            needs=_SPARK,
            is_cold=True,
            of_all=False,
            step=step,
        )
        for step in STEPS
    ),
    _of_spark(
        "kill-python-worker",
        "kill Spark's Python workers while a batch is running",
        # A worker may have handed over all that it has published: then its task is over, and the
        # kill repeats nothing.
        (kill_in_batch("kill -9 of the Python workers", verbs.is_worker), work(50)) * 3,
    ),
    Drill(
        "kill-executor",
        "kill the JVM of one of two executors while a batch is running",
        (kill_in_batch("kill -9 of an executor", verbs.is_executor, most=1), work(100)),
        needs=frozenset({Need.EXECUTORS}),
    ),
    Drill(
        "split-merge-burst",
        "split and merge shards while records are arriving",
        (do(verbs.reshard)(4),),
        outlasts=Outlasts.ANY,
    ),
    Drill(
        "update-shard-count",
        "double the number of shards, and then halve it",
        (do(verbs.scale)(8), do(verbs.scale)(4)),
        outlasts=Outlasts.ANY,
    ),
    Drill(
        "reshard-while-down",
        "kill the driver, reshard several times, and start it again",
        (kill, do(verbs.reshard)(4), start),
    ),
    Drill(
        "zookeeper-restart",
        "kill ZooKeeper, start it again, and later stop it for a few seconds",
        (verbs.kill_zookeeper, wait(3), do(verbs.stop_zookeeper)(3), wait(3)),
        outlasts=Outlasts.SPOUT,
    ),
    Drill(
        "zookeeper-leader-loss",
        "kill the leader of a ZooKeeper ensemble of three servers",
        (verbs.kill_leader,),
        needs=frozenset({Need.ENSEMBLE}),
    ),
    Drill(
        "session-loss",
        "freeze the job for longer than its ZooKeeper session",
        (do(verbs.freeze)(7), work(50)),
        outlasts=Outlasts.SPOUT,
    ),
    _of_service(
        "throttling",
        "throttle every read for a few seconds",
        (strike("throttled reads", throttle()),),
    ),
    _of_service(
        "brown-out",
        "leave every request to Kinesis unanswered for a few seconds",
        (strike("no request answered", service_unavailable(), operations=(None,), seconds=5),),
    ),
    _of_service(
        "expired-iterators",
        "make every shard iterator expire for a few seconds",
        (strike("every shard iterator expired", expired_iterator()),),
    ),
    _of_service(
        "slow-and-truncated-answers",
        "delay, truncate and drop Kinesis's responses",
        (
            strike(
                "slow, dropped and truncated responses",
                *(slow(0.5), truncate(), drop(processed=True)),
                operations=(READ, ITERATOR),
                seconds=8,
            ),
        ),
    ),
    Drill(
        "two-drivers",
        "start a second driver while the first is running, then kill the first",
        (verbs.start_second, wait(4), do(World.kill)("kill -9 of the first driver")),
        is_apart=True,
    ),
    Drill(
        "kill-driver-at-log-appended",
        "kill the driver (kill -9) when a task has published only part of its records",
        (verbs.kill_at_second_append, start),
        needs=_SPARK | _OWN,
        is_cold=True,
    ),
    Drill(
        "replaced-while-frozen",
        "freeze a driver until another has taken over, then resume it",
        (verbs.freeze_until_replaced,),
        is_apart=True,
    ),
    Drill(
        "zookeeper-cut-off",
        "disconnect the job from ZooKeeper for less than its session timeout, then for longer",
        _and_work(50, do(verbs.cut_link)(_LESS_S), do(verbs.cut_link)(_SESSION_S)),
        needs=_LINK,
        outlasts=Outlasts.SPOUT,
    ),
    Drill(
        "zookeeper-stalled",
        "block all traffic between the job and ZooKeeper, without an error",
        _and_work(
            50, *(do(verbs.cut_link)(seconds, is_silent=True) for seconds in (_LESS_S, _SESSION_S))
        ),
        needs=_LINK,
        outlasts=Outlasts.SPOUT,
    ),
    _of_spark(
        "slow-worker",
        "stop Spark's Python workers for a few seconds while a batch is running",
        (do(verbs.stop_workers)(6),),  # a worker's session is shorter
        outlasts=Outlasts.ANY,
    ),
    Drill(
        "zombie-worker",
        "let a killed driver's Python workers continue after their batch was closed",
        (verbs.wake_workers_late, start),
        needs=_SPARK | _OWN,
    ),
    Drill(
        "poison",
        "put a record on the stream; the record crashes each process that receives it",
        (start, verbs.wait_for_poison),
        needs=frozenset({Need.POISON}),
        is_cold=True,
        of_all=False,  # it starts the job some ten times
        restarts=20,
    ),
    _of_service(
        "service-clock",
        "set Kinesis's clock forward and back, by minutes and by hours",
        _and_work(30, *(do(verbs.set_service_clock)(minutes) for minutes in _JUMPS)),
    ),
    Drill(
        "job-clock",
        "set the job's clock forward and back, by minutes and by hours",
        _and_work(
            30,
            *(do(verbs.set_job_clock)(minutes) for minutes in _JUMPS),
            *(do(verbs.replace_with_clock)(*hours) for hours in pairwise((0, 6, -6, 0))),
        ),
        needs=frozenset({Need.CLOCK}),
    ),
    _of_spark(
        "shard-state-removed",
        "remove the states of shards from ZooKeeper",
        (
            kill,
            remove("the states of all shards", verbs.states_of, at="plan-closed"),
            *(start, work(50), verbs.remove_running_state),
        ),
    ),
    _cold(
        "task-log-removed",
        "remove a task's published log from ZooKeeper",
        (
            # Before Spark has committed the batch, and after.
            remove("a task's log", verbs.task_log_of, at="sink-written"),
            remove("a task's log", verbs.task_log_of, at="plan-closed"),
            start,
        ),
    ),
    _cold(
        "report-removed",
        "remove a batch's report from ZooKeeper",
        (
            remove("the report", verbs.report_of, at="report-done"),
            remove("the report", verbs.report_of, at="plan-closed"),
            start,
        ),
    ),
    _cold(
        "plan-removed",
        "remove the plans (the ranges to read) of batches from ZooKeeper",
        (
            remove("the pointer to the plan", lambda _: ["plan"], at="sink-written"),
            remove("the plan", lambda world: [verbs.plan_of(world)], at="plan-closed"),
            remove("all plans", lambda _: ["batches"], at="sink-written"),
            start,
        ),
    ),
    _of_spark(
        "application-removed",
        "remove the whole application from ZooKeeper, then follow the error message's remedy",
        (verbs.lose_application, start),
    ),
    _of_spark(
        "checkpoint-lost",
        "remove Spark's checkpoint location",
        (
            while_down("the checkpoint location removed", verbs.lose_checkpoint, rewinds=False),
            start,
        ),
    ),
    _of_spark(
        "checkpoint-restored",
        "restore Spark's checkpoint location from an older copy",
        (
            while_down("the checkpoint location copied", verbs.copy_checkpoint, rewinds=False),
            *(start, work(100)),
            while_down(
                "an older checkpoint location restored", do(verbs.copy_checkpoint)(back=True)
            ),
            start,
        ),
    ),
    _of_spark(
        "zookeeper-restored",
        "restore ZooKeeper's data from an older copy",
        (
            while_down("ZooKeeper's data copied", verbs.copy_zookeeper, rewinds=False),
            *(start, work(100)),
            while_down("older data of ZooKeeper restored", do(verbs.copy_zookeeper)(back=True)),
            start,
        ),
    ),
    _of_spark(
        "disk-full",
        "make every write to the driver's disk fail until the job has ended",
        (verbs.fill_disk, start),
    ),
    _of_spark(
        "sink-outage",
        "make every batch fail until the job has ended twice",
        (do(verbs.fail_until_ended)(Outage.SINK, 2), start),
    ),
    Drill(
        "record-outage",
        "make every record fail for a few seconds",
        (verbs.fail_every_record,),
        needs=_SPARK | {Need.OWN_FUNCTION},
        outlasts=Outlasts.ANY,
    ),
    _of_spark(
        "dead-letter-outage",
        "make every write of a dead letter fail until the job has ended twice",
        (do(verbs.fail_until_ended)(Outage.LETTERS, 2), start),
    ),
)
DRILLS = {drill.name: drill for drill in _ALL}
