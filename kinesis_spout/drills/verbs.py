"""The verbs of drills, beside those of the `World` itself. Each gets the world and its arguments,
and returns when it is done. What it did to the world is in `World.faults`. An error ends the drill
with all that the world has started, so nothing is undone for it.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections import Counter
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeAlias

import psutil

from kinesis_spout.drills.consumer import POISON, RETRY_LIMIT, Outage
from kinesis_spout.drills.history.events import Step as Line
from kinesis_spout.drills.job import CHECKPOINT, OUTAGES, set_clock
from kinesis_spout.drills.setting import DrillError
from kinesis_spout.drills.world import KILL
from kinesis_spout.processes import descendants, resume, runs, suspend
from kinesis_spout.testing import slow, throttle
from state.plan import plan_number
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kinesis_spout.drills.world import World
    from kinesis_spout.service.shard_info import ShardInfo
    from kinesis_spout.testing import Fault as ServiceFault
    from state.shard_state import ShardState

Step: TypeAlias = "Callable[[World], object]"
_Given = ParamSpec("_Given")

READ, ITERATOR = "GetRecords", "GetShardIterator"
_MINUTE_MS, _HOUR_MS = 60_000, 3_600_000
_BETWEEN_S = 1.0
_AWAKE_S = 15.0  # for which a late worker may try to publish
_DAEMON = "pyspark.daemon"  # forks the Python workers


def do(verb: Callable[Concatenate[World, _Given], object]) -> Callable[_Given, Step]:
    """The steps that a verb is, by its arguments."""

    def step(*args: _Given.args, **kwargs: _Given.kwargs) -> Step:
        return lambda world: verb(world, *args, **kwargs)

    return step


# start, kill --------------------------------------------------------------------------------------
def start_second(world: World) -> None:
    """Start a second process beside the first one, which owns what both want. Wait until it has
    connected to ZooKeeper, where it asks for that.
    """
    second = world.job.start_task()
    # Over at once: nothing that one delivers after the other from now on is excused.
    world.add_fault(f"{second} was started beside the first process", time.monotonic_ns())
    world.wait_until(lambda: _is_connected(world, second), f"a connection from {second}")


def stop_at(world: World, failpoint: str, lead: Callable[[], object] = lambda: None) -> None:
    """Start a job that stops at the failpoint. `lead` is called until it does."""
    run = world.start(failpoint)
    marker = world.job.marker(run)

    def has_come() -> bool:
        lead()
        return marker.exists() and bool(marker.read_text())

    world.wait_until(has_come, f"{run}'s arrival at {failpoint}")
    world.tell(f"{run} is at {failpoint}")


def kill_at(world: World, failpoint: str) -> None:
    """Start a job that stops at the failpoint, and kill it there."""
    stop_at(world, failpoint)
    world.kill(f"{KILL} at {failpoint}")


def kill_at_second_append(world: World) -> None:
    """Kill the driver of a task that has appended to its log and is not done: one of its shards
    answers slowly, and what the others have is published meanwhile.
    """
    faults = world.own_stream.fake.faults

    def delay_one_shard() -> None:
        faults.clear()
        faults.add(slow(1.0), operation=READ, times=1)  # a task waits much shorter

    stop_at(world, "log-appended", delay_one_shard)
    faults.clear()
    world.kill(f"{KILL} at log-appended")


def kill_in_batch(
    world: World, name: str, is_wanted: Callable[[psutil.Process], bool], most: int | None = None
) -> None:
    """Kill the wanted processes below the job in the middle of a batch: when a task has published
    what it reads, and before the batch has an outcome.
    """
    _wait_for_published(world)
    with world.fault(name):
        _kill_all(_below(world, is_wanted)[:most])


def is_executor(one: psutil.Process) -> bool:
    return "CoarseGrainedExecutorBackend" in _command(one)


def is_worker(one: psutil.Process) -> bool:
    """Whether a daemon of PySpark has forked it. It has the daemon's command line."""
    with suppress(psutil.Error):
        parent = one.parent()
        return parent is not None and _DAEMON in _command(one) and _DAEMON in _command(parent)
    return False


