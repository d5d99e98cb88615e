"""Stored values as JSON bytes, and back."""
