"""What holds for the tests of the command line."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a first answer takes seconds; no test asks for the note of it."""
    monkeypatch.setattr("kinesis_spout.cli.places.PATIENCE_S", 600.0)
