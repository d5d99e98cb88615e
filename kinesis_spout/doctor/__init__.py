"""Checks of an installation: what is there, and what to do about what is not."""
