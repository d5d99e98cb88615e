"""What has been read, acked and failed of each shard, and where that is kept.

A leaf package: it imports nothing of ours. The core (`sequence_number`, `position`,
`inflight_record_tracker`, `retry_policy`, `shard_state`, `plan`, `settle`) is pure: no I/O, clock,
threads or logging. `zookeeper_tree` is the only module that imports kazoo.
"""
