"""Where a user's function and our packages are found."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import ConfigError
from kinesis_spout.programs.modules import load_function

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "module_of_a_user.py").write_text("number = 5\ndef double(x):\n    return 2 * x\n")
    return "module_of_a_user"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("sys.exit(3)", "SystemExit: 3"),
        ("raise ValueError(chr(0xd83d))", r"ValueError: \ud83d"),
        ("raise GeneratorExit", "GeneratorExit"),
    ],
)
def test_a_module_that_raises_anything_is_refused_by_name(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a script that ends the process when it is imported."""
    name = f"module_{abs(hash(line))}"
    (tmp_path / f"{name}.py").write_text(f"import sys\n{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="the module cannot be imported") as caught:
        load_function(f"{name}:process")
    assert says in str(caught.value)


def test_a_function_is_found_from_the_current_directory(user_module: str) -> None:
    assert load_function(f"{user_module}:double")(4) == 8


@pytest.mark.parametrize("text", ["nocolon", ":double", "module:", ""])
def test_a_name_that_is_not_module_and_function_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="module:function"):
        load_function(text)


def test_what_is_missing_is_named(user_module: str) -> None:
    """The module, a function in it, or that it is none."""
    with pytest.raises(ConfigError, match="no_such_module"):
        load_function("no_such_module:double")
    for missing in ("half", "number"):
        with pytest.raises(ConfigError, match=f"has no function {missing}"):
            load_function(f"{user_module}:{missing}")
