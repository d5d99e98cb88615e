"""A fault of PutRecords: one record of each request is refused, and the others are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kinesis_spout.testing import alter
from kinesis_spout.testing.service.answers import PutRecordsEntryAnswer

if TYPE_CHECKING:
    from kinesis_spout.testing import Fault
    from kinesis_spout.testing.service.answers import PutRecordsAnswer


def refuse(index: int, code: str) -> Fault:
    """The record at `index` is refused, and so is the first one of a shorter request."""

    def with_refusal(answer: PutRecordsAnswer) -> PutRecordsAnswer:
        records = list(answer.records)
        at = index if index < len(records) else 0
        records[at] = PutRecordsEntryAnswer(error_code=code, error_message="by a fault plan")
        return msgspec.structs.replace(answer, failed_record_count=1, records=records)

    return alter(with_refusal)
