"""The standalone spout: delivers a stream record by record in one Python process."""

from kinesis_spout.dead_letter.letter import Letter as DeadLetter
from kinesis_spout.errors import FailRecordError
from kinesis_spout.spout.config import SpoutConfig
from kinesis_spout.spout.emission import SpoutEmission
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutClosedError
from kinesis_spout.spout.listener import SpoutListener
from kinesis_spout.spout.outages import SpoutHealth, SpoutOutage
from state.zookeeper.security import ZookeeperSecurity

__all__ = [
    "DeadLetter",
    "FailRecordError",
    "KinesisSpout",
    "SpoutClosedError",
    "SpoutConfig",
    "SpoutEmission",
    "SpoutHealth",
    "SpoutListener",
    "SpoutOutage",
    "ZookeeperSecurity",
]
