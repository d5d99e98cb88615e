"""`kinesis-spout drill` without a drill: the list, and wrong usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.drills.catalog import DRILLS, STEPS
from tests.support.shell.command_line import call_cli

if TYPE_CHECKING:
    from pathlib import Path


def test_the_list_has_a_line_for_each_drill_and_one_for_all_steps(tmp_path: Path) -> None:
    ended = call_cli("drill", "--list", cwd=tmp_path)
    assert ended.returncode == 0
    lines = ended.stdout.splitlines()
    assert lines == [line.rstrip() for line in lines]
    sentences = {line.split()[0]: line for line in lines[1:]}
    for name, one in DRILLS.items():
        assert (name in sentences) is not bool(one.step)
        assert one.step or sentences[name].endswith(f"  {one.sentence}")
    assert sentences["kill-driver-at-<step>"].endswith(f" step <step>: {', '.join(STEPS)}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a drill"),
        (("kill-drivr",), "did you mean kill-driver"),
        (("kill-driver", "--spout", "--process", "m:f"), "for a Spark job"),
        (("kill-driver", "--region", "eu-west-1"), "--stream-prefix"),
        (("kill-driver", "--process", "nocolon"), "module:function"),
        (("kill-driver", "--payload", "no_such_module:f"), "no_such_module"),
    ],
)
def test_wrong_usage_starts_nothing_and_says_why(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    ended = call_cli("drill", *arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert says in " ".join(ended.stderr.replace("│", " ").split())
    assert not ended.stdout


def test_a_kinesis_that_does_not_answer_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing listens on port 1."""
    monkeypatch.setattr("kinesis_spout.drills.world.remote_stream._FIRST_ANSWER_S", 0.1)
    arguments = ("kill-driver", "--spout", "--localstack", "--endpoint-url", "http://127.0.0.1:1")
    ended = call_cli("drill", *arguments, cwd=tmp_path)
    assert ended.returncode == 3
    assert "http://127.0.0.1:1" in ended.stderr
