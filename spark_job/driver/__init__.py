"""The driver's side of a query: plans what each batch is to read, and settles what was read."""
