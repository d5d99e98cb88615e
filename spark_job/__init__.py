"""Kinesis for Spark Structured Streaming. The only package that imports pyspark."""
