"""Installs missing packages with apt if the user may; otherwise says in one sentence what to
install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.steps import SetUpError, run_logged, say

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that the machine lacks, and the Debian packages that contain it.

    `alternatives`: apt installs the first one that it can.
    """

    what: str
    alternatives: tuple[tuple[str, ...], ...]


PIP = Need(what="pip 22.3 or newer", alternatives=(("python3-pip",),))
# Debian 12 has 17, Debian 13 has 21. Both run every Spark version that is supported here.
JAVA = Need(
    what="Java 17 or newer",
    alternatives=(
        ("openjdk-17-jre-headless",),
        ("openjdk-21-jre-headless",),
        ("default-jre-headless",),
    ),
)
APT_INSTALL = (
    "apt-get",
    "-o",
    "DPkg::Lock::Timeout=300",
    "install",
    "--yes",
    "--no-install-recommends",
)
NODE = Need(what="Node 18 or newer with npm", alternatives=(("nodejs", "npm"),))
# Debian 12 has one that is too old, and one for its browsers.
CARGO = Need(what="cargo 1.77 or newer", alternatives=(("cargo-web",), ("cargo",)))
CHROMIUM = Need(what="Chromium", alternatives=(("chromium",), ("chromium-browser",)))


def install(needs: Sequence[Need], *, log: Path) -> None:
    """Install the packages of all needs. Raises `SetUpError` when this user may not."""
    privilege = privilege_prefix()
    if privilege is None:
        raise SetUpError(sentence_for(needs))
    run_logged([*privilege, "apt-get", "update"], what="apt-get update", log=log)
    packages = [name for need in needs for name in chosen(need)]
    say(f"{' and '.join(need.what for need in needs)}: apt-get install {' '.join(packages)}")
    run_logged(
        [*privilege, "env", "DEBIAN_FRONTEND=noninteractive", *APT_INSTALL, *packages],
        what=f"apt-get install {' '.join(packages)}",
        log=log,
    )


def unpack(package: str, folder: Path, *, log: Path) -> None:
    """Unpack a package's files in a folder, which any user may, without installing it.

    Does nothing on a machine without apt, and leaves nothing behind when it fails.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return
    say(f"{package}: unpacked in {folder.name}, not installed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch, "made")
        try:
            run_logged(
                ["sh", "-c", f"cd '{scratch}' && apt-get download {package}"],
                what=f"apt-get download {package}",
                log=log,
            )
            (archive,) = Path(scratch).glob("*.deb")
            run_logged(
                ["dpkg-deb", "--extract", str(archive), str(made)],
                what=f"unpacking {package}",
                log=log,
            )
        except SetUpError as error:
            say(f"{error}; the tests that need it are skipped")
            return
        made.replace(folder)


def privilege_prefix() -> list[str] | None:
    """The command before apt-get: none for root, `sudo -n` where it needs no password.

    None: this user may not install packages.
    """
    if shutil.which("apt-get") is None:
        return None
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        return None
    probe = subprocess.run(
        ["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return ["sudo", "-n"] if probe.returncode == 0 else None


def chosen(need: Need) -> tuple[str, ...]:
    """The first alternative that apt can install.

    The last one when it can install none, so that apt itself reports the reason.
    """
    for packages in need.alternatives:
        # apt-cache show also succeeds for names that packages mention and none provides.
        tried = subprocess.run(
            ["apt-get", "--simulate", "install", *packages], capture_output=True, check=False
        )
        if tried.returncode == 0:
            return packages
    return need.alternatives[-1]


def sentence_for(needs: Sequence[Need]) -> str:
    """The missing needs and the command that installs them, in one sentence."""
    whats = ", no ".join(need.what for need in needs)
    packages = (
        " ".join(name for need in needs for name in chosen(need)) if shutil.which("apt-get") else ""
    )
    how = (
        f"run this as root: apt-get install {packages}"
        if packages
        else "install it with the system's package manager"
    )
    return (
        f"this machine has no {whats}, and this user may not install packages: {how}; "
        "then run make again"
    )
