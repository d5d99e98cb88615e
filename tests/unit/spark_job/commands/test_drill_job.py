"""A function of a user in a drill."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from spark_job.commands.drill_job import users_function


def asks(batch: Any, scratch: str = "/data/real") -> tuple[Any, str]:
    return batch, scratch


@pytest.mark.parametrize(
    ("function", "given"), [(asks, ("batch", "/drill")), (lambda batch: batch, "batch")]
)
def test_a_function_gets_the_scratch_directory_where_a_parameter_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, function: Any, given: object
) -> None:
    """In place of its default, which is its real sink. Any other function is called as it is."""
    monkeypatch.setitem(sys.modules, "users", SimpleNamespace(process=function))
    called: Any = users_function("users:process", "/drill")
    assert called("batch") == given
