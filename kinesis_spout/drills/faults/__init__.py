"""What a drill can do to its world, one file a kind. An act gets the `World`, and returns when it
is done; it appends what it did to `world.faults`.
"""
