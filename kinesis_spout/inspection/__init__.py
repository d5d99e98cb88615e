"""An application as it is seen from outside: what ZooKeeper has, a shard listing, the clock.

`reader` reads it, and asks the service for shards' tips; all else is pure. `snapshot` is the data
and what follows from it, `health` judges it over a window, `status` is the verdict with its cause.
`explanation` asks the rules of its table in order; `cause` writes their facts.
"""
