"""A tracked query over a secured ZooKeeper, and its secrets: nothing that it writes shows them."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kinesis_spout.testing import error
from state.zookeeper.store import ZookeeperStateStore
from tests.support.kinesis import stub_kinesis
from tests.support.kinesis.services import ACCESS_KEY, create_stream, kinesis_client, serve
from tests.support.shell.command_line import run_cli
from tests.support.spark import secured_job
from tests.support.spark.job_process import LIMIT_S, ROOT, JobProcess
from tests.support.spark.source import (
    APPLICATION,
    READ_MODES,
    STREAM,
    ShiftedClock,
    StreamUnderTest,
)
from tests.support.state.secure_zookeeper import PASSWORD, USER
from tests.support.state.zookeeper import kazoo_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake
    from tests.support.kinesis.stub_kinesis import StubKinesis
    from tests.support.state.secure_zookeeper import SecureZookeeper

pytestmark = pytest.mark.spark
SECRETS = {
    "zookeeper_password": PASSWORD,
    "secret_access_key": "marked-secret-key",
    "session_token": "marked-session-token",
}
WRONG = "marked-wrong-password"
EXTERNAL_IDS = ("marked-external-id-1", "marked-external-id-2")
ROLE_SECRETS = ("secret-of-ROLE", "token-of-ROLE")
HIDDEN = (*SECRETS.values(), WRONG, *EXTERNAL_IDS, *ROLE_SECRETS)
SECOND_STREAM = "clicks"
COUNT = 20
# Python runs it in each process of the job: all loggers write all they have.
LOG_ALL = """\
import logging, os
logging.basicConfig(
    filename=os.path.join(os.environ["ALL_LOGS"], f"python-{os.getpid()}.log"),
    format="pid %(process)d %(name)s %(message)s",
    level=logging.DEBUG,
)
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What a job has left: files below `directory`, and the nodes of its chroot by path. What an
    operator's commands showed is in `directory`, too. `roles`: those that were assumed.
    """

    directory: Path
    roles: set[str]
    nodes: dict[str, bytes]
    acls: dict[str, set[str]]

    def found(self, *texts: str) -> set[str]:
        """Where one of the texts is, also as base64."""
        forms = {form for text in texts for form in forms_of(text.encode())}
        files = (file for file in self.directory.rglob("*") if file.is_file())
        return {
            place
            for place, data in (
                *((str(file.relative_to(self.directory)), file.read_bytes()) for file in files),
                *self.nodes.items(),
            )
            if any(form in data for form in forms)
        }


def forms_of(text: bytes) -> Iterator[bytes]:
    yield text
    for shift in range(3):  # the characters depend on what is before; the outer ones are cut off
        yield b64encode(b"\0" * shift + text)[4:-4]


@pytest.fixture(scope="module")
def broken() -> Iterator[ServedFake]:
    """A service that quotes a request's token where an executor reads; the driver looks first."""
    with serve() as fake, kinesis_client(fake.endpoint_url) as client:
        create_stream(client, STREAM)
        client.put_record(StreamName=STREAM, PartitionKey="key", Data=b"record 0")
        fake.model.faults.add(
            error("InvalidSignatureException", f"the token {SECRETS['session_token']} is not ..."),
            operation="GetRecords",
            skip=1,
            times=None,
        )
        yield fake


@pytest.fixture(scope="module")
def sts() -> Iterator[StubKinesis]:
    """Gives the same credentials for each role."""
    with stub_kinesis.serve(stub_kinesis.StubKinesis()) as stub:
        stub.answers("AssumeRole", stub_kinesis.role_answer("ROLE"))
        yield stub


