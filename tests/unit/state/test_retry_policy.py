from __future__ import annotations

import pytest

from state.retry_policy import RetryPolicy
from tests.support.state.tracker import seeded


@pytest.mark.parametrize(
    ("policy", "delays_ms"),
    [
        (
            RetryPolicy(first_delay_ms=100, growth=3, max_delay_ms=1_000, jitter=0),
            [100, 300, 900, 1_000, 1_000],
        ),
        (RetryPolicy(first_delay_ms=0), [0] * 5),
    ],
)
def test_delays_grow_to_their_cap(policy: RetryPolicy, delays_ms: list[int]) -> None:
    """The first is the first delay; jitter 0 is exact. A first delay of 0 never waits."""
    found = [policy.due_ms(attempts, 5, seeded()) - 5 for attempts in (1, 2, 3, 4, 10**6)]
    assert found == delays_ms


def test_jitter_spreads_a_delay_downwards_by_its_share() -> None:
    """So no delay exceeds the cap. The injected random decides."""
    policy = RetryPolicy(first_delay_ms=1_000, jitter=0.4)
    random = seeded(7)
    delays = [policy.due_ms(1, 0, random) for _ in range(500)]
    assert 600 <= min(delays) < 650
    assert 950 < max(delays) <= 1_000
    assert policy.due_ms(1, 0, seeded(7)) == delays[0]


def test_a_record_is_exhausted_by_its_failures_or_by_its_age() -> None:
    """3 retries are 4 deliveries, 0 retries one. Its age counts from its first failure; one that
    never failed has none.
    """
    for limit in (0, 3):
        failed = [RetryPolicy(retry_limit=limit).exhausted(n, 0, 0) for n in range(1, 6)]
        assert failed == [n > limit for n in range(1, 6)]
    policy = RetryPolicy(max_age_ms=500)
    assert [policy.exhausted(1, 1_000, now_ms) for now_ms in (1_500, 1_501)] == [False, True]
    assert not policy.exhausted(0, None, 10**15)
    assert not RetryPolicy().exhausted(1, 0, 10**15)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("retry_limit", -1),
        ("first_delay_ms", -1),
        ("growth", 0.5),
        ("growth", float("nan")),
        ("max_delay_ms", 999),
        ("jitter", 1.1),
        ("max_age_ms", 0),
        ("retry_limit", "3"),
        ("retry_limit", True),
        ("growth", None),
        ("max_age_ms", "1h"),
    ],
)
def test_a_bad_value_is_refused_with_field_value_and_rule(field: str, value: object) -> None:
    """When the policy is made, not when the first record fails."""
    with pytest.raises(ValueError, match=rf"RetryPolicy\.{field} is {value!r}; it must be .+"):
        RetryPolicy(**{field: value})  # type: ignore[arg-type]  # of any field
