"""An application's progress as an operator handles it: moved, exported, imported, looked into."""
