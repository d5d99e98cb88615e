"""Checks run within their limits, and none that needs one that failed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kinesis_spout.cli.doctor import exit_code_for
from kinesis_spout.doctor.findings import Check, Verdict, failed, not_tried, ok, run, warning
from kinesis_spout.errors import AccessDeniedError, ServiceUnavailableError
from state.errors import StoreUnavailableError

if TYPE_CHECKING:
    from kinesis_spout.doctor.findings import Finding


def row(name: str, finding: Finding | Exception, needs: str = "") -> Check[None]:
    """`needs`: a letter for each check."""

    def look(_: None) -> Finding:
        if isinstance(finding, Exception):
            raise finding
        return finding

    return Check(name, look, list(needs))


def test_a_failed_check_stops_only_those_that_need_it() -> None:
    """Also those that need one that was not run. A warning stops nothing."""
    table = (
        row("a", failed("broken")),
        row("b", ok(""), "a"),
        row("c", ok(""), "b"),
        row("d", warning("")),
        row("e", ok("", "of e"), "d"),
    )
    assert list(run(table, None)) == [
        failed("broken", "a"),
        not_tried("the check a must pass first", "b"),
        not_tried("the check b must pass first", "c"),
        warning("", "d"),
        ok("", "of e"),
    ]


def test_a_check_that_hangs_has_failed_after_its_limit() -> None:
    """The others run."""
    hanging = threading.Event()
    hangs: Check[None] = Check("a", lambda _: ok(str(hanging.wait())), limit_s=0.05)
    try:
        late, other = run((hangs, row("b", ok(""))), None)
    finally:
        hanging.set()
    assert late.verdict is Verdict.FAILED
    assert late.unreachable
    assert "0.05 s" in late.sentence
    assert other == ok("", "b")


@pytest.mark.parametrize(
    ("error", "unreachable"),
    [
        (ServiceUnavailableError("no answer; wait"), True),
        (StoreUnavailableError("no answer; wait"), True),
        (AccessDeniedError("denied; allow it"), False),
    ],
)
def test_an_error_of_ours_is_a_failure_with_its_sentence(
    error: Exception, *, unreachable: bool
) -> None:
    assert list(run([row("a", error)], None)) == [failed(str(error), "a", unreachable)]


def test_an_error_of_another_package_is_named_and_not_quoted() -> None:
    """Its text may hold a secret."""
    (found,) = run([row("a", RuntimeError("key is hunter2"))], None)
    assert found.verdict is Verdict.FAILED
    assert "RuntimeError" in found.sentence
    assert "hunter2" not in found.sentence


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 0),
        ([ok(""), warning(""), not_tried("")], 0),
        ([failed("", unreachable=True), not_tried("")], 3),
        ([failed("", unreachable=True), failed("")], 1),
    ],
)
def test_the_exit_code_is_3_where_all_that_failed_is_an_answer(
    findings: list[Finding], code: int
) -> None:
    assert exit_code_for(findings) == code
