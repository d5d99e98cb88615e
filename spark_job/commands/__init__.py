"""The commands that start Spark: `run` and `redrive`."""
