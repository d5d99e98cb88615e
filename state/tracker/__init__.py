"""Tracks the records of one shard that are in flight. Pure."""
