"""`kinesis-spout drill` without a drill: the list, and wrong usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.shell.command_line import call_cli

if TYPE_CHECKING:
    from pathlib import Path


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
