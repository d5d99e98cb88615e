"""Runs a table of checks, each within a time limit, and none that needs one that failed."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.doctor.finding import Finding, failed, failures, not_tried
from kinesis_spout.errors import KinesisError, ServiceUnavailableError
from state.errors import StateError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

LIMIT_S = 10.0
UNREACHABLE = (ServiceUnavailableError, StoreUnavailableError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the table.

    - `look`: blocks and returns findings. A `KinesisError` or `StateError` that it raises is a
      failure, with the error's sentence. Runs in a thread of its own.
    - `needs`: checks before it in the table. When one of them failed or was not run, this one is
      not tried.
    - `limit_s`: after this time the check has failed, whatever it does. `is_remote`: a service did
      not answer then.
    """

    name: str
    look: Callable[[], Iterable[Finding]]
    needs: Sequence[str] = ()
    limit_s: float = LIMIT_S
    is_remote: bool = True


def run(checks: Iterable[Check]) -> Iterator[Finding]:
    """The findings, each as soon as its check has ended. Blocks for the limits' sum at most."""
    missing: set[str] = set()
    for check in checks:
        lacking = [name for name in check.needs if name in missing]
        if lacking:
            missing.add(check.name)
            yield not_tried(check.name, f"it needs {lacking[0]}")
            continue
        found = look_within_limit(check)
        if failures(found):
            missing.add(check.name)
        yield from found


def look_within_limit(check: Check) -> list[Finding]:
    """A look that hangs is left behind, in a thread that does not keep the process alive."""
    found: list[Finding] = []
    ended = threading.Event()

    def look() -> None:
        found.extend(_looked(check))
        ended.set()

    threading.Thread(target=look, name=f"doctor-{check.name}", daemon=True).start()
    if ended.wait(check.limit_s):
        return found
    return [
        failed(
            check.name,
            f"nothing was answered within {check.limit_s:g} s; check that it can be reached from "
            "here, and try again",
            unreachable=check.is_remote,
        )
    ]


def _looked(check: Check) -> list[Finding]:
    try:
        return list(check.look())
    except (KinesisError, StateError) as exc:
        return [failed(check.name, str(exc), unreachable=isinstance(exc, UNREACHABLE))]
    except Exception as exc:  # noqa: BLE001  # one check that breaks must not hide what others find
        return [
            failed(
                check.name,
                f"the check itself failed ({type(exc).__name__}); report this, with the output of "
                "`kinesis-spout doctor --json`",
            )
        ]
