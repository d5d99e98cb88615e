"""What a drill runs on: as the options of the command say, and as the drill itself needs it; and
why it cannot be done.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from state.errors import RemediedError


class DrillError(RemediedError):
    """A drill could not be done. The message is a sentence."""


class Need(StrEnum):
    """What a drill cannot do without. Its world has it then, those of `ADDED` for no option."""

    OWN_KINESIS = "the drill's own Kinesis"
    SPARK = "Spark"
    OWN_FUNCTION = "the drill's own function"
    EXECUTORS = "Spark on executors"
    ENSEMBLE = "a ZooKeeper ensemble"
    LINK = "a link to ZooKeeper that can be cut"
    CLOCK = "processes whose clock can be set"
    POISON = "a record that crashes its process"


ADDED = frozenset({Need.LINK, Need.CLOCK, Need.POISON})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The options of a drill.

    - `spout`: the job is the standalone spout, in two processes; else it is a Spark job.
    - `efo`: the job reads by enhanced fan-out.
    - `endpoint_url`, `region`, `stream_prefix`: a Kinesis that exists already; without both of the
      former it is our own, in this process. `is_emulator`: it takes any credentials.
    - `process`: `module:function`, the user's function for `KinesisSource.tracked`.
    - `payload`: `module:function`, from key and number to the data of a record.
    - `has`: what there is beside that: by an option, or as the drill needs it.
    """

    spout: bool = False
    efo: bool = False
    endpoint_url: str | None = None
    region: str | None = None
    stream_prefix: str | None = None
    is_emulator: bool = False
    records_per_s: float = 100.0
    process: str | None = None
    payload: str | None = None
    seed: int = 1
    has: frozenset[Need] = frozenset()

    @property
    def is_fake(self) -> bool:
        """Whether Kinesis is our own, which can make faults on demand."""
        return self.endpoint_url is None and self.region is None

    @property
    def fates_known(self) -> bool:
        """Whether the job acks and fails the records by their numbers."""
        return self.process is None and self.payload is None
