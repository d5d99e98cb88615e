"""One session of the owner of an application: claim, pause, start, run log and history."""
