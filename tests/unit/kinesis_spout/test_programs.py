"""The advice how to install an extra names its packages, as the checkout or wheel has them; and
where a user's function and our packages are found.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.errors import ConfigError
from kinesis_spout.programs import how_to_install, load_function

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = """
[project]
name = "{name}"
[project.optional-dependencies]
spark = ["pyspark>=4.2"]
local = ["pandas<3,>=2.2.2", "moto[server]>=5.1"]
"""
METADATA = """Metadata-Version: 2.1
Name: kinesis-spout
Version: 0.1.0
Requires-Dist: boto3>=1.36
Requires-Dist: pyspark>=4.2; extra == 'spark'
Requires-Dist: pandas<3,>=2.2.2 ; extra == "local"
Requires-Dist: moto[server]>=5.1; extra == 'local'
"""


@pytest.mark.parametrize("where", ["a checkout", "installed", "installed beside another project"])
def test_the_packages_of_the_extras_are_named(tmp_path: Path, where: str) -> None:
    """Never our name: the index has no package of ours under it, it would be somebody else's."""
    if where != "a checkout":
        info = tmp_path / "kinesis_spout-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(METADATA)
    if where != "installed":
        name = "kinesis-spout" if where == "a checkout" else "another"
        (tmp_path / "pyproject.toml").write_text(PROJECT.format(name=name))
    assert how_to_install("spark", "local", folder=tmp_path) == (
        "run pip install 'pyspark>=4.2' 'pandas<3,>=2.2.2' 'moto[server]>=5.1'"
    )
    assert how_to_install("local", folder=tmp_path).startswith("run pip install 'pandas<3,")


def test_where_nothing_is_known_the_extra_is_named(tmp_path: Path) -> None:
    """As in a zip that was shipped to executors."""
    assert how_to_install("spark", folder=tmp_path).startswith(
        "install kinesis-spout with its extra spark, from the checkout or wheel"
    )


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
