from __future__ import annotations

from typing import Any

import pytest

from state.retry_policy import RetryPolicy
from tests.support.state.tracker import seeded


def test_delays_grow_to_their_cap() -> None:
    """The first is the first delay; jitter 0 is exact."""
    policy = RetryPolicy(first_delay_ms=100, growth=3, max_delay_ms=1_000, jitter=0)
    assert [policy.due_ms(attempts, 5, seeded()) - 5 for attempts in (1, 2, 3, 4, 10**6)] == [
        100,
        300,
        900,
        1_000,
        1_000,
    ]


def test_a_first_delay_of_zero_never_waits() -> None:
    """However often it failed."""
    policy = RetryPolicy(first_delay_ms=0)
    assert [policy.due_ms(attempts, 5, seeded()) for attempts in (1, 2, 10**6)] == [5, 5, 5]


def test_jitter_spreads_a_delay_downwards_by_its_share() -> None:
    """So no delay exceeds the cap. The injected random decides."""
    policy = RetryPolicy(first_delay_ms=1_000, jitter=0.4)
    random = seeded(7)
    delays = [policy.due_ms(1, 0, random) for _ in range(500)]
    assert 600 <= min(delays) < 650
    assert 950 < max(delays) <= 1_000
    assert policy.due_ms(1, 0, seeded(7)) == delays[0]


@pytest.mark.parametrize(
    ("retry_limit", "exhausted"),
    [(0, [True, True]), (1, [False, True]), (3, [False, False, False, True])],
)
def test_a_record_is_exhausted_when_it_failed_more_often_than_the_limit(
    retry_limit: int, exhausted: list[bool]
) -> None:
    """3 retries are 4 deliveries, 0 retries one."""
    policy = RetryPolicy(retry_limit=retry_limit)
    assert [
        policy.exhausted(attempts, 0, 0) for attempts in range(1, len(exhausted) + 1)
    ] == exhausted


def test_a_record_is_exhausted_when_it_is_older_than_the_maximum_age() -> None:
    """Counted from its first failure; one that never failed has no age."""
    policy = RetryPolicy(max_age_ms=500)
    assert [policy.exhausted(1, 1_000, now_ms) for now_ms in (1_000, 1_500, 1_501)] == [
        False,
        False,
        True,
    ]
    assert not policy.exhausted(0, None, 10**15)
    assert not RetryPolicy().exhausted(1, 0, 10**15)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("retry_limit", -1),
        ("first_delay_ms", -1),
        ("growth", 0.5),
        ("growth", float("inf")),
        ("growth", float("nan")),
        ("max_delay_ms", 999),
        ("jitter", -0.1),
        ("jitter", 1.1),
        ("max_age_ms", 0),
    ],
)
def test_a_bad_value_is_refused_with_field_value_and_rule(field: str, value: float) -> None:
    """When the policy is made, not when the first record fails."""
    values: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=rf"RetryPolicy\.{field} is {value}; it must be .+"):
        RetryPolicy(**values)
