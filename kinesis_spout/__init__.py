"""kinesis-spout: reads Kinesis shards with tracking of every record in flight and checkpoints in ZooKeeper."""

__version__ = "0.1.0"
