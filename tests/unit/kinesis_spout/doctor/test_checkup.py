"""Checks run within their limits, and none that needs one that failed."""

from __future__ import annotations

import threading

import pytest

from kinesis_spout.cli.inspection.doctor import exit_code_for
from kinesis_spout.doctor.checkup import Check, run
from kinesis_spout.doctor.finding import Finding, Verdict, failed, not_tried, ok, warning
from kinesis_spout.errors import AccessDeniedError, ServiceUnavailableError
from state.errors import StoreUnavailableError


def raises(error: Exception) -> list[Finding]:
    raise error


def test_a_failed_check_stops_only_those_that_need_it() -> None:
    """Also those that need one that was not run. A warning stops nothing."""
    found = list(
        run(
            [
                Check(name="a", look=lambda: [failed("a", "broken")]),
                Check(name="b", look=lambda: [ok("b", "")], needs=["a"]),
                Check(name="c", look=lambda: [ok("c", "")], needs=["b"]),
                Check(name="d", look=lambda: [warning("d", "")]),
                Check(name="e", look=lambda: [ok("e", "")], needs=["d"]),
            ]
        )
    )
    assert found[1:] == [
        not_tried("b", "it needs a"),
        not_tried("c", "it needs b"),
        warning("d", ""),
        ok("e", ""),
    ]


def test_a_check_that_hangs_has_failed_after_its_limit() -> None:
    """The others run."""
    hanging = threading.Event()
    try:
        found = list(
            run(
                [
                    Check(name="a", look=lambda: [ok("a", str(hanging.wait()))], limit_s=0.05),
                    Check(name="b", look=lambda: [ok("b", "")]),
                ]
            )
        )
    finally:
        hanging.set()
    assert found[0].verdict is Verdict.FAILED
    assert found[0].unreachable
    assert "0.05 s" in found[0].sentence
    assert found[1] == ok("b", "")


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
    (found,) = run([Check(name="a", look=lambda: raises(error))])
    assert found == failed("a", str(error), unreachable=unreachable)


def test_an_error_of_another_package_is_named_and_not_quoted() -> None:
    """Its text may hold a secret."""
    (found,) = run([Check(name="a", look=lambda: raises(RuntimeError("key is hunter2")))])
    assert found.verdict is Verdict.FAILED
    assert "RuntimeError" in found.sentence
    assert "hunter2" not in found.sentence


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([], 0),
        ([ok("a", ""), warning("b", ""), not_tried("c", "")], 0),
        ([failed("a", "", unreachable=True), not_tried("b", "")], 3),
        ([failed("a", "", unreachable=True), failed("b", "")], 1),
    ],
)
def test_the_exit_code_is_3_where_all_that_failed_is_an_answer(
    findings: list[Finding], code: int
) -> None:
    assert exit_code_for(findings) == code
