"""Where a job is to work; and the runner of a table of checks, each within its time limit, and none
that needs one that failed.
"""

from __future__ import annotations

from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import KinesisError, ServiceUnavailableError
from kinesis_spout.threads import DaemonPool
from state.errors import StateError, StoreUnavailableError
from state.zookeeper.security import OPEN, ZookeeperSecurity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a job is to work. Without a stream, or a ZooKeeper, that area is left out. `consumer`:
    the name or the ARN of the one that a job with enhanced fan-out is to read with. Holds secrets,
    as `AwsConfig` does, and shows none.
    """

    aws: AwsConfig = field(default_factory=AwsConfig)
    stream: StreamRef | None = None
    consumer: str | None = None
    zookeeper: str | None = None
    zookeeper_root: str
    security: ZookeeperSecurity = OPEN
    application: str | None = None


class Verdict(StrEnum):
    """What a finding means."""

    OK = "ok"  # as it should be
    WARNING = "warning"  # it works, and may stop working, or works badly
    FAILED = "failed"  # a job would fail here
    NOT_TRIED = "not tried"  # unknown: something that it needs failed, or trying it would write


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about one thing.

    - `sentence`: the fact; of a warning or a failure also what to do
    - `about`: the thing, like `kinesis:ListShards`; "": the one that the check is named after
    - `unreachable`: of a failure: a service did not answer
    """

    verdict: Verdict
    sentence: str
    about: str = ""
    unreachable: bool = False


ok = partial(Finding, Verdict.OK)
warning = partial(Finding, Verdict.WARNING)
failed = partial(Finding, Verdict.FAILED)
not_tried = partial(Finding, Verdict.NOT_TRIED)

Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Check(Generic[Subject]):
    """One row of a table of checks.

    - `look`: blocks, in a thread of its own. A `KinesisError` or `StateError` that it raises is a
      failure, with the error's sentence.
    - `needs`: checks above it. When one of them failed or was not run, this one is not tried.
    - `limit_s`: after this time the check has failed. `is_remote`: a service did not answer then.
    - `in_executors`: executors make it, too.
    """

    name: str
    look: Callable[[Subject], Finding | Iterable[Finding]]
    needs: Sequence[str] = ()
    limit_s: float = 10.0
    is_remote: bool = True
    in_executors: bool = False


def run(checks: Iterable[Check[Subject]], subject: Subject) -> Iterator[Finding]:
    """The findings, each as soon as its check has ended. Blocks for the limits' sum at most."""
    missing: set[str] = set()
    for check in checks:
        lacking = [name for name in check.needs if name in missing]
        found = (
            [not_tried(f"the {lacking[0]} check did not pass")]
            if lacking
            else _looked(check, subject)
        )
        if lacking or failures(found):
            missing.add(check.name)
        for finding in found:
            yield replace(finding, about=finding.about or check.name)


def failures(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is Verdict.FAILED]


def _looked(check: Check[Subject], subject: Subject) -> list[Finding]:
    """A look that hangs is left behind, in a thread that does not keep the process alive."""

    def look() -> list[Finding]:
        result = check.look(subject)
        return [result] if isinstance(result, Finding) else list(result)

    pool = DaemonPool(1, f"doctor-{check.name}")
    looked = pool.submit(look)
    pool.shutdown(wait=False)
    if not wait([looked], check.limit_s).done:
        late = f"no answer within {check.limit_s:g} s"
        advice = "check that this machine can reach the server, then try again"
        return [failed(f"{late}; {advice}", unreachable=check.is_remote)]
    try:
        return looked.result()
    except (KinesisError, StateError) as exc:
        is_away = isinstance(exc, ServiceUnavailableError | StoreUnavailableError)
        return [failed(str(exc), unreachable=is_away)]
    except Exception as exc:  # noqa: BLE001  # one that breaks must not hide what others find
        report = "report this error, with the output of kinesis-spout doctor --json"
        return [failed(f"the check failed with an internal error ({type(exc).__name__}); {report}")]
