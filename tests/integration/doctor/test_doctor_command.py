"""`kinesis-spout doctor` as users run it: its screen, its JSON, its exit codes; never a secret."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from kinesis_spout.clock import SystemClock
from kinesis_spout.doctor.examination import PROGRAM
from kinesis_spout.testing import error
from state.process import this_process
from state.store.identity import StreamIdentity
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis.services import ACCESS_KEY, REGION
from tests.support.shell.command_line import call_cli, running_cli
from tests.support.state.secure_zookeeper import PASSWORD
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.support.kinesis.services import ServedFake
    from tests.support.state.secure_zookeeper import SecureZookeeper

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "marked-secret-key",
    "AWS_SESSION_TOKEN": "marked-session-token",
}


def doctor(folder: Path, *arguments: str, **env: str) -> CompletedProcess[str]:
    variables = {"AWS_ACCESS_KEY_ID": ACCESS_KEY} | SECRETS | env
    ended = call_cli(*arguments, cwd=folder, stdin=b"", **variables)
    said = ended.stdout + ended.stderr
    assert "marked-" not in said
    assert ACCESS_KEY not in said
    return ended


def place(orders: ServedFake, zookeeper: str, stream: str = "orders") -> list[str]:
    kinesis = ["--stream", stream, "--endpoint-url", orders.endpoint_url, "--region", REGION]
    return [*kinesis, "--zookeeper", zookeeper, "--application", "etl"]


def findings(ended: CompletedProcess[str]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one["area"], one["about"]): one for one in json.loads(ended.stdout)["findings"]}


def test_all_is_there(orders: ServedFake, zookeeper_chroot: str, tmp_path: Path) -> None:
    """Warnings keep the exit code 0: these credentials are temporary, and nothing renews them."""
    ended = doctor(tmp_path, "doctor", "--json", *place(orders, zookeeper_chroot))
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["ok"]
    assert json.loads(ended.stdout)["counts"]["failed"] == 0
    found = findings(ended)
    assert found["Kinesis", "credentials"]["verdict"] == "warning"
    assert found["ZooKeeper", "ZooKeeper access"]["verdict"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_failed_check_exits_with_1_and_shows_no_secret(
    orders: ServedFake, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """Neither on the screen, nor in what --debug adds. The service quotes a request's headers."""
    quoted = f"credential {ACCESS_KEY} {SECRETS['AWS_SESSION_TOKEN']}"
    orders.model.faults.add(error("InvalidSignatureException", quoted), times=None)
    ended = doctor(tmp_path, "--debug", "doctor", *place(orders, zookeeper_chroot))
    assert ended.returncode == 1
    assert "InvalidSignatureException" in ended.stdout
    assert "the identity check did not pass" in ended.stdout
    assert "failed" in ended.stdout


def test_the_state_of_a_deleted_stream_is_a_failure(
    orders: ServedFake, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """As after a local Kinesis was started again. Before a first run there is no state."""
    before = doctor(tmp_path, "doctor", "--json", *place(orders, zookeeper_chroot))
    assert "etl has no stored state yet" in findings(before)["ZooKeeper", "state"]["sentence"]
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
    with closing(
        ZookeeperStateStore(zookeeper_chroot, application="etl", stream="orders")
    ) as store:
        store.ownership.acquire(this_process(SystemClock().now_ms()), timeout_s=10)
        store.identity.bind(StreamIdentity(arn=arn, name="orders", created_ms=1_700_000_000_000))
    after = doctor(tmp_path, "doctor", "--json", *place(orders, zookeeper_chroot))
    assert after.returncode == 1
    found = findings(after)["ZooKeeper", "state"]
    assert found["verdict"] == "failed"
    assert f"belongs to stream {arn}, not to stream arn:aws:kinesis:" in found["sentence"]
    assert "kinesis-spout reset" in found["sentence"]


def test_without_a_stream_or_a_zookeeper_this_machine_is_checked(tmp_path: Path) -> None:
    ended = doctor(tmp_path, "doctor", "--json")
    assert ended.returncode == 0
    assert {area for area, _ in findings(ended)} == {"this machine"}


def test_a_secured_zookeeper_that_refuses_is_a_failure_without_the_password(
    orders: ServedFake, certificate_zookeeper: SecureZookeeper, tmp_path: Path
) -> None:
    """A wrong password; no certificate where the server wants one."""
    tmp_path.joinpath("password").write_text("marked-wrong-password")
    address = f"{certificate_zookeeper.tls}/doctor"
    options = certificate_zookeeper.words("password")
    wrong = doctor(tmp_path, "--debug", "doctor", *place(orders, address), *options)
    assert wrong.returncode == 1
    assert "does not accept" in wrong.stdout
    assert "zookeeperPasswordFile" in wrong.stdout
    without = doctor(tmp_path, "doctor", "--json", *place(orders, address), *options[:4])
    assert without.returncode == 1
    found = findings(without)
    assert "zookeeperCertFile" in found["ZooKeeper", "ZooKeeper session"]["sentence"]
    assert found["ZooKeeper", "ZooKeeper access"]["verdict"] == "not tried"


@pytest.mark.spark
def test_executors_are_looked_at(
    orders: ServedFake, certificate_zookeeper: SecureZookeeper, tmp_path: Path
) -> None:
    """In processes of their own, with what they reach, and this machine with the options of a job:
    the ZooKeeper wants a certificate. The secrets go there in no argument: the password's file is
    not where executors run.
    """
    tmp_path.joinpath("password").write_text(PASSWORD)
    cluster = ["--master", "local-cluster[1,1,1024]", "--conf", "spark.executor.memory=1g"]
    for option in ("spark.driver.host", "spark.driver.bindAddress"):
        cluster += ["--conf", f"{option}=127.0.0.1"]
    ended = doctor(
        tmp_path,
        "doctor",
        "--json",
        *place(orders, f"{certificate_zookeeper.tls}/doctor"),
        *certificate_zookeeper.words("password"),
        *cluster,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    assert ended.returncode == 0, ended.stdout
    found = findings(ended)
    assert "on 1 executor" in found["executors", "Python"]["sentence"]
    for about in ("kinesis-spout", "packages", "identity", "ZooKeeper access"):
        assert found["executors", about]["verdict"] == "ok"
    for about in ("ZooKeeper session", "ZooKeeper latency", "ZooKeeper access", "state"):
        assert found["ZooKeeper", about]["verdict"] == "ok", about


@pytest.mark.spark
def test_ctrl_c_ends_the_job_that_looks_at_executors(tmp_path: Path) -> None:
    """Else its Spark application would keep the executors that it was given."""
    jobs: list[psutil.Process] = []

    def has_job() -> bool:
        running = psutil.process_iter(["ppid", "cmdline"])
        children = [one for one in running if one.info["ppid"] == process.pid]
        jobs[:] = [one for one in children if PROGRAM in (one.info["cmdline"] or ())]
        return bool(jobs)

    quiet = subprocess.DEVNULL
    with socket.create_server(("127.0.0.1", 0)) as silent:
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        command = ("doctor", "--master", master)
        with running_cli(*command, cwd=tmp_path, stdout=quiet, stderr=quiet) as process:
            wait_until(has_job)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        wait_until(lambda: _has_ended(jobs[0]), timeout_s=10)


def _has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
