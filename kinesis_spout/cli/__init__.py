"""The command line: `kinesis-spout`."""
