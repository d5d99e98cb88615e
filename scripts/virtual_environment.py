"""A virtual environment with exactly the packages of a lock file.

It is made again when its lock file or its interpreter has changed. Debian's python3 has no
ensurepip (python3-venv has it), so any pip that is found installs the pinned pip into the
environment, and that pip installs the rest. Every download has a hash in a lock file: build
isolation, which would fetch build tools by itself, is off, and build.txt locks the build tools.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from scripts import native_wheel
from scripts.steps import SetUpError, run_logged, say

OLDEST_PIP = (22, 3)  # the first with `pip --python`
PIP_SETTINGS = {
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_USER": "0",
    "PIP_ROOT_USER_ACTION": "ignore",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The folder of the environment, and the files that it is made from.

    The project is installed editable, so its code may change freely; its native decoder is built
    again when that has changed. `with_project` False: only the lock file's packages, for a tool
    that runs beside the project. `size`: a hint for the user on the size of the download.
    `added_lock`: a second lock file, whose packages are added to the first's; they stay when the
    environment is next wanted without it. `instead`: requirements that replace packages of the
    lock, such as an older PySpark.
    """

    root: Path
    folder: Path
    lock: Path
    log: Path
    with_project: bool = True
    size: str = "Spark is 450 MB: takes minutes"
    added_lock: Path | None = None
    instead: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def _stamp(self) -> Path:
        return self.folder / "set-up.json"

    def wanted(self) -> dict[str, str]:
        """Digests of what the environment should be made from: packages, and the project's
        metadata.
        """
        # Not sys.version: a security update of Python needs no new packages, and must not remove
        # them during a run.
        interpreter = (
            f"{sysconfig.get_config_var('SOABI')} {sys.base_prefix} {self.folder}".encode()
        )
        packages = _digest(
            interpreter,
            self._build_lock.read_bytes(),
            self.lock.read_bytes(),
            *(requirement.encode() for requirement in self.instead),
        )
        project = (
            {"project": _digest((self.root / "pyproject.toml").read_bytes())}
            if self.with_project
            else {}
        )
        added = (
            {self.added_lock.name: _digest(self.added_lock.read_bytes())} if self.added_lock else {}
        )
        built = native_wheel.digest(self.root) if self.with_project else None
        native = {"native": built} if built else {}
        return {"packages": packages, **project, **native, **added}

    def stamped(self) -> dict[str, str]:
        """Digests of what it was made from; empty when it is not finished."""
        try:
            stamp: dict[str, str] = json.loads(self._stamp.read_text())
        except (OSError, ValueError):
            return {}
        return stamp

    def write_stamp(self, stamp: dict[str, str]) -> None:
        """Store what the environment is made from so far."""
        self._stamp.write_text(json.dumps(stamp))

    def is_ready(self) -> bool:
        return self.wanted().items() <= self.stamped().items()

    def needs_new_packages(self) -> bool:
        return self.stamped().get("packages") != self.wanted()["packages"]

    def make(self) -> None:
        """Make the environment as wanted. One that was left unfinished is made from scratch. Raises
        `SetUpError`.
        """
        wanted = self.wanted()
        if self.needs_new_packages():
            self._install_packages()
            self.write_stamp({"packages": wanted["packages"]})
        stamped = self.stamped()
        if self.added_lock is not None and stamped.get(self.added_lock.name) != wanted.get(
            self.added_lock.name
        ):
            self._install_added(self.added_lock)
        if self.with_project and stamped.get("project") != wanted["project"]:
            say("kinesis-spout itself, editable")
            self._pip(
                "--no-deps",
                "--no-build-isolation",
                "--editable",
                str(self.root),
                what="installing the project",
            )
        if self.with_project and stamped.get("native") != wanted.get("native", ""):
            built = self._install_native()
            wanted = wanted if built else {key: wanted[key] for key in wanted if key != "native"}
        self.write_stamp(stamped | wanted)

    def _install_native(self) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            wheel = native_wheel.build(self.python, self.root, Path(folder), self.log)
            if wheel is not None:
                options = ("--no-deps", "--no-index", "--force-reinstall")  # its version stays
                self._pip(*options, str(wheel), what="installing the native decoder")
        return wheel is not None

    def take_pyspark_from_its_folder(self) -> None:
        """Remove Spark's zip of pyspark where the package lies beside it.

        Spark puts the zip first on the path of each Python that it starts, and no compiled file is
        kept for one: a query's planning process took 1 s of CPU longer to start.
        """
        for archive in self.folder.glob("lib/python*/site-packages/pyspark/python/lib/pyspark.zip"):
            archive.unlink()

    def _install_packages(self) -> None:
        if self.folder.is_symlink():  # venv would empty what it leads to, and refuse the link
            raise SetUpError(
                f"{self.folder} is a link, and what it leads to is not made for this checkout; "
                "remove the link"
            )
        version = ".".join(map(str, sys.version_info[:3]))
        say(f"{self.folder.relative_to(self.root)} with Python {version}")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        venv = [sys.executable, "-m", "venv", "--clear", "--without-pip", str(self.folder)]
        run_logged(venv, what="making the virtual environment", log=self.log)
        if has_ensurepip():
            run_logged([str(self.python), "-m", "ensurepip"], what="unpacking pip", log=self.log)
        else:
            command = [
                *(find_pip() or ["pip"]),
                "--python",
                str(self.python),
                "install",
                "--require-hashes",
                "--requirement",
            ]
            run_logged(
                [*command, str(self._build_lock)],
                what="installing pip",
                log=self.log,
                env=PIP_SETTINGS,
            )
        self._pip(
            "--no-deps",
            "--require-hashes",
            "--requirement",
            str(self._build_lock),
            what="installing the build tools",
        )
        count = len(re.findall(r"^[a-z0-9].*==", self.lock.read_text(), re.MULTILINE))
        say(f"{count} packages of {self.lock.relative_to(self.root)} ({self.size})")
        options = [
            "--no-deps",
            "--no-build-isolation",
            "--require-hashes",
            "--requirement",
            str(self.lock),
        ]
        self._pip(*options, what="installing the packages")
        if self.instead:
            say(f"instead: {', '.join(self.instead)}")
            self._pip(
                "--no-deps",
                "--no-build-isolation",
                *self.instead,
                what=f"installing {', '.join(self.instead)}",
            )
        self._check_packages()

    def _install_added(self, lock: Path) -> None:
        say(f"packages of {lock.relative_to(self.root)}")
        self._pip(
            "--no-deps",
            "--no-build-isolation",
            "--require-hashes",
            "--requirement",
            str(lock),
            what=f"installing the packages of {lock.name}",
        )
        self._check_packages()

    def _check_packages(self) -> None:
        run_logged(
            [str(self.python), "-m", "pip", "check"],
            what="the check of the packages",
            log=self.log,
            env=PIP_SETTINGS,
        )

    @property
    def _build_lock(self) -> Path:
        return self.root / "requirements" / "build.txt"

    def _pip(self, *arguments: str, what: str) -> None:
        run_logged(
            [str(self.python), "-m", "pip", "install", *arguments],
            what=what,
            log=self.log,
            env=PIP_SETTINGS,
        )


def has_ensurepip() -> bool:
    """Whether this Python can unpack a pip of its own. Debian's cannot without python3-venv."""
    return importlib.util.find_spec("ensurepip") is not None


def find_pip() -> list[str] | None:
    """A pip that can install into another environment: this Python's, then one in PATH."""
    commands = [
        [sys.executable, "-m", "pip"],
        *([found] for name in ("pip3", "pip") if (found := shutil.which(name))),
    ]
    return next(
        (command for command in commands if (pip_version(command) or (0, 0)) >= OLDEST_PIP), None
    )


def pip_version(command: list[str]) -> tuple[int, int] | None:
    """Major and minor version, or None when there is no such pip."""
    try:
        said = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    except OSError:
        return None
    version = re.match(r"pip (\d+)\.(\d+)", said)
    return (int(version[1]), int(version[2])) if version else None


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
