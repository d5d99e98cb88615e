"""What is stored of one application on one stream, topic by topic: each module has a topic's types,
and its Protocol with the contract. `state.znodes` implements them, `state.znodes.topics` binds them
together, and one contract suite tests them in memory and on ZooKeeper.

A caller takes the topics that it may touch, so that its signature says what it can change.

Users and fencing. The owner (a Spark driver, a spout) plans, settles and writes shard states. Every
write of the owner is one transaction that also checks the epoch which `acquire` counted up. So a
process that lost the ownership can write nothing, not even a node that the new owner has not
touched yet: a method that writes as the owner raises `StaleOwnerError` when the ownership was not
acquired or has passed on. A task of a plan (a Spark executor) only publishes its result, and a
tracked batch its outcomes. These are fenced by their plan instead: nothing can be added to a plan
once it is closed.

Shares. Several spouts may own one application together, each as one task of a fixed total
(`TaskShare`). They divide the shards among themselves by the shard list, which one of them, the
shard list leader, writes.

Blocking and errors. Every method blocks on I/O, at most for the store's time limit. It retries
transient faults within that limit and then raises `StoreUnavailableError`. A failed read raises; it
never returns as if nothing was stored. Damaged or newer stored bytes raise `StoredDataError`.

Threads. All methods are safe from any thread.

Another database. Each Protocol says which of its operations need a transaction, a compare-and-set,
an ephemeral owner or a watch. `state.znodes.tree.ZnodeTree` is the seam for a database that offers
these four: nothing above it would change.
"""
