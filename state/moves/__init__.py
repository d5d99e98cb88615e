"""An application moved by an operator: one shard's state, and the history to go back in. Pure."""
