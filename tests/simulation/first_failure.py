"""A pytest plugin: a property test ends at its first failure. To look for a shorter one takes
minutes, and a mutant needs none.

`pytest -p tests.simulation.first_failure`. The examples are the same in each run.
"""

from __future__ import annotations

from hypothesis import Phase, settings

NAME = "first failure"
settings.register_profile(
    NAME, phases=(Phase.explicit, Phase.generate), derandomize=True, database=None
)
settings.load_profile(NAME)
