"""What a drill and the processes of its job agree on: their arguments, and the file in which a
process tells what it does.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from enum import StrEnum
from inspect import signature
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from kinesis_spout.config import AwsConfig
from kinesis_spout.drills.history.events import NO_NUMBER, Step, Told
from kinesis_spout.drills.setting import Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from kinesis_spout.dead_letter.letter import Letter

REGION = "us-east-1"
APPLICATION = "drill"
RETRY_LIMIT = 3
RETRY_FIRST_DELAY = "200ms"
RETRY_MAX_DELAY = "1s"
SCRATCH = "scratch"  # the parameter of a user's function that gets the directory
SCRATCH_VARIABLE = "KINESIS_SPOUT_DRILL_SCRATCH"
POISON = ("key-5", 195)  # among the first hundreds of records
Delivered: TypeAlias = "tuple[str, str, bytes | None, str | None]"
"""Shard, sequence number, data and partition key of a record."""


def aws_of(*, region: str | None, endpoint: str | None, is_local: bool) -> AwsConfig:
    """`is_local`: the endpoint takes any credentials, and those of the environment are not for it.
    Otherwise botocore looks for credentials.
    """
    made_up = "test" if is_local else None
    return AwsConfig(
        region=region, endpoint_url=endpoint, access_key_id=made_up, secret_access_key=made_up
    )


def takes_scratch(function: Callable[..., object]) -> bool:
    """Whether the function has a parameter for the scratch directory."""
    try:
        return SCRATCH in signature(function).parameters
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return False


class Outage(StrEnum):
    """What the job writes to does not answer: its function fails as a whole, or for each record; or
    the function for dead letters does.
    """

    SINK = "sink"
    RECORDS = "records"
    LETTERS = "letters"


class JobArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Of one start of a process of the job.

    - `setting`: of the drill. A consumer with enhanced fan-out has the application's name.
    - `is_local`: the endpoint takes any credentials, and has no limits.
    - `path`: the file for its lines. `seed`: of the answers of a spout.
    - `out`: the directory for the job's parquet. `checkpoint`: that of Spark's own log. `scratch`:
      the one that the user's function may write to.
    - `outages`: a directory. While it has a file with the name of an `Outage`, there is that one.
    """

    setting: Setting
    stream: str
    aws: AwsConfig
    is_local: bool
    zookeeper: str
    session_timeout_s: float
    task: int
    tasks: int
    seed: int
    path: str
    out: str
    checkpoint: str
    scratch: str
    outages: str


class Ending:
    """`is_due`: the process is to end in order, since it got SIGTERM, or its stdin ended: the drill
    that started it is gone then.
    """

    def __init__(self) -> None:
        self.is_due = False
        self.listen()
        threading.Thread(target=self._wait_for_the_drill, daemon=True).start()

    def listen(self) -> None:
        """Again, where something else has taken the signal."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "is_due", True))

    def _wait_for_the_drill(self) -> None:
        while os.read(0, 1):
            pass
        self.is_due = True


class Teller:
    """Appends lines to a file, each in one write: a kill loses none that was written."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def tell(self, *told: Told) -> None:
        os.write(self._file, b"".join(one.line() + b"\n" for one in told))


def told(step: Step, record: Delivered, attempt: int, reason: str = "") -> Told:
    """The line of a record, of now."""
    shard_id, sequence_number, data, partition_key = record
    named = int(sequence_number), *key_and_number(data, partition_key)
    return Told(time.monotonic_ns(), step, shard_id, "", *named, attempt, reason)


def letter_told(letter: Letter) -> Told:
    """The line of a dead letter."""
    record = letter.shard_id, letter.sequence_number, letter.data, letter.partition_key
    return told(Step.LETTER, record, letter.attempts, letter.reason or "")


def key_and_number(data: bytes | None, partition_key: str | None) -> tuple[str, int]:
    """What a producer of a drill wrote into the record, `key number ...`. For any other payload its
    partition key and -1: the put with its sequence number has the number.
    """
    words = (data or b"").split(b" ", 2)
    if len(words) == 3 and words[1].isdigit():
        return words[0].decode(errors="replace"), int(words[1])
    return partition_key or "?", NO_NUMBER


def is_poison(data: bytes | None) -> bool:
    """Whether this is the record that kills its process in a drill that says so."""
    return key_and_number(data, None) == POISON
