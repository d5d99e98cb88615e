"""The advice how to install an extra fits the checkout or wheel that the program came from."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.programs.installation import how_to_install
from kinesis_spout.programs.modules import OUR_FOLDER
from tests.architecture.source_tree import PACKAGES, ROOT, sources

if TYPE_CHECKING:
    from pathlib import Path

REQUIRES = (
    "boto3>=1.36",
    "pyspark>=4.2; extra == 'spark'",
    'pandas<3,>=2.2.2 ; extra == "local"',
    "moto[server]>=5.1; extra == 'local'",
)


def installed(folder: Path, direct_url: dict[str, object] | None) -> Path:
    """A folder of installed packages with our distribution in it, installed as pip notes it."""
    info = folder / "kinesis_spout-0.1.0.dist-info"
    info.mkdir(parents=True)
    requires = "".join(f"Requires-Dist: {line}\n" for line in REQUIRES)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: kinesis-spout\nVersion: 0.1.0\n{requires}"
    )
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    return folder


def checkout(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "kinesis-spout"\n')
    return folder


def test_this_checkout_is_advised_to_those_who_run_it() -> None:
    """Also where another one is installed: PYTHONPATH decides which code runs."""
    advice = how_to_install("spark", "local")
    assert re.fullmatch(
        rf"run pip install (--editable )?'{re.escape(str(OUR_FOLDER))}\[spark,local\]'", advice
    )


def test_a_checkout_that_is_not_installed_is_advised_by_its_path(tmp_path: Path) -> None:
    ours = checkout(tmp_path / "my code")
    assert how_to_install("cbor", folder=ours) == f"run pip install '{ours}[cbor]'"


@pytest.mark.parametrize(("is_editable", "option"), [(True, "--editable "), (False, "")])
def test_a_checkout_is_installed_as_it_was_before(
    tmp_path: Path, option: str, *, is_editable: bool
) -> None:
    """A copy in the place of an editable checkout would hide later changes of its files."""
    ours = checkout(tmp_path / "kinesis spout")
    packages = installed(
        tmp_path / "packages", {"url": ours.as_uri(), "dir_info": {"editable": is_editable}}
    )
    folder = ours if is_editable else packages
    advice = how_to_install("spark", folder=folder, path=[str(packages)])
    assert advice == f"run pip install {option}'{ours}[spark]'"


def test_a_wheel_is_advised_by_its_path(tmp_path: Path) -> None:
    wheel = tmp_path / "dist" / "kinesis_spout-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    packages = installed(tmp_path / "packages", {"url": wheel.as_uri(), "archive_info": {}})
    advice = how_to_install("spark", folder=packages)
    assert advice == f"run pip install '{wheel}[spark]'"


@pytest.mark.parametrize(
    ("direct_url", "wanted"),
    [
        (
            {"url": "https://host.example/k.whl", "archive_info": {}},
            "https://host.example/k.whl",
        ),
        (
            {
                "url": "https://host.example/k.git",
                "vcs_info": {"vcs": "git", "commit_id": "0a1b", "requested_revision": "main"},
            },
            "git+https://host.example/k.git@0a1b",
        ),
    ],
)
def test_a_url_is_advised_as_pip_installed_it(
    tmp_path: Path, direct_url: dict[str, object], wanted: str
) -> None:
    packages = installed(tmp_path / "packages", direct_url)
    advice = how_to_install("spark", folder=packages)
    assert advice == f"run pip install 'kinesis-spout[spark] @ {wanted}'"


@pytest.mark.parametrize(
    "direct_url",
    [
        None,
        {"url": "file:///gone/kinesis_spout-0.1.0-py3-none-any.whl", "archive_info": {}},
        {"url": "file:///gone/checkout", "dir_info": {}},
        {"url": 7},
        {},
    ],
)
def test_without_checkout_and_wheel_the_extras_packages_are_advised(
    tmp_path: Path, direct_url: dict[str, object] | None
) -> None:
    """The index has no package of ours under our name: it would be somebody else's."""
    packages = installed(tmp_path / "packages", direct_url)
    assert how_to_install("spark", folder=packages) == "run pip install 'pyspark>=4.2'"
    assert how_to_install("spark", "local", folder=packages) == (
        "run pip install 'pyspark>=4.2' 'pandas<3,>=2.2.2' 'moto[server]>=5.1'"
    )


def test_code_without_metadata_is_advised_in_words(tmp_path: Path) -> None:
    """As where the packages were copied, or travel in a zip."""
    assert how_to_install("spark", "local", folder=tmp_path) == (
        "install kinesis-spout with its extras spark and local, from the checkout or wheel that "
        "it came from"
    )
    assert how_to_install("spark", folder=tmp_path).startswith(
        "install kinesis-spout with its extra spark, from"
    )


def test_no_text_advises_to_install_our_name_from_an_index() -> None:
    """Whatever the index holds under our name is not ours."""
    assert [file.name for file in sources(ROOT, *PACKAGES) if "kinesis-spout[" in file.text] == []
