"""Commands on an application's progress: `checkpoint`, `reset` and `peek`."""
