"""Collections that the tracker and the acker share."""