def wait_for_poison(world: World) -> None:
    """Wait until the record that kills its process is a dead letter."""

    def is_letter() -> bool:
        letters = (told for told in world.job.read() if told.step is Line.LETTER)
        return any((one.key, one.number) == POISON and UNANSWERED in one.reason for one in letters)

    world.wait_until(
        is_letter, ("the dead letter of the record that crashes processes"), limit_s=600.0
    )


# freeze -------------------------------------------------------------------------------------------
def freeze(world: World, seconds: float) -> None:
    """Freeze the first process and all below it. It believes then that it owns what it has lost."""
    run = world.job.running[0].run
    with world.fault(f"{run} frozen for {seconds:.0f} s", run=run), _frozen(world):
        world.wait(seconds)


def freeze_until_replaced(world: World) -> None:
    """Freeze the first process until another one has taken over, then resume it. It still has
    records that it does not own any more.
    """
    began_ns, run = time.monotonic_ns(), world.job.running[0].run
    with _frozen(world):
        second = world.job.start_task()
        world.wait_until(
            lambda: any(told.run == second for told in world.job.read()), f"a delivery by {second}"
        )
    world.wait(4.0)
    world.add_fault(f"{run} frozen until {second} had taken over", began_ns, run=run)


def stop_workers(world: World, seconds: float) -> None:
    """Stop Spark's Python workers. Their session with ZooKeeper lapses meanwhile, and they make
    another one: the job must not end.
    """
    began_ns, stopped = time.monotonic_ns(), _stop_workers(world)
    world.wait(seconds)
    resume(stopped)
    world.add_fault(f"{len(stopped)} Python workers stopped for {seconds:.0f} s", began_ns)
    world.work(50)


def wake_workers_late(world: World) -> None:
    """Stop the workers while they read, kill the driver without them, and resume them when its
    successor has closed their plan, and has not read their logs yet. Kill that one, too.
    """
    newest, struck, faults = world.newest_plan, 0, world.own_stream.fake.faults
    faults.add(slow(2.0), operation=READ, times=None)

    def is_read() -> bool:
        """Whether a task of a new plan reads: before that plan, its driver has read."""
        nonlocal struck
        if world.newest_plan == newest:
            struck = len(faults.struck)
            return False
        return len(faults.struck) > struck

    world.wait_until(is_read, "a read by a Python worker")
    workers = _stop_workers(world)
    faults.clear()
    others: list[psutil.Process] = []
    try:
        others = _orphan(workers, world)
        stop_at(world, "plan-closed")
        late = [one for one in workers if runs(one)]
        if not late:
            raise DrillError(
                "every stopped Python worker ended with its driver, so the drill cannot test a "
                "late worker"
            )
        published = _published(world)
        resume(late)
        world.wait(_AWAKE_S)
        if _published(world) != published:
            raise DrillError("a worker has published records of a closed batch")
        left = sum(runs(one) for one in late)
        world.notes.append(
            f"{len(late)} workers of the killed driver continued after their batch was closed; "
            f"{left} of these workers still ran {_AWAKE_S:.0f} s later"
        )
    finally:  # the job, which is ended, has lost them
        _kill_all([*workers, *others])
    world.kill(f"{KILL} at plan-closed")


# while the job is down ----------------------------------------------------------------------------
def while_down(world: World, name: str, act: Step, *, rewinds: bool = True) -> None:
    """Kill the driver and act. The next start ends this fault."""
    fault = world.job.kill(name)
    world.tell(f"{fault.run} was killed: {name}")
    newest = world.newest_plan
    act(world)
    world.down = fault._replace(rewinds=rewinds), newest


def remove(world: World, what: str, names: Callable[[World], Sequence[str]], at: str) -> None:
    """Remove nodes from ZooKeeper when a driver has come to a failpoint and was killed there."""
    stop_at(world, at)

    def act(_: World) -> None:
        for name in names(world):
            world.stored.remove(name)

    while_down(world, f"{what} removed at {at}", act)


def remove_running_state(world: World) -> None:
    """Remove the state of one shard while the job runs."""
    name = states_of(world)[0]
    with world.fault(f"{name} removed from the running job", rewinds=True):
        world.stored.remove(name)


def states_of(world: World) -> list[str]:
    return [f"{name}/state" for name in world.stored.names() if name.startswith("shardId-")]


def plan_of(world: World) -> str:
    """The newest one."""
    plans = world.stored.names("batches")
    if not plans:
        raise DrillError("the job has planned no batch")
    return f"batches/{max(plans, key=plan_number)}"


