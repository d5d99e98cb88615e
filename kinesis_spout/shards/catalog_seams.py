"""What a shard catalog needs of its owner: its settings, and what it knows of the shards beside
their stored states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from kinesis_spout.config import StreamRef


class CatalogSettings(Protocol):
    """What of its owner's settings a catalog goes by. Durations in milliseconds."""

    @property
    def stream(self) -> StreamRef: ...
    @property
    def shard_refresh_interval_ms(self) -> int: ...
    @property
    def fail_on_data_loss(self) -> bool: ...
    @property
    def states_per_write(self) -> int: ...


class TipWatch(Protocol):
    """What is known of each shard beside its stored state. A memory that may be lost."""

    def keep_only(self, shard_ids: Collection[str]) -> None: ...

    def is_idle(self, shard_id: str) -> bool:
        """At its tip when it was last looked at."""
        ...

    def is_behind(self, shard_id: str) -> bool:
        """Known to have more to read."""
        ...

    def verified_ms(self, shard_id: str) -> int | None:
        """Service time of the last tip that was seen since the state was stored; None
        without one.
        """
        ...
