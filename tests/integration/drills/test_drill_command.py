"""A drill from the command line on the standalone spout: real processes, a real ZooKeeper, a
verdict. `tests/drills` has longer ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from kinesis_spout.service.permissions import Use
from tests.support.kinesis.recorded_calls import ServedCalls, allowed
from tests.support.kinesis.services import REGION
from tests.support.shell.command_line import ROOT, environment, run_cli

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake

_RESHARDS = """
import sys
from kinesis_spout.drills.consumer import aws_of
from kinesis_spout.drills.stream import DrillStream
aws = aws_of(region={region!r}, endpoint={endpoint!r}, is_local=True)
with DrillStream("trial-drill-1", aws, is_local=True) as stream:
    first = stream.shards()
    stream.split(first[0].shard_id)
    stream.merge(first[1].shard_id, first[2].shard_id)
    stream.update_shard_count(8)
"""
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "marked-secret-key",
    "AWS_SESSION_TOKEN": "marked-session-token",
    "KINESIS_SPOUT_ZOOKEEPER_PASSWORD": "marked-password",
}


def drilled(directory: Path, *arguments: str) -> dict[str, Any]:
    """The verdict of one drill that is in order. Nothing that it keeps has its user's secrets."""
    file = directory / "verdict.json"
    words = ("drill", *arguments, "--json", str(file), "--keep", "kept", "--html", "verdict.html")
    secrets: dict[str, Any] = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE"} | SECRETS
    ended = run_cli(*words, cwd=directory, **secrets)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    files = [one for one in directory.rglob("*") if one.is_file()]
    assert {"verdict.html", "history.json"} <= {one.name for one in files}
    said = (ended.stdout + ended.stderr).encode()
    assert [one for one in files if b"marked-" in one.read_bytes()] == []
    assert b"marked-" not in said
    (verdict,) = json.loads(file.read_bytes())
    assert ended.stdout.rstrip().endswith(f"{verdict['drill']}: ok")
    return dict(verdict)


def assert_kept(verdict: dict[str, Any]) -> None:
    assert verdict["ok"]
    assert verdict["broken"] == []
    assert verdict["records"] > 100
    assert verdict["acked"] + verdict["letters"] == verdict["records"]
    assert verdict["lost"] == verdict["unexplained"] == verdict["out_of_order"] == 0


def test_a_killed_spout_loses_nothing_on_a_stream_that_the_drill_makes_and_removes(
    fake_kinesis: ServedFake, tmp_path: Path
) -> None:
    """The verdict says so. With what other drills do to the shards, all calls are those of the
    policy of drills.
    """
    calls = ServedCalls(fake_kinesis)
    verdict = drilled(
        tmp_path,
        *("kill-driver", "--spout", "--efo", "--stream-prefix", "recorded"),
        *("--region", REGION, "--endpoint-url", fake_kinesis.endpoint_url),
    )
    assert_kept(verdict)
    assert [one["fault"] for one in verdict["faults"]] == ["kill -9 of the driver"]
    program = _RESHARDS.format(region=REGION, endpoint=fake_kinesis.endpoint_url)
    subprocess.run(
        [sys.executable, "-c", program], env=environment(), cwd=ROOT, check=True, timeout=60
    )
    # Without `--efo`, or where a shard cannot be subscribed to; the test of `consume` shows them.
    polling = {"kinesis:GetShardIterator", "kinesis:GetRecords"}
    assert calls.actions() | polling == allowed(Use.DRILL)
