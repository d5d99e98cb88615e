"""A history is read from JSON as it was written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kinesis_spout.drills.history.events import (
    Fault,
    History,
    Put,
    Step,
    Told,
    decode_history,
    encode_history,
)
from tests.support.drills.made_up_history import MadeUp
from tests.support.drills.short_history import FIRST, SHARD, good, sample, state

LONG = 49_545_115_243_490_985_018_280_067_714_973_144_582_180_062_593_244_200_961
LINES = [
    Told(10, Step.GOT, SHARD, "job-1", LONG, "ann", 0, 1),
    Told(11, Step.GOT, SHARD, "job-2", LONG + 1, "ann", 1, 1, sub=7),
    Told(12, Step.LETTER, SHARD, "job-1", LONG, "ann", 0, 4, "not yet ready"),
    Told(13, Step.COMMIT, SHARD, "job-2"),
    Told(14, Step.ACK, SHARD, "job-2", LONG + 1, sub=0),
]
SHORT = replace(
    good(),
    puts=[Put("ann", 0, SHARD, LONG, 5), Put("ann", 1, SHARD, LONG + 1, 6, 7)],
    told=LINES,
    faults=[Fault("kill -9", 20, 21, run=FIRST, rewinds=True)],
    samples=[sample(7, state(2, 2)), sample(8, state(3)), sample(9)],
    fates_known=False,
    retry_limit=3,
)
EMPTY = History(puts=[], told=[], faults=[], samples=[])


@pytest.mark.parametrize(
    "history",
    [SHORT, EMPTY, MadeUp(records=200, names=("a", "b")).history()],
    ids=["short", "empty", "made up"],
)
def test_a_history_is_read_from_json_as_it_was_written(history: History) -> None:
    assert decode_history(encode_history(history)) == history


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[]", "not the history of a drill"),
        (b"{}", "not the history of a drill"),
        (b'{"format": 2}', "has format 2"),
        (encode_history(SHORT).replace(b"AFTER:", b"ASIDE:"), "not the history of a drill"),
        (encode_history(SHORT).replace(b"10 got", b"ten got"), "invalid literal"),
    ],
)
def test_another_text_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        decode_history(data)
