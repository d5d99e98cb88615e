"""Which shards there are, in what order they are read, and where each one starts."""
