"""A task on an executor: its first read of the shards, and the replay of a published result."""
