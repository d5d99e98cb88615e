"""Dead letters: their one schema, the files that contain them, and how they are put back."""
