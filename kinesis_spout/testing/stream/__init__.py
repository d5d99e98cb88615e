"""The streams of FakeKinesis: shards, hash keys, sequence numbers, limits."""
