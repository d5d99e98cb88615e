"""Checks what the project installs: every requirement is pinned with hashes, and none has a known
vulnerability.

    python -m scripts.audit [FOLDER] [-- options of pip-audit]

pip-audit is no dependency of the project. It is run by uv in an environment of its own, and asks
PyPI's advisories, or OSV's with `-- --vulnerability-service osv`.

Exit codes: 0 nothing was found; 1 a vulnerability, or a requirement without a pin or a hash; 2
usage; 3 the advisories could not be asked, so nothing is known.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
FOUND, UNREACHABLE = 1, 3
RUNNER_VARIABLE = "PIP_AUDIT"
# `lowest.txt` holds the oldest packages that are allowed, for tests: nobody is to install it.
NOT_INSTALLED = frozenset({"lowest.txt"})
_PIN = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?==[^\s;]+")
_HASH = "--hash=sha256:"
# The words by which pip-audit says that it could not ask: it has one exit code for all failures.
_NO_ANSWER = re.compile(
    r"ConnectionError|ServiceError|Could not connect|Failed to (?:connect|establish)|"
    r"Max retries exceeded|HTTPError|timed out|Name or service not known"
)


def loose_requirements(text: str) -> list[str]:
    """The requirements of a lock file that have no exact version, or no hash."""
    logical = text.replace("\\\n", " ").splitlines()
    lines = [line.strip() for line in logical if line.strip() and line.strip()[0] not in "#-"]
    return [
        line.split()[0]
        for line in lines
        if not _PIN.match(line) or _HASH not in line or "://" in line.partition("#")[0]
    ]


def check_pins(folder: Path) -> list[str]:
    """A sentence for each requirement that is not pinned with a hash."""
    return [
        f"{path.name}: {name} has no exact version with a hash; run make lock"
        for path in sorted(folder.glob("*.txt"))
        for name in loose_requirements(path.read_text("utf-8"))
    ]


def ask(path: Path, runner: Sequence[str], more: Sequence[str]) -> tuple[int, str]:
    """What pip-audit says of one lock file: 0, FOUND or UNREACHABLE, and its words."""
    command = [*runner, "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
    command += ["--timeout", "15", *more]
    try:
        ended = subprocess.run(
            [*command, "--requirement", str(path)], capture_output=True, text=True, check=False
        )
    except OSError as exc:
        return UNREACHABLE, f"{runner[0]} cannot be run: {exc.strerror}"
    said = f"{ended.stdout}{ended.stderr}".strip()
    if ended.returncode == 0:
        return 0, ""
    if re.search(r"^Found \d+ known vulnerabilit", said, re.MULTILINE):
        return FOUND, said
    last = said.splitlines()[-1] if said else f"exit code {ended.returncode}"
    reason = "the advisories did not answer" if _NO_ANSWER.search(said) else "pip-audit failed"
    return UNREACHABLE, f"{reason} ({last[:200]})"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="audit", description="Audit the locked requirements.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "requirements")
    parser.add_argument("more", nargs="*", help="options of pip-audit, after --")
    given = parser.parse_args(arguments)
    loose = check_pins(given.folder)
    for sentence in loose:
        print(f"audit: {sentence}", file=sys.stderr)  # noqa: T201  # a program
    worst = FOUND if loose else 0
    runner = shlex.split(
        os.environ.get(RUNNER_VARIABLE, f"{sys.executable} -m uv tool run pip-audit")
    )
    locks = [path for path in sorted(given.folder.glob("*.txt")) if path.name not in NOT_INSTALLED]
    for path in locks:
        code, said = ask(path, runner, given.more)
        if code == UNREACHABLE:
            print(  # noqa: T201
                f"audit: {path.name} was not audited: {said}; run it where PyPI can be reached, or "
                "give another service with ARGS='-- --vulnerability-service osv'",
                file=sys.stderr,
            )
            return worst or UNREACHABLE
        if code == FOUND:
            print(f"audit: {path.name}:\n{said}", file=sys.stderr)  # noqa: T201
            worst = FOUND
    if not worst:
        print(f"audit: {len(locks)} lock files, all pinned with hashes, no known vulnerability")  # noqa: T201
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
