"""All drills, by name."""

from __future__ import annotations

from kinesis_spout.drills.drill import Drill, Need
from kinesis_spout.drills.faults import (
    backups,
    clocks,
    disk,
    kills,
    links,
    outages,
    owners,
    poison,
    resharding,
    service,
    workers,
    znodes,
    zookeeper,
)
from kinesis_spout.drills.world.setting import Extra
from state import failpoint

_SPARK = frozenset({Need.SPARK})
_OWN = frozenset({Need.OWN_KINESIS})

# A task appends a part of what it reads only while a shard answers late: that step has a drill of
# its own, `kill-driver-at-log-appended`. A report has parts only if ten thousands of records of a
# batch fail, for which a drill has not the time.
STEPS = tuple(
    step for step in failpoint.STEPS if step not in ("log-appended", "report-part-written")
)

_ALL = (
    Drill(
        name="kill-driver",
        sentence="kills the driver (kill -9) in the middle of its work, and starts it again",
        protection="checkpoints in ZooKeeper: a successor goes on from them",
        act=kills.kill_driver,
    ),
    Drill(
        name="kill-driver-at-every-step",
        sentence="kills a driver at each step of a batch, one start after the other",
        protection="plans, reports and two-step settling",
        act=kills.kill_driver_at(*STEPS),
        needs=_SPARK,
        is_cold=True,
    ),
    *(
        Drill(
            name=f"kill-driver-at-{step}",
            sentence=f"kills the driver (kill -9) when its first batch is at the step {step}",
            protection="plans, reports and two-step settling",
            act=(
                kills.kill_driver_between_states
                if step == kills.HALF_WRITTEN
                else kills.kill_driver_at(step)
            ),
            needs=_SPARK,
            is_cold=True,
            of_all=False,
            step=step,
        )
        for step in STEPS
    ),
    Drill(
        name="kill-python-worker",
        sentence="kills the Python workers of Spark while a batch runs",
        protection="task logs: a task that runs again reads the same records",
        act=kills.kill_python_worker,
        needs=_SPARK,
    ),
    Drill(
        name="kill-executor",
        sentence="kills the JVM of one of two executors while a batch runs",
        protection="task logs: a task that runs again reads the same records",
        act=kills.kill_executor,
        needs=frozenset({Need.EXECUTORS}),
    ),
    Drill(
        name="split-merge-burst",
        sentence="splits and merges shards one after the other while records come",
        protection="parents before children: a key stays in order over reshards",
        act=resharding.split_merge_burst,
        spares=True,
    ),
    Drill(
        name="update-shard-count",
        sentence="doubles the number of shards and halves it again",
        protection="parents before children: a key stays in order over reshards",
        act=resharding.update_shard_count,
        spares=True,
    ),
    Drill(
        name="reshard-while-down",
        sentence="kills the driver, reshards several times, and starts it again",
        protection="the shard list in ZooKeeper: generations that nobody has read are not skipped",
        act=resharding.reshard_while_down,
    ),
    Drill(
        name="zookeeper-restart",
        sentence="kills ZooKeeper, and later stops it for some seconds",
        protection="sessions that outlast a lost connection; writes that are made again",
        act=zookeeper.restart,
    ),
    Drill(
        name="zookeeper-leader-loss",
        sentence="kills the leader of a ZooKeeper ensemble of three servers",
        protection="the connection goes on with another server of the ensemble",
        act=zookeeper.leader_loss,
        needs=frozenset({Need.ENSEMBLE}),
    ),
    Drill(
        name="session-loss",
        sentence="freezes the job for longer than its ZooKeeper session lasts",
        protection="a lease that lapsed is taken back if nobody else has it",
        act=zookeeper.session_loss,
    ),
    Drill(
        name="throttling",
        sentence="throttles every read for some seconds",
        protection="backoff, and iterators that are kept",
        act=service.throttling,
        needs=_OWN,
        spares=True,
    ),
    Drill(
        name="brown-out",
        sentence="answers no call of the service for some seconds",
        protection="calls that are retried",
        act=service.brown_out,
        needs=_OWN,
        spares=True,
    ),
    Drill(
        name="expired-iterators",
        sentence="lets every iterator expire for some seconds",
        protection="a new iterator after the last record that was read",
        act=service.expired_iterators,
        needs=_OWN,
        spares=True,
    ),
    Drill(
        name="slow-and-truncated-answers",
        sentence="delays, cuts off and drops answers of the service",
        protection="whole pages only: a page that is cut is read again",
        act=service.slow_and_truncated,
        needs=_OWN,
        spares=True,
    ),
    Drill(
        name="two-drivers",
        sentence="starts a second driver beside the first, then kills the first",
        protection="one owner at a time: the second waits for the lease",
        act=owners.two_drivers,
        is_apart=True,
    ),
    Drill(
        name="kill-driver-at-log-appended",
        sentence="kills the driver (kill -9) when a task has published a part of what it reads",
        protection="task logs: what is published was read, and the rest is read again",
        act=kills.kill_driver_at_second_append,
        needs=_SPARK | _OWN,
        is_cold=True,
    ),
    Drill(
        name="replaced-while-frozen",
        sentence="freezes a driver until another one has taken over, and lets it go on",
        protection="leases with epochs: one that has lost its lease writes nothing",
        act=owners.replaced_while_frozen,
        is_apart=True,
    ),
    Drill(
        name="zookeeper-cut-off",
        sentence="cuts the job off from ZooKeeper, for less and for more than a session lasts",
        protection="a lease that lapsed is taken back if nobody else has it",
        act=links.cut_off,
        extras=frozenset({Extra.LINK}),
    ),
    Drill(
        name="zookeeper-stalled",
        sentence="lets nothing pass between the job and ZooKeeper, without an error",
        protection="a lease that lapsed is taken back if nobody else has it",
        act=links.stalled,
        extras=frozenset({Extra.LINK}),
    ),
    Drill(
        name="slow-worker",
        sentence="stops the Python workers of Spark for some seconds while a batch runs",
        protection="sessions that are made again: a task that was held up goes on",
        act=workers.slow_worker,
        needs=_SPARK,
    ),
    Drill(
        name="zombie-worker",
        sentence="lets Python workers of a killed driver go on after their plan was closed",
        protection="nothing is published under a closed plan",
        act=workers.zombie_worker,
        needs=_SPARK | _OWN,
    ),
    Drill(
        name="poison",
        sentence="has a record that kills each process that gets it",
        protection="deliveries that never answered are counted",
        act=poison.poison,
        extras=frozenset({Extra.POISON}),
        is_cold=True,
        of_all=False,  # some ten starts of the job
    ),
    Drill(
        name="service-clock",
        sentence="sets the service's clock forward and back, by minutes and by hours",
        protection="sequence numbers, not times, say what was read",
        act=clocks.service_clock,
        needs=_OWN,
        spares=True,
    ),
    Drill(
        name="job-clock",
        sentence="sets the job's clock forward and back, by minutes and by hours",
        protection="leases and positions do not depend on the time of day",
        act=clocks.job_clock,
        extras=frozenset({Extra.CLOCK}),
    ),
    Drill(
        name="shard-state-removed",
        sentence="removes the states of shards from ZooKeeper by hand",
        protection="a shard without a state starts again; nothing is settled into it",
        act=znodes.shard_states,
        needs=_SPARK,
    ),
    Drill(
        name="task-log-removed",
        sentence="removes from ZooKeeper what a task has published",
        protection="a plan with a removed log is closed, and its records come again",
        act=znodes.task_log,
        needs=_SPARK,
        is_cold=True,
    ),
    Drill(
        name="report-removed",
        sentence="removes the report of a batch from ZooKeeper",
        protection="a batch without a report is never acked",
        act=znodes.report,
        needs=_SPARK,
        is_cold=True,
    ),
    Drill(
        name="plan-removed",
        sentence="removes plans, and the pointer to them, from ZooKeeper",
        protection="what is not known to be settled is read again",
        act=znodes.plan,
        needs=_SPARK,
        is_cold=True,
    ),
    Drill(
        name="application-removed",
        sentence="removes all of the application from ZooKeeper, and follows the error's advice",
        protection="a job whose progress is lost stops and says so",
        act=znodes.application,
        needs=_SPARK,
    ),
    Drill(
        name="checkpoint-lost",
        sentence="removes Spark's checkpoint location",
        protection="ZooKeeper is the one authority; plan numbers go on from it",
        act=backups.checkpoint_lost,
        needs=_SPARK,
    ),
    Drill(
        name="checkpoint-restored",
        sentence="restores Spark's checkpoint location from an older copy",
        protection="a plan that ZooKeeper has settled is not settled again",
        act=backups.checkpoint_restored,
        needs=_SPARK,
    ),
    Drill(
        name="zookeeper-restored",
        sentence="restores ZooKeeper's data from an older copy",
        protection="only a plan that fits the states is settled; what does not comes again",
        act=backups.zookeeper_restored,
        needs=_SPARK,
    ),
    Drill(
        name="disk-full",
        sentence="lets no write of the driver to its disk succeed, until the job ends",
        protection="a batch that Spark could not commit is not settled",
        act=disk.disk_full,
        needs=_SPARK,
    ),
    Drill(
        name="sink-outage",
        sentence="lets every batch fail, until the job has ended twice",
        protection="a batch that failed is not acked",
        act=outages.sink_outage,
        needs=_SPARK,
    ),
    Drill(
        name="record-outage",
        sentence="lets every record fail for some seconds",
        protection="failures in an outage do not count as attempts",
        act=outages.record_outage,
        needs=_SPARK | {Need.OWN_FUNCTION},
        spares=True,
    ),
    Drill(
        name="dead-letter-outage",
        sentence="lets no dead letter be written, until the job has ended twice",
        protection="nothing is acked before its dead letters are written",
        act=outages.dead_letter_outage,
        needs=_SPARK,
    ),
)
DRILLS = {drill.name: drill for drill in _ALL}
