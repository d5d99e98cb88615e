"""Tracks the records of one shard that are in flight. Pure: no I/O, clock, threads or logging."""
