"""Checks what the project installs: every requirement is pinned with hashes, and none has a known
vulnerability.

    python -m scripts.audit [FOLDER] [--advisories CHECKOUT] [-- options of pip-audit]

pip-audit is no dependency of the project. It is run by uv in an environment of its own, and asks
PyPI's advisories, or OSV's with `-- --vulnerability-service osv`. With --advisories, a checkout of
the PyPA's advisory database is read instead, and nothing is asked of the network.

A vulnerability that stands in FOLDER/accepted-advisories.toml, with a reason and a date, is shown
and does not fail.

Exit codes: 0 nothing was found; 1 a vulnerability, an acceptance that has ended, or a requirement
without a pin or a hash; 2 usage; 3 for some packages the advisories gave no answer, so nothing is
known of them.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from scripts.advisories import (
    OLD,
    Accepted,
    AdvisoryFolder,
    Answer,
    Finding,
    pip_audit_answer,
    read_accepted,
    stale,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
FOUND, USAGE, UNREACHABLE = 1, 2, 3
RUNNER_VARIABLE = "PIP_AUDIT"
ACCEPTED = "accepted-advisories.toml"
# `lowest.txt` holds the oldest packages that are allowed, for tests: nobody is to install it.
NOT_INSTALLED = frozenset({"lowest.txt"})
_PIN = re.compile(r"[A-Za-z0-9][\w.-]*(?:\[[\w,.-]+\])?==[^\s;]+")
_HASH = "--hash=sha256:"
_ELSEWHERE = (
    "run it where PyPI's advisories can be reached, give another service with "
    "ARGS='-- --vulnerability-service osv', or a checkout of the PyPA's advisory database with "
    "ARGS='--advisories <folder>'"
)


class NoAnswerError(Exception):
    """Nothing is known of a lock file; the message says why."""


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


def ask(path: Path, runner: Sequence[str], more: Sequence[str]) -> Answer:
    """What pip-audit knows of one lock file.

    pip-audit ends with 0 also where it skipped packages because it got no answer for them.

    Raises:
        NoAnswerError: it cannot be run, has failed, or knows nothing of any package.

    """
    command = [*runner, "--disable-pip", "--require-hashes", "--progress-spinner", "off"]
    command += ["--timeout", "15", "--format", "json", *more, "--requirement", str(path)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as exc:
        message = f"{runner[0]} cannot be run: {exc.strerror}"
        raise NoAnswerError(message) from exc
    try:
        answer = pip_audit_answer(ended.stdout)
    except ValueError as exc:
        last = (ended.stderr.strip() or f"exit code {ended.returncode}").splitlines()[-1]
        message = f"pip-audit failed ({last[:200]})"
        raise NoAnswerError(message) from exc
    if answer.asked and len(answer.unknown) == answer.asked:
        message = f"the advisories have no answer for any of its {answer.asked} packages"
        raise NoAnswerError(message)
    return answer


def main(arguments: Sequence[str], *, today: date | None = None) -> int:
    parser = argparse.ArgumentParser(prog="audit", description="Audit the locked requirements.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "requirements")
    parser.add_argument(
        "--advisories", type=Path, help="a checkout of the PyPA's advisory database"
    )
    parser.add_argument("more", nargs="*", help="options of pip-audit, after --")
    given = parser.parse_args(arguments)
    today = today or datetime.now(UTC).date()
    try:
        accepted = read_accepted(given.folder / ACCEPTED)
    except ValueError as exc:
        parser.error(str(exc))
    loose = check_pins(given.folder)
    for sentence in loose:
        _tell(sentence)
    locks = [path for path in sorted(given.folder.glob("*.txt")) if path.name not in NOT_INSTALLED]
    try:
        if given.advisories is None:
            answers = _asked(locks, given.more)
            is_whole = True
        else:
            answers, is_whole = _looked_up(locks, given.advisories, today)
    except NoAnswerError as exc:
        _tell(f"{exc}; {_ELSEWHERE}")
        return FOUND if loose else UNREACHABLE
    return max(_judge(answers, accepted, today, is_whole=is_whole), FOUND if loose else 0, key=_bad)


def _asked(locks: Sequence[Path], more: Sequence[str]) -> dict[str, Answer]:
    runner = shlex.split(
        os.environ.get(RUNNER_VARIABLE, f"{sys.executable} -m uv tool run pip-audit")
    )
    answers = {}
    for path in locks:
        try:
            answers[path.name] = ask(path, runner, more)
        except NoAnswerError as exc:
            message = f"{path.name} was not audited: {exc}"
            raise NoAnswerError(message) from exc
    return answers


def _looked_up(
    locks: Sequence[Path], checkout: Path, today: date
) -> tuple[dict[str, Answer], bool]:
    """The answers of a folder, and whether it is new enough to say that nothing is known."""
    advisories = AdvisoryFolder(checkout)
    if (published := advisories.published()) is None:
        message = f"{checkout} holds no advisories (vulns/<package>/*.yaml)"
        raise NoAnswerError(message)
    answers = {path.name: advisories.answer(path.read_text("utf-8")) for path in locks}
    if is_new := today - published.date() <= OLD:
        return answers, is_new
    clean = sum(
        answer.asked - len({one.package for one in answer.findings}) for answer in answers.values()
    )
    _tell(
        f"the newest advisory in {checkout} is of {published.date()}: it knows nothing of {clean} "
        "pins, and later ones may; update the checkout"
    )
    return answers, is_new


def _judge(
    answers: Mapping[str, Answer], accepted: Sequence[Accepted], today: date, *, is_whole: bool
) -> int:
    """Shows what was found; the exit code."""
    found = sorted({one for answer in answers.values() for one in answer.findings})
    places = {
        one: [name for name, answer in answers.items() if one in answer.findings] for one in found
    }
    unknown = sorted({name for answer in answers.values() for name in answer.unknown})
    is_whole = is_whole and not unknown
    current = [one for one in accepted if one.until >= today]
    reasons = {one: next((entry for entry in current if entry.covers(one)), None) for one in found}
    if found:
        Console(stderr=True, width=None if sys.stderr.isatty() else 120).print(
            _table(places, reasons)
        )
    # What an incomplete answer has not found may still be there.
    over = stale(accepted, found, today) if is_whole else []
    for sentence in over:
        _tell(f"{ACCEPTED}: {sentence}")
    if unknown:
        _tell(
            f"{len(unknown)} packages were not audited, as the advisories have no answer for them: "
            f"{', '.join(unknown)}; {_ELSEWHERE}"
        )
    bad = [one for one, entry in reasons.items() if entry is None]
    packages = sum(answer.asked for answer in answers.values())
    accepted_too = f" but {len(found) - len(bad)} accepted" if len(found) > len(bad) else ""
    if bad:
        _tell(f"{len(bad)} known vulnerabilities: upgrade, or accept them in {ACCEPTED}")
    elif is_whole:
        print(  # noqa: T201  # a program
            f"audit: {len(answers)} lock files with {packages} pins, all pinned with hashes, no "
            f"known vulnerability{accepted_too}"
        )
    return FOUND if bad or over else 0 if is_whole else UNREACHABLE


def _table(
    places: Mapping[Finding, Sequence[str]], reasons: Mapping[Finding, Accepted | None]
) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("package", "advisory", "also", "fixed in", "in", "accepted"):
        table.add_column(name, overflow="fold")
    for one, files in places.items():
        entry = reasons[one]
        table.add_row(
            f"{one.package} {one.version}",
            one.advisory,
            " ".join(one.aliases),
            " ".join(one.fixed_in) or "no version",
            " ".join(files),
            "no" if entry is None else f"until {entry.until}: {entry.reason}",
        )
    return table


def _bad(code: int) -> int:
    """What was found outweighs what is not known."""
    return (0, UNREACHABLE, FOUND).index(code)


def _tell(sentence: str) -> None:
    print(f"audit: {sentence}", file=sys.stderr)  # noqa: T201  # a program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
