"""Commands that look at an application from outside: they write nothing."""
