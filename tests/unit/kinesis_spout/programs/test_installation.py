"""The advice how to install an extra names its packages, as the checkout or wheel has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kinesis_spout.programs.installation import how_to_install
from tests.architecture.source_tree import PACKAGES, ROOT, sources

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


def test_no_text_advises_to_install_our_name_from_an_index() -> None:
    """Whatever the index holds under our name is not ours."""
    assert [file.name for file in sources(ROOT, *PACKAGES) if "kinesis-spout[" in file.text] == []
