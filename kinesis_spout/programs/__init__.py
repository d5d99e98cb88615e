"""What runs beside the caller: threads of this process, and child processes, where they find our
modules and the user's, and how they end.
"""
