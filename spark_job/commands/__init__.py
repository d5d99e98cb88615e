"""The commands that start Spark: `kinesis-spout run` and `kinesis-spout redrive`."""
