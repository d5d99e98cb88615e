"""How many examples a property gets: its own number in all tests, and a share of it where each of a
thousand mutants is run against it (`make mutants-core`).
"""

from __future__ import annotations

from hypothesis import settings


def examples(usually: int) -> int:
    """Of `usually` examples, as many percent as the profile has."""
    return max(1, usually * settings().max_examples // 100)
