"""Public import path of the acker, Storm's for one process (`kinesis_spout.tuple_tree.acker`)."""

from kinesis_spout.tuple_tree.acker import Acker, Ending, Outcome

__all__ = ["Acker", "Ending", "Outcome"]
