"""The public name of Storm's acker for one process; it is defined in `kinesis_spout.tuple_tree`."""

from kinesis_spout.tuple_tree.acker import Acker, Ending, Outcome

__all__ = ["Acker", "Ending", "Outcome"]
