"""What the parts of an open spout share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from kinesis_spout.spout.config import SpoutConfig
    from kinesis_spout.spout.notifier import SpoutHooks
    from kinesis_spout.spout.scheduler import SpoutCore
    from kinesis_spout.spout.services import SpoutServices


@dataclass(frozen=True, slots=True)
class SpoutContext:
    """`changed` is the lock around `core`, and tells whoever waits that there may be something new
    to do.
    """

    config: SpoutConfig
    services: SpoutServices
    core: SpoutCore
    hooks: SpoutHooks
    changed: threading.Condition
