"""Storm's acker: work that fans out from one emission is acked or fails as a whole."""

from kinesis_spout.tuple_tree.acker import Acker, Ending, Outcome
from kinesis_spout.tuple_tree.tracked_tuple import (
    TrackedTuple,
    TupleTree,
    anchored_to,
    fail_timed_out,
)

__all__ = [
    "Acker",
    "Ending",
    "Outcome",
    "TrackedTuple",
    "TupleTree",
    "anchored_to",
    "fail_timed_out",
]
