"""The consumption state of each shard (read, acked, failed, in flight), and its stores.

A leaf package. Its rooms import only rooms to their right: `zookeeper -> znodes -> codec -> model`
and `tracker -> model`, where the model is the modules directly in `state`, and `state.store`: what
is stored, topic by topic. `state.settle` stands above the tracker, `state.memory_store` above the
znodes. What decides (positions, shard states, plans, settling, the tracker, moves) is pure: no I/O,
clock, threads or logging.
"""