@pytest.fixture(scope="module")
def ran(
    certificate_zookeeper: SecureZookeeper,
    broken: ServedFake,
    sts: StubKinesis,
    tmp_path_factory: pytest.TempPathFactory,
) -> Ran:
    """TLS with a client's certificate, and SASL."""
    home = tmp_path_factory.mktemp("secured")
    run, site = home / "run", home / "site"
    for directory in (run, run / "logs", site):
        directory.mkdir()
    site.joinpath("sitecustomize.py").write_text(LOG_ALL)
    with serve() as fake, kinesis_client(fake.endpoint_url) as client:
        create_stream(client, STREAM, shards=2)
        create_stream(client, SECOND_STREAM)
        client.put_record(StreamName=SECOND_STREAM, PartitionKey="key", Data=b"click")
        stream = StreamUnderTest(
            client, fake.endpoint_url, f"{certificate_zookeeper.tls}/query", ShiftedClock()
        )
        stream.put(COUNT)
        secrets = home / "secrets.json"
        secrets.write_text(json.dumps(sources(stream, certificate_zookeeper, broken)))
        job = JobProcess(
            {"secrets": str(secrets), "run": str(run)},
            run,
            env={
                "PYTHONPATH": f"{site}{os.pathsep}{ROOT}",
                "ALL_LOGS": str(run / "logs"),
                "AWS_ENDPOINT_URL_STS": sts.url,
            },
            program=secured_job.__file__,
        )
        job.start()
        assert job.wait(2 * LIMIT_S) == 0, job.tail()
        look(run / "commands", home, stream, certificate_zookeeper, sts)
    nodes, acls = nodes_of(certificate_zookeeper.plain, "/query")
    roles = {request.arguments["RoleArn"].rpartition("role%2F")[2] for request in sts.requests}
    return Ran(run, roles, nodes, acls)


def look(
    into: Path, home: Path, stream: StreamUnderTest, zookeeper: SecureZookeeper, sts: StubKinesis
) -> None:
    """What an operator's commands say of the applications. The password is in a file, the other
    secrets are in the environment.
    """
    into.mkdir()
    password = home / "password"
    password.write_text(PASSWORD)
    role = [
        *("--option", f"roleArn={role_of(1)}"),
        *("--option", f"roleExternalId={EXTERNAL_IDS[1]}"),
    ]
    place = ["--zookeeper", stream.zookeeper]
    kinesis = ["--endpoint-url", stream.endpoint_url, "--region", "eu-west-1"]
    for name, application, named, words, more in (
        ("status", "shown", STREAM, ["status", "--window", "1s", *kinesis], []),
        ("status-role", "several", SECOND_STREAM, ["status", "--window", "1s", *kinesis], role),
        ("explain", APPLICATION, STREAM, ["explain", "--window", "1s", *kinesis], []),
        ("ui", "shown", STREAM, ["ui", "--window", "1s", "--once", "page.html", *kinesis], []),
        ("doctor", "several", SECOND_STREAM, ["doctor", *kinesis], role),
        ("show", "broken", STREAM, ["checkpoint", "show"], []),
        ("export", APPLICATION, STREAM, ["checkpoint", "export", "--to", "export.json"], []),
    ):
        ended = run_cli(
            *(*words, "--application", application, "--stream", named, *place),
            *zookeeper.words(str(password)),
            *more,
            cwd=into,
            AWS_ACCESS_KEY_ID=ACCESS_KEY,
            AWS_SECRET_ACCESS_KEY=SECRETS["secret_access_key"],
            AWS_SESSION_TOKEN=SECRETS["session_token"],
            AWS_ENDPOINT_URL_STS=sts.url,
        )
        assert ended.returncode in {0, 1}, ended.stderr
        into.joinpath(f"{name}.txt").write_text(ended.stdout + ended.stderr)


def role_of(number: int) -> str:
    return f"arn:aws:iam::123456789012:role/reader-{number}"


def sources(
    stream: StreamUnderTest, zookeeper: SecureZookeeper, broken: ServedFake
) -> dict[str, Any]:
    """The fields of a source for each query of the job, of two for `several`."""
    good = stream.fields(
        **zookeeper.fields,
        **SECRETS,
    )
    return {
        "good": good,
        "several": [
            good
            | {"application": "several", "stream": name, "role_arn": role_of(number)}
            | {"role_external_id": EXTERNAL_IDS[number]}
            | READ_MODES[mode]
            for number, (name, mode) in enumerate(((STREAM, "polling"), (SECOND_STREAM, "efo")))
        ],
        "broken": good | {"application": "broken", "endpoint_url": broken.endpoint_url},
        "stranger": good | {"application": "stranger", "zookeeper_password": WRONG},
        "shown": good | {"application": "shown"},
    }


