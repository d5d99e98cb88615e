"""The processes of a drill: Kinesis, ZooKeeper, the job, the producers."""
