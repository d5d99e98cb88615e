"""The command `demo`: the whole story on real input."""
