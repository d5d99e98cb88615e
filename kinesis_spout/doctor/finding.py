"""What a check says. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Verdict(StrEnum):
    """What a finding means.

    OK         as it should be
    WARNING    it works, and may stop working, or works badly
    FAILED     a job would fail here
    NOT_TRIED  it cannot be said: something that it needs failed, or trying it would write
    """

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about one thing.

    - `about`: the thing, like `kinesis:ListShards`
    - `sentence`: what is so; of a warning or a failure also what to do
    - `unreachable`: of a failure: a service did not answer
    """

    about: str
    verdict: Verdict
    sentence: str
    unreachable: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> Finding:
        return cls(**{**found, "verdict": Verdict(found["verdict"])})


def ok(about: str, sentence: str) -> Finding:
    return Finding(about, Verdict.OK, sentence)


def warning(about: str, sentence: str) -> Finding:
    return Finding(about, Verdict.WARNING, sentence)


def failed(about: str, sentence: str, *, unreachable: bool = False) -> Finding:
    return Finding(about, Verdict.FAILED, sentence, unreachable)


def not_tried(about: str, sentence: str) -> Finding:
    return Finding(about, Verdict.NOT_TRIED, sentence)


def failures(findings: Iterable[Finding]) -> list[Finding]:
    return [one for one in findings if one.verdict is Verdict.FAILED]
