"""The offline bundle: what its requirement files ask for, and what the project's wheel has."""

from __future__ import annotations

import hashlib
import zipfile
from typing import TYPE_CHECKING

import pytest

from scripts.bundle import EXTRAS, OF_SPARK, PROJECT, requirement_lines
from scripts.steps import SetUpError
from tests.architecture.source_tree import PACKAGES, ROOT

if TYPE_CHECKING:
    from pathlib import Path


def wheels(folder: Path, *names: str) -> list[Path]:
    paths = [folder / f"{name}-py3-none-any.whl" for name in names]
    for path in paths:
        path.write_bytes(path.name.encode())
    return paths


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_each_wheel_is_asked_for_by_version_and_hash(tmp_path: Path) -> None:
    """The project with its extras, so that pip compares what they bring with the list."""
    spout, boto = wheels(tmp_path, "kinesis_spout-0.1.0", "boto3-1.44.5")
    assert requirement_lines([spout, boto], with_spark=True) == [
        f"boto3==1.44.5 --hash=sha256:{digest(boto)}",
        f"kinesis-spout[{','.join(EXTRAS)}]==0.1.0 --hash=sha256:{digest(spout)}",
    ]


def test_a_machine_that_has_spark_is_not_asked_for_another(tmp_path: Path) -> None:
    found = wheels(tmp_path, "kinesis_spout-0.1.0", "pyspark-4.3.0", "py4j-0.10.9.9")
    (line,) = requirement_lines(found, with_spark=False)
    assert line.startswith("kinesis-spout[cbor,metrics]==0.1.0 ")
    assert len(requirement_lines(found, with_spark=True)) == 3


def test_a_file_that_is_not_a_wheel_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetUpError, match=r"x\.whl is not named as a wheel; remove it"):
        requirement_lines([tmp_path / "x.whl"], with_spark=True)


def test_the_lock_has_what_a_bundle_leaves_out(tmp_path: Path) -> None:
    """A name that changed would put a second Spark on a cluster."""
    lock = (ROOT / "requirements" / "deploy.txt").read_text("utf-8")
    assert all(f"\n{name}==" in lock for name in OF_SPARK)


def test_the_wheel_has_all_that_a_user_needs_and_nothing_else(wheel: Path) -> None:
    """Every file of the packages, their `py.typed`, the commands, the license."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        metadata = archive.read(f"{info}/METADATA").decode()
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if not name.startswith(info)} == files
    assert {f"{package}/py.typed" for package in PACKAGES} <= files
    assert f"{info}/licenses/LICENSE" in names
    assert "kinesis-spout = kinesis_spout.cli.entry:main" in entry_points
    assert all(f"{name} = spark_job." in entry_points for name in ("run", "demo", "redrive"))
    assert f"Name: {PROJECT}\n" in metadata
    assert all(f"Provides-Extra: {extra}\n" in metadata for extra in EXTRAS)
