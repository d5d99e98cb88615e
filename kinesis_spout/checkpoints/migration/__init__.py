"""Imports: where another consumer of a stream has stopped, read from what it has stored."""
