"""Builds the wheel of `native/`, the page decoder in Rust, where there is a Rust.

Nothing needs the wheel. Where it cannot be built, one line says so.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING

from scripts.debian_packages import CARGO, chosen
from scripts.runtimes import find_cargo
from scripts.steps import SetUpError, run_logged, say

if TYPE_CHECKING:
    from pathlib import Path

_SLOWER = "so records are decoded in Python, which takes more CPU"


def digest(root: Path) -> str | None:
    """Of what the wheel is built from; None where it cannot be built."""
    folder = root / "native"
    if not folder.is_dir() or find_cargo(os.environ) is None:
        return None
    sources = [*folder.glob("*.toml"), folder / "Cargo.lock", *folder.glob("src/*.rs")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(sources))).hexdigest()


def build(python: Path, root: Path, out: Path, log: Path) -> Path | None:
    """Build the wheel in the folder `out`, with the maturin of an environment; return where it is.
    None, after one line, where that is not possible.
    """
    cargo = find_cargo(os.environ)
    if cargo is None:
        package = chosen(CARGO)[0] if shutil.which("apt-get") else None
        how = f"apt-get install {package}" if package else "your package manager, or rustup"
        say(f"no Rust, {_SLOWER}: install {CARGO.what} ({how}) and run make again")
        return None
    say("the native decoder")
    try:
        # Each crate has its hash in Cargo.lock.
        run_logged(
            [
                *(str(python), "-m", "maturin", "build", "--release", "--locked"),
                *("--manifest-path", str(root / "native" / "Cargo.toml")),
                *("--interpreter", str(python), "--out", str(out)),
            ],
            what="building the native decoder",
            log=log,
            env={"PATH": f"{cargo.parent}{os.pathsep}{os.environ.get('PATH', '')}"},
        )
    except SetUpError as error:
        say(f"{error}, {_SLOWER}")
        return None
    return next(out.glob("kinesis_spout_native-*.whl"))