def report_of(world: World) -> list[str]:
    return [f"{plan_of(world)}/report"]


def task_log_of(world: World) -> list[str]:
    """The first log of the newest plan that was published."""
    plan = plan_of(world)
    logs = _logs_below(world, plan)
    if not logs:
        raise DrillError(f"no task of {plan} has published a log")
    return logs[:1]


def lose_application(world: World) -> None:
    """Remove all of the application. The job ends, and its error says what to do: a new checkpoint
    location.
    """
    fault = world.job.kill("the whole application removed from ZooKeeper")
    world.stored.remove()
    world.faults.append(fault._replace(ended_ns=time.monotonic_ns(), rewinds=True))
    began_ns, run = time.monotonic_ns(), world.start()
    _, words = world.wait_for_end("the loss of its progress")
    if "ZooKeeper has no state of" not in words:
        raise DrillError(
            f"{run} did not report that ZooKeeper has lost the application's state. The last "
            f"output of {run}: {words[-500:]}"
        )
    lose_checkpoint(world)
    world.add_fault(f"{run} refused to continue", began_ns, run=run, rewinds=True)


def lose_checkpoint(world: World) -> None:
    shutil.rmtree(world.directory / CHECKPOINT)


def copy_checkpoint(world: World, *, back: bool = False) -> None:
    """Spark then repeats the batch that an older one does not know as committed, as far as
    ZooKeeper has its plan.
    """
    _copy(world, [world.directory / CHECKPOINT], back=back)


def copy_zookeeper(world: World, *, back: bool = False) -> None:
    world.zookeeper.restart(lambda: _copy(world, world.zookeeper.data, back=back))
    if back:
        world.stored.connect_again(world.zookeeper.connect_string)


def _copy(world: World, directories: Sequence[Path], *, back: bool) -> None:
    """Into a backup, or `back` from it."""
    for number, directory in enumerate(directories):
        backup = world.directory / "backup" / str(number)
        source, target = (backup, directory) if back else (directory, backup)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)


# Kinesis ------------------------------------------------------------------------------------------
def strike(
    world: World,
    name: str,
    *faults: ServiceFault,
    operations: Sequence[str | None] = (READ,),
    seconds: float = 4.0,
) -> None:
    """Each of the faults in turn strikes all calls of each operation, for so many seconds in all.
    None: any operation.
    """
    plan = world.own_stream.fake.faults
    struck_before = len(plan.struck)
    with world.fault(name):
        for fault in faults:
            plan.clear()
            for operation in operations:
                plan.add(fault, operation=operation, times=None)
            world.wait(seconds / len(faults))
        plan.clear()
    world.notes.append(
        f"{len(plan.struck) - struck_before} requests to Kinesis met an injected fault"
    )


def reshard(world: World, rounds: int) -> None:
    """Splits and merges one after the other: children are closed before they are read."""
    with world.fault(f"{rounds} splits and {rounds} merges"):
        for _ in range(rounds):
            with _backlog(world):
                world.stream.split(max(open_shards(world), key=width).shard_id)
                _see_reshard(world)
                pairs = pairwise(open_shards(world))
                left, right = min(pairs, key=lambda pair: sum(map(width, pair)))
                world.stream.merge(left.shard_id, right.shard_id)
                _see_reshard(world)
            world.wait(_BETWEEN_S)


def scale(world: World, shards: int) -> None:
    """UpdateShardCount, as autoscaling does: when reads are behind."""
    with world.fault(f"UpdateShardCount to {shards}"), _backlog(world):
        world.stream.update_shard_count(shards)
        _see_reshard(world)
    world.wait(2 * _BETWEEN_S)


@contextmanager
def _backlog(world: World) -> Iterator[None]:
    """Where the service makes faults on demand, nothing is read meanwhile. So parents have a
    backlog when their children get records.
    """
    faults = None if world.stream.fake is None else world.stream.fake.faults
    if faults is not None:
        faults.add(throttle(), operation=READ, times=None)
    world.wait(_BETWEEN_S)
    yield
    if faults is not None:
        faults.clear()


def _see_reshard(world: World) -> None:
    world.samples.sample_shards()
    world.wait(_BETWEEN_S)


