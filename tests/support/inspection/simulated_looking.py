"""Looks at a simulated job, as `status`, `explain` and `ui` take them."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from kinesis_spout.cli.looking import Looking
from kinesis_spout.inspection.reader import TipReader
from tests.support.simulated.simulated_job import APPLICATION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.simulated.simulated_job import SimulatedJob


@contextmanager
def looking(job: SimulatedJob, *, max_asked: int = 100) -> Iterator[Looking]:
    with closing(job.client()) as client, closing(job.store()) as store:
        tips = TipReader(client, job.clock)
        yield Looking(client, store, tips, job.clock, APPLICATION, max_asked)
