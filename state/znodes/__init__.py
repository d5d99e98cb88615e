"""The layout of the stored state: which znode holds what, and who may write it."""
