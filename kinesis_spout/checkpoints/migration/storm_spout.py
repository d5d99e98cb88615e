"""Where a topology with the Kinesis Storm spout has stopped: its znodes. Blocks on ZooKeeper.

Its paths and values, from `ZookeeperShardState` and `ShardStateV0` of awslabs/kinesis-storm-spout
(Amazon Software License), are those of this package's store, which reads them as they are
(`state.codec.shard_states`):

    /<prefix>/<topology>/<stream>/shardList          {"shardList":["shardId-000000000000", ...]}
    /<prefix>/<topology>/<stream>/<shard id>/state   {"checkpoint":"<sequence number>"}

The checkpoint is the last record up to which every record is acked. The spout knows no end of a
shard and no children: a closed shard stays at its last record, and a resharded stream is one with
more shards after the topology was started again.
"""

from kinesis_spout.checkpoints.migration.import_plan import (
    IMPORT_FROM,
    MigrationError,
    Origin,
    OriginShard,
)
from state.znodes.topics import StoreTopics

PREFIX = "kinesis_storm_spout"
NAME = "storm-spout"


def origin_of(store: StoreTopics, where: str, *, in_place: bool = False) -> Origin:
    """Where the topology has stopped whose znodes the store finds. `where`: their path, for
    messages. `in_place`: see `Origin`.

    Raises `MigrationError`, and errors of the store.
    """
    start = store.identity.read_start(also_unfinished=True)
    is_begun = start is not None and start.importing and start.requested == f"{IMPORT_FROM}{NAME}"
    # What an import in place has written before it was stopped says the same as what was there.
    if not is_begun and (start is not None or store.identity.read() is not None):
        raise MigrationError(
            f"{where} contains an application of kinesis-spout, not a Storm topology",
            "start that application, or pass the name of a Storm topology",
        )
    states = store.shard_states.load()
    listed = store.shard_list.read()
    if not states and listed is None:
        raise MigrationError(
            f"{where} contains neither a shardList nor the state of a shard",
            "correct --prefix, --topology or --stream",
        )
    notes = [
        "the application repeats records that the topology acked out of order after the checkpoint"
    ]
    if listed is not None:
        notes.append(
            "the topology may still be running, because its znode shardList exists. Deactivate the "
            "topology before the import: otherwise, the application repeats the records that the "
            "topology processes from now on"
        )
    # An empty checkpoint is that of a shard without an acked record, wherever it began.
    shards = dict.fromkeys(
        [*sorted(states), *(listed or ())], OriginShard(stored="no checkpoint", position=None)
    )
    for shard, state in ((shard, stored.state) for shard, stored in states.items()):
        if state.checkpoint is not None or state.finished:
            checkpoint = f"checkpoint {state.checkpoint_text}"
            shards[shard] = OriginShard(stored=checkpoint, position=state.read_position)
    return Origin(name=NAME, shards=shards, in_place=in_place, notes=tuple(notes))
