"""Collections that the tracker and the acker share. The lowest room: it imports nothing of ours."""
