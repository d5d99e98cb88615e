"""The state store in ZooKeeper. kazoo is imported here only."""
