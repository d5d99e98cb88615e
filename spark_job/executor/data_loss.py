"""What a task says of records that were read before and are past the retention now."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kinesis_spout.errors import DataLossError

if TYPE_CHECKING:
    from spark_job.settings import SourceSettings

log = logging.getLogger("kinesis_spout")


def report_data_loss(shard_id: str, what: str, settings: SourceSettings) -> None:
    """Raise `DataLossError`, or warn where `failOnDataLoss` is false."""
    sentence = (
        f"shard {shard_id} of stream {settings.stream.name}: {what}; the others are past the "
        "stream's retention"
    )
    if settings.fail_on_data_loss:
        raise DataLossError(
            f"{sentence}; set option failOnDataLoss to false to go on with what is left"
        )
    log.warning("%s; going on, as failOnDataLoss is false", sentence)
