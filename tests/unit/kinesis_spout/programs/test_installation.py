"""The advice how to install an extra fits the checkout or wheel that the program came from."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.programs.installation import OUR_FOLDER, how_to_install
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


GIT = {"vcs": "git", "commit_id": "0a1b", "requested_revision": "main"}
BARE = "'pyspark>=4.2'"


@pytest.mark.parametrize(
    ("direct_url", "wanted"),
    [
        (
            {"url": "file:///FOLDER/code dir", "dir_info": {"editable": True}},
            "--editable '/FOLDER/code dir[spark]'",
        ),
        (
            {"url": "file:///FOLDER/code dir", "dir_info": {"editable": False}},
            "'/FOLDER/code dir[spark]'",
        ),
        ({"url": "file:///FOLDER/k.whl", "archive_info": {}}, "'/FOLDER/k.whl[spark]'"),
        (
            {"url": "https://host.example/k.whl", "archive_info": {}},
            "'kinesis-spout[spark] @ https://host.example/k.whl'",
        ),
        (
            {"url": "https://host.example/k.git", "vcs_info": GIT},
            "'kinesis-spout[spark] @ git+https://host.example/k.git@0a1b'",
        ),
        (None, BARE),
        ({"url": "file:///gone/kinesis_spout-0.1.0-py3-none-any.whl", "archive_info": {}}, BARE),
    ],
)
def test_it_is_installed_again_as_it_was(
    tmp_path: Path, direct_url: dict[str, Any] | None, wanted: str
) -> None:
    """A copy in the place of an editable checkout would hide later changes of its files. Without
    checkout and wheel the extra's packages are advised: the index has no package of ours under our
    name, it would be somebody else's.
    """
    ours = checkout(tmp_path / "code dir")
    (tmp_path / "k.whl").touch()
    here = str(tmp_path).strip("/")
    if direct_url and isinstance(direct_url.get("url"), str):
        url = direct_url["url"].replace("FOLDER", here).replace(" ", "%20")
        direct_url = direct_url | {"url": url}
    packages = installed(tmp_path / "packages", direct_url)
    is_editable = "--editable" in wanted
    found = how_to_install("spark", folder=ours if is_editable else packages, path=[str(packages)])
    assert found == f"run pip install {wanted.replace('FOLDER', here)}"


def test_no_text_advises_to_install_our_name_from_an_index() -> None:
    """Whatever the index holds under our name is not ours."""
    assert [file.name for file in sources(ROOT, *PACKAGES) if "kinesis-spout[" in file.text] == []
