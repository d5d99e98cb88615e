"""Copies that are lost, or restored when they are old: of Spark's checkpoint location, and of
ZooKeeper's data. The other one of the two goes on.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kinesis_spout.drills.faults.down import while_down
from kinesis_spout.drills.world.spark_conf import CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kinesis_spout.drills.world.world import World

_BETWEEN = 100  # records that have an outcome between a copy and its restoring


def checkpoint_lost(world: World) -> None:
    while_down(
        world,
        "the checkpoint location removed",
        lambda: shutil.rmtree(world.directory / CHECKPOINT),
        rewinds=False,
    )


def checkpoint_restored(world: World) -> None:
    """Copy it, go on for some batches, and put the copy in its place. Spark repeats the batch that
    it does not know as committed, as far as ZooKeeper has its plan.
    """
    backup = _Backup(world, [world.directory / CHECKPOINT])
    while_down(world, "the checkpoint location copied", backup.copy, rewinds=False)
    world.wait_for_acks(_BETWEEN)
    while_down(world, "an older checkpoint location restored", backup.restore)


def zookeeper_restored(world: World) -> None:
    """Copy its data, go on for some batches, and put the copy in their place."""
    backup = _Backup(world, world.zookeeper.data)
    while_down(
        world,
        "ZooKeeper's data copied",
        lambda: world.zookeeper.restart(backup.copy),
        rewinds=False,
    )
    world.wait_for_acks(_BETWEEN)

    def restore() -> None:
        world.zookeeper.restart(backup.restore)
        world.stored.connect_again()

    while_down(world, "older data of ZooKeeper restored", restore)


class _Backup:
    """Copies of some directories."""

    def __init__(self, world: World, directories: Sequence[Path]) -> None:
        self._directories = directories
        self._copies = Path(tempfile.mkdtemp(prefix="backup-", dir=world.directory))

    def copy(self) -> None:
        for number, directory in enumerate(self._directories):
            shutil.copytree(directory, self._copies / str(number))

    def restore(self) -> None:
        for number, directory in enumerate(self._directories):
            shutil.rmtree(directory)
            shutil.copytree(self._copies / str(number), directory)
