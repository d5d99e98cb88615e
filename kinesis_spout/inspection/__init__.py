"""An application as it is seen from outside: what ZooKeeper holds, a shard listing, the clock.

`snapshot` is the data and what follows from it, `health` judges it over a window, `causes` explains
it: all pure. `reader` reads it, and asks the service for shards' tips.
"""
