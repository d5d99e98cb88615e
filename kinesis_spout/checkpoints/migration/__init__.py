"""Moving in: where another consumer of a stream stands, read from what it has stored."""