def nodes_of(server: str, root: str) -> tuple[dict[str, bytes], dict[str, set[str]]]:
    """The data of all nodes below the root, and who may use them, by path."""
    sasl = {"mechanism": "DIGEST-MD5", "username": USER, "password": PASSWORD}
    nodes, acls, left = {}, {}, [root]
    with kazoo_client(server, sasl_options=sasl) as client:
        while left:
            path = left.pop()
            nodes[path] = client.get(path)[0]
            acls[path] = {entry.id.scheme for entry in client.get_acls(path)[0]}
            left += [f"{path}/{child}" for child in client.get_children(path)]
    return nodes, acls


def test_a_tracked_query_reads_with_tls_a_certificate_and_sasl(
    ran: Ran, certificate_zookeeper: SecureZookeeper
) -> None:
    """Each record once, the poison as a letter; the nodes belong to the job's identities alone."""
    poison = secured_job.POISON.decode()
    wanted = [f"record {n}" for n in range(COUNT) if f"record {n}" != poison]
    for name, more in (("good", []), ("several", ["click"])):
        rows = pq.read_table(ran.directory / name / "rows").to_pylist()
        assert sorted(row["n"] for row in rows) == sorted([*wanted, *more])
        (letter,) = pq.read_table(ran.directory / name / "letters").to_pylist()
        assert letter["data"] == poison.encode()
    with closing(
        ZookeeperStateStore(
            f"{certificate_zookeeper.tls}/query",
            application=APPLICATION,
            stream=STREAM,
            security=certificate_zookeeper.tls_security(),
        )
    ) as store:
        states = [stored.state for stored in store.shard_states.load().values()]
    assert [state.unresolved for state in states] == [(), ()]
    assert {frozenset(schemes) for schemes in ran.acls.values()} == {frozenset({"sasl", "x509"})}


def test_what_is_searched_is_there(ran: Ran) -> None:
    """All that a job may write, with each worker's log of what it sent."""
    places = ran.found(STREAM)
    for name in ("events/", "logs/python-", "job-1.log"):
        assert any(place.startswith(name) for place in places), name
    for query in secured_job.READ:
        for name in ("checkpoint/offsets/0", "checkpoint/commits/0", "progress.json"):
            assert ran.directory.joinpath(query, name).exists(), name
        assert "kinesis_spout_" in ran.directory.joinpath(query, "metrics.txt").read_text()
    for application in (APPLICATION, "several", "broken"):
        root = f"/query/kinesis-spout/{application}/{STREAM}"
        assert {f"{root}/epoch", f"{root}/runs"} <= ran.nodes.keys()
    assert "pushedRecords" in ran.directory.joinpath("several", "progress.json").read_text()
    assert ran.roles == {"reader-0", "reader-1"}
    workers = {row["pid"] for row in pq.read_table(ran.directory / "good" / "rows").to_pylist()}
    logged = "".join(file.read_text() for file in ran.directory.glob("logs/*"))
    assert all(f"pid {worker} job Record(" in logged for worker in workers)
    assert any(f"pid {worker} urllib3.connectionpool" in logged for worker in workers)
    sentences = {
        "broken": "InvalidSignatureException",
        "stranger": "zookeeperPassword",
        "shown": "secret_access_key='***'",
    }
    for name, sentence in sentences.items():
        assert sentence in ran.directory.joinpath(f"{name}.error").read_text()
    shown = {file.name: file.read_text() for file in ran.directory.glob("commands/*")}
    for name in ("status.txt", "status-role.txt", "show.txt", "export.json", "page.html"):
        assert "shardId-0000" in shown[name], name
    assert "no process is running" in shown["explain.txt"]
    assert "this client can read and write" in shown["doctor.txt"]


def test_no_secret_is_in_what_a_job_writes(ran: Ran) -> None:
    """Event log, checkpoint, Spark's files and output, plans, progress, metrics, errors, nodes; nor
    in what an operator's commands and the page show.
    """
    assert ran.found(*HIDDEN) == set()