def open_shards(world: World) -> list[ShardInfo]:
    """In the order of their hash keys."""
    shards = (one for one in world.stream.shards() if not one.is_closed)
    return sorted(shards, key=lambda one: one.hash_key_range)


def width(shard: ShardInfo) -> int:
    """How many hash keys it has."""
    first, last = shard.hash_key_range
    return last - first + 1


# ZooKeeper ----------------------------------------------------------------------------------------
def kill_zookeeper(world: World) -> None:
    with world.fault("kill -9 of ZooKeeper"):
        world.zookeeper.kill()


def stop_zookeeper(world: World, seconds: float) -> None:
    with world.fault(f"ZooKeeper stopped for {seconds:.0f} s"):
        world.zookeeper.restart(lambda: world.wait(seconds))


def kill_leader(world: World) -> None:
    """Kill the leader of the ensemble. The others elect another one, and the job continues with
    them; the first one comes back.
    """
    with world.fault("kill -9 of ZooKeeper's leader"):
        world.zookeeper.kill_leader()
    first: dict[str, ShardState] | None = None

    def has_written() -> bool:
        """The others may not answer at once."""
        nonlocal first
        stored = world.stored.read()
        first = first or stored
        return stored is not None and stored != first

    # Much longer than a client takes to find another server.
    what = "a write by the job through the remaining ZooKeeper servers"
    world.wait_until(has_written, what, limit_s=30.0)
    world.zookeeper.start()


def cut_link(world: World, seconds: float, *, is_silent: bool = False) -> None:
    """Connections are closed and refused: the job sees errors. `is_silent`: nothing arrives, and
    nobody sees an error.
    """
    how, link = "cut off from ZooKeeper", world.zookeeper.link
    if is_silent:
        how = "without an answer from ZooKeeper"
    with world.fault(f"the job {how} for {seconds:g} s"):
        (link.stall if is_silent else link.cut)()
        world.wait(seconds)
        link.restore()


# clocks, disk, sinks ------------------------------------------------------------------------------
def set_service_clock(world: World, minutes: float) -> None:
    """Iterators expire at once, and records have arrived in the future."""
    with world.fault(f"Kinesis's clock set to {minutes:+.0f} min"):
        world.own_stream.clock.ahead_ms = round(minutes * _MINUTE_MS)
    world.wait(2 * _BETWEEN_S)


def set_job_clock(world: World, minutes: float) -> None:
    """While the job runs. Retries wait by this clock, so they may be early."""
    with world.fault(f"the job's clock set to {minutes:+.0f} min"):
        set_clock(world.directory, round(minutes * _MINUTE_MS))
    world.wait(2 * _BETWEEN_S)


def replace_with_clock(world: World, before: float, hours: float) -> None:
    """Kill the job, whose clock is `before` hours ahead, and start it with another clock: it finds
    times in the states that are hours ahead. None of its retries may wait for hours.
    """

    def is_stopped_with_retries() -> bool:
        """Stop the first process, and see whether the states have a record that has failed by its
        clock. If they do not, it continues. It has just begun, perhaps, and stored nothing yet.
        """
        members = _family(world)
        suspend(members)
        its_now_ms = time.time_ns() // 1_000_000 + before * _HOUR_MS
        states = (world.stored.read() or {}).values()
        failures_ms = [one.last_failure_ms for state in states for one in state.unresolved]
        if any(ms is not None and abs(ms - its_now_ms) < _HOUR_MS for ms in failures_ms):
            return True
        resume(members)
        return False

    world.wait_until(is_stopped_with_retries, "a stored retry")
    world.kill(KILL)
    set_clock(world.directory, round(hours * _HOUR_MS))
    world.tell(f"{world.start()}: its clock is {hours:+.0f} h ahead")


def fill_disk(world: World) -> None:
    """No write to a file succeeds in the driver's JVM, which writes the checkpoint location and the
    output: the limit of its files is lowered in the middle of a batch. A new job has its own limit,
    as when there is space again.
    """
    one = world.job.running[0]
    jvm = next(it for it in descendants(one.process.pid) if it.name() == "java")
    _, most = jvm.rlimit(resource.RLIMIT_FSIZE)
    _wait_for_published(world)
    with world.fault("no disk space for the driver's writes", run=one.run):
        jvm.rlimit(resource.RLIMIT_FSIZE, (0, most))
        world.wait_for_end("the full disk")


