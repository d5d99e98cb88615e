"""A task on an executor: reads its shards, or reads again what was published."""
