"""What an owner is, which share it has, and what it tells of its runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest
from msgspec.structs import replace

from state.errors import InvalidStoreSettingError
from state.process import is_below, is_provably_dead, process_start, stopped_jvm, this_process
from state.store.ownership import OwnerInfo, TaskShare
from state.store.runs import MAX_RUNS, MAX_SENTENCE, SPARK, SPOUT, Run, RunLog, Throttle, sentence

if TYPE_CHECKING:
    from pathlib import Path

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux identifies processes reliably"
)
RUN = Run(
    owner=OwnerInfo(host="h", pid=1, since_ms=1), kind=SPARK, session_timeout_ms=1, shards=("a",)
)


@linux_only
@pytest.mark.parametrize(("name", "is_jvm"), [("java", True), ("supervisor", False)])
def test_the_jvm_of_a_driver_is_told_from_other_parents(
    tmp_path: Path, name: str, *, is_jvm: bool
) -> None:
    """`spark-submit` is a JVM that starts the driver: a process is below the driver if it is below
    that JVM; and where it is stopped, the driver runs and is stopped all the same.
    """
    (tmp_path / name).symlink_to("/bin/sh")
    script = "sleep 60 & echo $!; sleep 60 & echo $!; wait"
    with subprocess.Popen(
        [tmp_path / name, "-c", script], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        driver, worker = (int(parent.stdout.readline()) for _ in range(2))
        owner = msgspec.structs.replace(
            this_process(0), pid=worker, process_start=process_start(worker) or ""
        )
        assert is_below(owner, parent.pid)
        assert is_below(owner, os.getpid())
        assert is_below(owner, driver) is is_jvm
        assert stopped_jvm(owner) is None
        parent.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, parent.pid, os.WSTOPPED | os.WNOWAIT)
        assert stopped_jvm(owner) == (parent.pid if is_jvm else None)
        for pid in (driver, worker, parent.pid):
            os.kill(pid, signal.SIGKILL)


@linux_only
@pytest.mark.parametrize("identity", ["", "another-boot/pid:[1]/host"])
def test_a_process_elsewhere_is_never_provably_dead(identity: str) -> None:
    """One under another kernel or pid namespace, or one without a host identity. A process that has
    its pid again is not the holder, if it started at another time.
    """
    gone = msgspec.structs.replace(this_process(0), pid=2**22 + 1)
    assert is_provably_dead(gone)
    assert is_provably_dead(msgspec.structs.replace(this_process(0), process_start="1"))
    assert not is_provably_dead(this_process(0))
    assert not is_provably_dead(msgspec.structs.replace(gone, host_identity=identity))


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("two\n  lines", "two lines"),
        ("zk://ann:pass@zk:2181 is down", "zk://***@zk:2181 is down"),
        ("key AKIAABCDEFGHIJKLMNOP is wrong", "key *** is wrong"),
        ("secret=abc, password=x;", "secret=***, password=***;"),
        ("x" * 900, f"{'x' * (MAX_SENTENCE - 3)}..."),
    ],
)
def test_a_sentence_is_short_and_has_no_secret(said: str, kept: str) -> None:
    assert sentence(said) == kept


def test_a_log_stays_small_and_tells_of_the_newest_run() -> None:
    """The shards and what was throttled are of that run alone. The trigger is taken over by the
    next Spark run.
    """
    log = RunLog()
    for _ in range(3 * MAX_RUNS):
        log = replace(log, throttled={"a": Throttle(count=1, last_ms=1)}, trigger_ms=9).begun(RUN)
    assert len(log.runs) == MAX_RUNS
    assert {run.shards for run in log.runs[:-1]} == {()}
    assert (log.newest, log.throttled, log.trigger_ms) == (RUN, {}, 9)
    assert log.begun(replace(RUN, kind=SPOUT)).trigger_ms is None


def test_a_share_is_read_back_from_the_name_of_its_znode() -> None:
    """There is one way to write it."""
    assert TaskShare.parse(str(TaskShare(999, 1000))) == TaskShare(999, 1000)
    for text in ("", "1-of-", "-1-of-3", "01-of-3", "1-of-3 ", "lister"):
        with pytest.raises(InvalidStoreSettingError, match="use the form 1-of-3"):
            TaskShare.parse(text)


@pytest.mark.parametrize(
    ("index", "total", "rule"),
    [
        (0, 0, "the total of 0 tasks is not allowed; use 1 to 1000"),
        (0, 1001, "use 1 to 1000"),
        (3, 3, "task index 3 does not exist among 3 tasks; use an index from 0 to 2"),
        (-1, 3, "task index -1 does not exist"),
    ],
)
def test_a_share_that_is_not_possible_is_refused_with_the_rule(
    index: int, total: int, rule: str
) -> None:
    with pytest.raises(InvalidStoreSettingError, match=rule):
        TaskShare(index, total)