def fail_every_record(world: World) -> None:
    """An outage that the job outlasts. It lasts until a record has failed so often that it would be
    dead-lettered, if these failures counted as its attempts.
    """
    began_ns = time.monotonic_ns()

    def has_used_up_retries() -> bool:
        failed = (
            told.record
            for told in world.job.read()
            if told.step is Line.FAIL and told.at_ns > began_ns
        )
        return max(Counter(failed).values(), default=0) > RETRY_LIMIT

    with world.fault("an outage in which every record fails"), _outage(world, Outage.RECORDS):
        world.wait_until(has_used_up_retries, "a record that has used up its retries")


def fail_until_ended(world: World, outage: Outage, ends: int) -> None:
    """An outage that ends the job, again if it is started too early."""
    with _outage(world, outage):
        for _ in range(ends):
            run = world.start()
            with world.fault(f"an outage ({outage}) ended {run}", run=run):
                world.wait_for_end(f"the outage ({outage})")


@contextmanager
def _outage(world: World, outage: Outage) -> Iterator[None]:
    file = world.directory / OUTAGES / outage
    file.parent.mkdir(exist_ok=True)
    file.touch()
    yield
    file.unlink()


# plans and processes ------------------------------------------------------------------------------
def _wait_for_published(world: World) -> None:
    """Wait for a new plan, and until the first of its tasks has published what it reads."""
    newest = world.newest_plan
    world.wait_until(
        lambda: world.newest_plan > newest and bool(_logs_below(world, plan_of(world))),
        "a batch in which a task has published its first records",
    )


def _logs_below(world: World, plan: str) -> list[str]:
    """The nodes of what its tasks have published."""
    tasks = [f"{plan}/{task}" for task in world.stored.names(plan)]
    return [f"{task}/end" for task in tasks if "end" in world.stored.names(task)]


def _published(world: World) -> dict[str, bytes | None]:
    plans = [f"batches/{plan}" for plan in world.stored.names("batches")]
    logs = [log for plan in plans for log in _logs_below(world, plan)]
    return {log: world.stored.data(log) for log in logs}


def _command(one: psutil.Process) -> str:
    try:
        return " ".join(one.cmdline())
    except psutil.Error:
        return ""


def _is_connected(world: World, run: str) -> bool:
    """Whether the process, or one below it, has a connection to ZooKeeper."""
    pid = world.job.pids.get(run, 0)
    with suppress(psutil.Error):  # one of them has ended meanwhile
        return pid != 0 and any(
            getattr(link.raddr, "port", None) in world.zookeeper.ports
            for one in (psutil.Process(pid), *descendants(pid))
            for link in one.net_connections("tcp")
        )
    return False


def _below(world: World, is_wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    below = [one for pid in world.job.pids.values() for one in descendants(pid)]
    return [one for one in below if is_wanted(one)]


def _family(world: World) -> list[psutil.Process]:
    """The job's first process and all below it."""
    pid = world.job.running[0].process.pid
    return [psutil.Process(pid), *descendants(pid)]


@contextmanager
def _frozen(world: World) -> Iterator[None]:
    members = _family(world)
    suspend(members)
    yield
    resume(members)


def _kill_all(processes: Sequence[psutil.Process]) -> None:
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def _stop_workers(world: World) -> list[psutil.Process]:
    """All of them, as soon as there is one."""
    stopped: list[psutil.Process] = []

    def are_stopped() -> bool:
        for one in _below(world, is_worker):
            with suppress(psutil.NoSuchProcess):
                one.suspend()
                stopped.append(one)
        return bool(stopped)

    world.wait_until(are_stopped, "the stop of a Python worker")
    return stopped


def _orphan(workers: Sequence[psutil.Process], world: World) -> list[psutil.Process]:
    """Kill the driver, but not its workers, and stop what is between them. Returns that: it must
    outlive the workers, since Linux ends stopped processes whose group loses its last parent.
    """
    one = world.job.running[0]
    began_ns, driver = time.monotonic_ns(), psutil.Process(one.process.pid)
    driver.suspend()
    others = [each for each in descendants(driver.pid) if each not in workers]
    suspend(others)
    driver.kill()
    one.process.wait()
    fault = world.job.kill(f"kill -9 of the driver {one.run}; its paused workers stay")
    world.faults.append(fault._replace(began_ns=began_ns))
    return others
