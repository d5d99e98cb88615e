"""The batch read: `spark.read.format("kinesis")`."""
