"""Makes a folder from which kinesis-spout is installed without a network.

    python3 -m scripts.bundle [--to dist/bundle]

The folder has a wheel of the project, one of its native decoder where there is a Rust to build it,
and one of each package of `requirements/deploy.txt`. pip compares each download with its hash
there, and builds wheels of packages that have none (PySpark). The folder's requirement files name
each wheel with its hash:

- `requirements.txt`: everything.
- `requirements-cluster.txt`: the same without Spark, for machines that have one.

The wheels are for the Python and the platform that run this script.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import native_wheel
from scripts.steps import SetUpError, run_logged
from scripts.virtual_environment import PIP_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "kinesis-spout"
EXTRAS = ("spark", "cbor", "metrics")
# What the extra `spark` brings and a machine with Spark has already.
OF_SPARK = frozenset({"pyspark", "py4j"})
_WHEEL = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)(?:-[0-9][^-]*)?-[^-]+-[^-]+-[^-]+\.whl")


def requirement_lines(wheels: Iterable[Path], *, with_spark: bool) -> list[str]:
    """One line for each wheel: its name, version and SHA-256, in the order of their names."""
    extras = [extra for extra in EXTRAS if with_spark or extra != "spark"]
    lines = []
    for wheel in wheels:
        match = _WHEEL.fullmatch(wheel.name)
        if match is None:
            raise SetUpError(f"{wheel} is not named as a wheel; remove it")
        name = match["name"].replace("_", "-").lower()
        if name in OF_SPARK and not with_spark:
            continue
        asked = f"{name}[{','.join(extras)}]" if name == PROJECT else name
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        lines.append(f"{asked}=={match['version']} --hash=sha256:{digest}")
    return sorted(lines)


def make(folder: Path, log: Path) -> None:
    """Make the folder, in place of an older one. Raises `SetUpError`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    run_logged(build, what="building the project's wheel", log=log)
    native_wheel.build(Path(sys.executable), ROOT, folder, log)
    wheels = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    lock = ["--require-hashes", "--requirement", str(ROOT / "requirements" / "deploy.txt")]
    run_logged(
        [*wheels, *lock, "--wheel-dir", str(folder)],
        what="getting the packages",
        log=log,
        env=PIP_SETTINGS,
    )
    found = list(folder.glob("*.whl"))
    for name, with_spark in {
        "requirements.txt": True,
        "requirements-cluster.txt": False,
    }.items():
        lines = requirement_lines(found, with_spark=with_spark)
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Make the bundle. Returns 1 after one sentence when it fails."""
    parser = argparse.ArgumentParser(prog="bundle", description="Make an offline bundle.")
    parser.add_argument("--to", type=Path, default=ROOT / "dist" / "bundle", help="the folder")
    folder: Path = parser.parse_args(arguments).to
    try:
        make(folder, ROOT / "set-up.log")
    except SetUpError as error:
        sys.stderr.write(f"bundle: {error}.\n")
        return 1
    size = sum(path.stat().st_size for path in folder.glob("*.whl")) // 2**20
    sys.stdout.write(f"{folder}: {len(list(folder.glob('*.whl')))} wheels, {size} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
