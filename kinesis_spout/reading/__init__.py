"""Reading: one shard page by page, and many shards in rotation."""
