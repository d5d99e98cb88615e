"""Who owns an application: the process, whether it lives, and what it tells of its runs."""
