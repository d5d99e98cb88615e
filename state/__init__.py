"""The consumption state of each shard (read, acked, failed, in flight), and its stores.

A leaf package: it imports no other package of this project. Its rooms, each of which imports only
rooms to its right: `zookeeper -> znodes -> codec -> model -> collections` and `tracker -> model`,
where the model is the modules directly in `state`, and `state.store`: what is stored, topic by
topic. `state.settle` stands above the tracker, `state.memory_store` above the znodes.

What decides (`state.sequence_number`, `state.position`, `state.retry_policy`, `state.shard_state`,
`state.plan`, `state.settle`, `state.tracker`, `state.moves`) is pure: no I/O, clock, threads or
logging. kazoo is imported in `state.zookeeper` only.
"""
