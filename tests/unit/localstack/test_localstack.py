"""The local AWS: its network access and its pinned versions."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from localstack import runtime
from localstack.loopback_runtime import refuse_other_hosts

if TYPE_CHECKING:
    from pathlib import Path

ROOT = runtime.HERE.parent


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((runtime.HERE / "compose.yaml").read_text())[
        "services"
    ]
    return services


def test_a_runtime_that_is_not_set_up_is_an_error_that_says_what_to_run(tmp_path: Path) -> None:
    """Before anything is started or installed."""
    with (
        pytest.raises(runtime.LocalStackError, match="run make setup-test"),
        runtime.running(tmp_path / "log", directory=tmp_path),
    ):
        pytest.fail("nothing runs")


@pytest.mark.parametrize(
    ("event", "arguments", "leaves"),
    [
        ("socket.connect", (None, ("192.0.2.1", 443)), True),
        ("socket.sendto", (None, ("192.0.2.1", 53)), True),
        ("socket.getaddrinfo", ("example.org", 443, 0, 0, 0), True),
        ("socket.connect", (None, ("2001:db8::1", 443, 0, 0)), True),
        ("socket.connect", (None, ("127.1.2.3", 443)), False),
        ("socket.connect", (None, ("::1", 443, 0, 0)), False),
        ("socket.connect", (None, "/run/some.socket"), False),
        ("socket.getaddrinfo", (b"localhost", 443, 0, 0, 0), False),
        ("open", ("192.0.2.1", "r", 0), False),
    ],
)
def test_only_connections_that_leave_the_machine_are_refused(
    event: str, arguments: tuple[object, ...], *, leaves: bool
) -> None:
    """A name that needs a look-up leaves it: the look-up itself does."""
    refused = pytest.raises(ConnectionRefusedError, match="may only reach this machine")
    with refused if leaves else nullcontext():
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
