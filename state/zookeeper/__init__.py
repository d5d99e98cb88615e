"""The state store in ZooKeeper. Nothing else imports kazoo."""
