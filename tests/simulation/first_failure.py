"""A pytest plugin that ends a property test at its first failure. Shrinking an example takes
minutes, and a mutant does not need it.

`pytest -p tests.simulation.first_failure`. The examples are the same in each run.
"""

from __future__ import annotations

from hypothesis import Phase, settings

NAME = "first failure"


def pytest_configure() -> None:
    """The size is that of `make test`."""
    settings.register_profile(
        NAME,
        settings.default,
        phases=(Phase.explicit, Phase.generate),
        derandomize=True,
        database=None,
    )
    settings.load_profile(NAME)
