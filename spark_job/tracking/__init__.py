"""Outcomes per record: runs the user's function on a batch and reports what failed."""
