"""What happened in a drill, and whether the promises were kept. Pure."""
