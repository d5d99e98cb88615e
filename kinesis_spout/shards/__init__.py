"""The shards of a stream: listing, order of reading, start positions, assignment, data loss."""
