"""The records of one shard, page by page, and of many shards in turn."""
