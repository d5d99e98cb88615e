"""Random histories of an application that tracks its records. Some fail once, some often, some
always.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from state.report import OnFailure
from tests.support.simulated.micro_batch_engine import TRACKED_CRASHES
from tests.support.simulated.micro_batch_history import History
from tests.support.spark.source import ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.support.simulated.played_outcomes import PlayedOutcomes, Row


def random_failures(chance: Random) -> Callable[[Row], str | None]:
    """The number of failures of each record, drawn when it is first seen: the same in
    every replay.
    """
    times: dict[str, int] = {}
    weights = chance.choice(((20, 1, 1, 1), (3, 1, 1, 1), (1, 2, 2, 1)))

    def fails(row: Row) -> str | None:
        number = f"{row['shardId']}:{row['sequenceNumber']}"
        if number not in times:
            times[number] = chance.choices((0, 1, 2, 99), weights=weights)[0]
        return "as drawn" if row["attempt"] <= times[number] else None

    return fails


@dataclass
class TrackedHistory(History):
    crashes: Sequence[str] = TRACKED_CRASHES

    @property
    def outcomes(self) -> PlayedOutcomes:
        assert self.engine.tracked is not None
        return self.engine.tracked

    def letters(self) -> set[str]:
        return {message_id.rpartition(":")[0] for message_id, _, reason in self.outcomes.letters}

    def resolved(self) -> set[str]:
        return set(self.committed) | self.letters()

    def check_order(self, delivered: Sequence[str]) -> None:
        """First deliveries follow the order of resharding; retries come at any time."""
        del delivered
        super().check_order(ids_of(self.engine.delivered))

    def check_sink(self, found: set[str]) -> None:
        assert found | self.letters() == self.stream.ids()
        assert not found & self.letters(), (
            "records were processed that had been dead-lettered, or the other way round"
        )
        assert {attempts for _, attempts, _ in self.outcomes.letters} <= {
            self.outcomes.policy.retry.retry_limit + 1
        }
        if self.outcomes.policy.on_failure is OnFailure.BLOCK_SHARD:
            processed: dict[str, list[int]] = {}
            for _, rows in sorted(self.engine.sink.items()):
                for row in rows:
                    processed.setdefault(row["shardId"], []).append(int(row["sequenceNumber"]))
            for shard, numbers in processed.items():
                assert numbers == sorted(numbers), (
                    f"the records of {shard} were not processed in their order"
                )
