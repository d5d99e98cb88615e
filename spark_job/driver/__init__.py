"""The driver's side of a query: plans what a batch is to read, and settles what was read."""
