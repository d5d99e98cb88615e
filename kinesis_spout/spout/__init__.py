"""The standalone spout: delivers a stream record by record in one Python process."""

from kinesis_spout.spout.config import SpoutConfig
from kinesis_spout.spout.dead_letter import DeadLetter
from kinesis_spout.spout.emission import FailRecordError, SpoutEmission
from kinesis_spout.spout.kinesis_spout import KinesisSpout, SpoutClosedError
from kinesis_spout.spout.listener import SpoutListener

__all__ = [
    "DeadLetter",
    "FailRecordError",
    "KinesisSpout",
    "SpoutClosedError",
    "SpoutConfig",
    "SpoutEmission",
    "SpoutListener",
]
