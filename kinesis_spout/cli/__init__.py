"""The command line `kinesis-spout`: its commands, their options, input and output."""
