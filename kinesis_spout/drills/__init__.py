"""Recovery drills: real processes, something done to them, and a verdict on what happened."""
