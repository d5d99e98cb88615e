"""The local AWS: LocalStack's settings, its network access, the pinned versions, the seeded
records.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from localstack import runtime, seed
from localstack.loopback_runtime import is_loopback, refuse_other_hosts
from localstack.start import docker_answers

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = runtime.HERE.parent


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((runtime.HERE / "compose.yaml").read_text())[
        "services"
    ]
    return services


def test_a_users_own_variables_do_not_reach_localstack(tmp_path: Path) -> None:
    """KINESIS_ERROR_PROBABILITY, a proxy or credentials in the user's shell would change what the
    tests see.
    """
    shell = {
        "PATH": "/bin",
        "HOME": "/home/user",
        "KINESIS_ERROR_PROBABILITY": "0.5",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    told = runtime.environment(shell, root=tmp_path, port=4566, change_ms=20)
    assert told["PATH"] == "/bin"
    assert told["HOME"] == str(tmp_path)
    assert not {"KINESIS_ERROR_PROBABILITY", "AWS_SECRET_ACCESS_KEY"} & told.keys()
    assert (told["GATEWAY_LISTEN"], told["KINESIS_LATENCY"]) == ("127.0.0.1:4566", "20")


def test_the_emulator_lies_where_localstack_looks_for_the_pinned_version(tmp_path: Path) -> None:
    """Otherwise LocalStack would download it from npm at every start."""
    package = tmp_path / "installed" / "node_modules" / "kinesis-local"
    package.mkdir(parents=True)
    (package / "main.js").touch()
    runtime.place_emulator(tmp_path / "root", package)
    version = runtime.environment({}, root=tmp_path, port=1, change_ms=1)["KINESIS_MOCK_VERSION"]
    libraries = tmp_path / "root" / "var" / "lib" / "localstack" / "lib"
    assert (
        libraries / "kinesis-local" / version / "node_modules" / "kinesis-local" / "main.js"
    ).exists()


def test_a_runtime_that_is_not_set_up_is_an_error_that_says_what_to_run(tmp_path: Path) -> None:
    """Before anything is started or installed."""
    with (
        pytest.raises(runtime.LocalStackError, match="run make setup-test"),
        runtime.running(tmp_path / "log", directory=tmp_path),
    ):
        pytest.fail("nothing runs")


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        (b"localhost", True),
        (None, True),
        ("10.0.0.1", False),
        ("2001:db8::1", False),
        ("example.org", False),
        (b"example.org", False),
    ],
)
def test_only_this_machine_is_loopback(host: object, local: bool) -> None:  # noqa: FBT001  # a column of the table
    """A name that needs a look-up is not loopback: the look-up itself leaves the machine."""
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("socket.connect", (None, ("192.0.2.1", 443))),
        ("socket.sendto", (None, ("192.0.2.1", 53))),
        ("socket.getaddrinfo", ("example.org", 443, 0, 0, 0)),
    ],
)
def test_connections_that_leave_the_machine_are_refused(
    event: str, arguments: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """With an OSError, which network code expects, and a line in the log."""
    with pytest.raises(ConnectionRefusedError, match="confined to it"):
        refuse_other_hosts(event, arguments)
    assert capsys.readouterr().err.startswith(f"refused: {event}")


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("socket.connect", (None, ("127.0.0.1", 443))),
        ("socket.connect", (None, "/run/some.socket")),
        ("socket.getaddrinfo", ("localhost", 443, 0, 0, 0)),
        ("open", ("192.0.2.1", "r", 0)),
    ],
)
def test_connections_within_the_machine_are_allowed(
    event: str, arguments: tuple[object, ...]
) -> None:
    """Loopback, Unix sockets, and everything that is not a connection."""
    refuse_other_hosts(event, arguments)


def test_docker_and_pip_run_the_same_versions() -> None:
    """LocalStack's tag and lock file agree, and so do the emulator's variable and lock file."""
    localstack = compose()["localstack"]
    lock = (ROOT / "requirements" / "localstack.txt").read_text()
    (version,) = re.findall(r"^localstack-core==(\S+)", lock, re.MULTILINE)
    assert localstack["image"] == f"localstack/localstack:{version}"
    assert localstack["environment"]["KINESIS_MOCK_VERSION"] == runtime.emulator_version()
    installed = json.loads((runtime.HERE / "package-lock.json").read_text())["packages"][
        "node_modules/kinesis-local"
    ]["version"]
    assert installed == runtime.emulator_version()


def test_docker_and_pip_give_localstack_the_same_settings() -> None:
    """A setting that both use has one value."""
    told = runtime.environment({}, root=Path("/root"), port=4566, change_ms=10)
    in_docker = compose()["localstack"]["environment"]
    assert in_docker.items() <= told.items()


def test_the_containers_are_pinned_published_on_loopback_and_watched() -> None:
    """The ensemble consists of three servers that name each other."""
    services = compose()
    assert all(re.search(r":\d+\.\d+\.\d+$", service["image"]) for service in services.values())
    assert all(
        port.startswith("127.0.0.1:") for service in services.values() for port in service["ports"]
    )
    assert all(service["healthcheck"]["test"] for service in services.values())
    ensemble = [
        service["environment"] for name, service in services.items() if name.startswith("zookeeper")
    ]
    assert [server["ZOO_MY_ID"] for server in ensemble] == ["1", "2", "3"]
    assert {len(server["ZOO_SERVERS"].split()) for server in ensemble} == {3}


@pytest.mark.parametrize(
    ("codes", "answer"),
    [([0, 0], [True]), ([1, 0], [False]), ([0, 1], [False])],
    ids=["both", "no engine", "no compose"],
)
def test_docker_is_used_only_with_an_engine_and_compose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codes: list[int], answer: list[bool]
) -> None:
    """A client without an engine, as in many containers, is not Docker; no client is not either."""
    client = tmp_path / "docker"
    client.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    left = iter(codes)

    def run(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, next(left), stdout=b"1.0")

    assert [docker_answers(run)] == answer
    client.unlink()
    assert not docker_answers(run)


def test_seeded_records_come_in_pieces_that_the_service_takes() -> None:
    """At most 500 entries per request, each record once, the same ones every time."""
    pieces = list(seed.entries(0, 1_001))
    assert [len(piece) for piece in pieces] == [500, 500, 1]
    assert [json.loads(entry["Data"])["n"] for piece in pieces for entry in piece] == list(
        range(1_001)
    )
    assert pieces == list(seed.entries(0, 1_001))
