"""Encodes stored values as JSON bytes, and decodes them."""
