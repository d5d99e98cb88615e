"""`kinesis-spout ui`: looks in the background, and a small server of pages on them."""
