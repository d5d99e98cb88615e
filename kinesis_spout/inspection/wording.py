"""Times, positions and errors as people read them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from kinesis_spout.config import duration
from kinesis_spout.errors import (
    AccessDeniedError,
    DataLossError,
    KeyAccessError,
    ServiceUnavailableError,
)
from state.errors import StoreAccessError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Of the 56 digits of a sequence number. The last ones tell records apart.
SHOWN_DIGITS = 12
MAX_REASON = 80
_BRIEF_DIGITS = 8
_TIME = re.compile(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d)")
_SHARD_PREFIX = "shardId-"
# Controls, formats (bidirectional overrides, zero widths, soft hyphens, tags), separators of lines,
# surrogates and what Unicode says is no character. A terminal hides them, reorders the text around
# them, or reads them as something else; an encoder refuses some.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u115f\u1160"
    "\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-"
    "\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|["
    + "".join(
        f"{chr(plane * 0x10000 + 0xFFFE)}-{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(1, 17)
    )
    + "]"
)


def moment(time_ms: int, now_ms: int) -> str:
    """The time of day in UTC, with the date if it is another day than now's."""
    found, now = (datetime.fromtimestamp(one / 1000, UTC) for one in (time_ms, now_ms))
    return f"{found:%H:%M:%S}" if found.date() == now.date() else f"{found:%Y-%m-%d %H:%M:%S}"


def shortened(position: str) -> str:
    """A position with the last digits of its sequence number, which tell it from others."""
    kind, colon, number = position.rpartition(":")
    if not number.isdigit() or len(number) <= SHOWN_DIGITS:
        return position
    return f"{kind}{colon}..{number[-SHOWN_DIGITS:]}"


def brief(position: str) -> str:
    """A position or a checkpoint in twelve columns."""
    number = position.rpartition(":")[2]
    if number.isdigit() and len(number) > SHOWN_DIGITS:
        return f"..{number[-_BRIEF_DIGITS:]}"
    if time := _TIME.match(position):
        return f"{time[1]} {time[2]}"
    return {"TRIM_HORIZON": "oldest", "SHARD_END": "end"}.get(position, position[:12])


def short_shard(shard_id: str) -> str:
    """`12` for shardId-000000000012; another id as it is."""
    number = shard_id.removeprefix(_SHARD_PREFIX)
    return str(int(number)) if number != shard_id and number.isdigit() else shard_id


def are(count: int, one: str = "is", more: str = "are") -> str:
    """The word that fits the number."""
    return one if count == 1 else more


def counted(count: int, noun: str) -> str:
    """`1 shard`, `1,234 shards`."""
    return f"{count:,} {noun}{are(count, '', 's')}"


def records(count: int) -> str:
    return counted(count, "record")


def joined(numbers: Iterable[object]) -> str:
    """`1`, `1 and 2`, `1, 2 and 3`."""
    *rest, last = map(str, numbers)
    return f"{', '.join(rest)} and {last}" if rest else last


def quoted(reason: str) -> str:
    """A reason on one line, its beginning if it is long. Safe to print."""
    line = " ".join(reason.split())
    return repr(line if len(line) <= MAX_REASON else f"{line[:MAX_REASON]}...")


def shards_named(shard_ids: Sequence[str], most: int = 5) -> str:
    """`shard 1`, `shards 1 and 2`, `8 shards (1, 2, 3, 4, 5 and 3 more)`."""
    names = [short_shard(one) for one in shard_ids[:most]]
    if len(shard_ids) > most:
        more = len(shard_ids) - most
        return f"{len(shard_ids):,} shards ({', '.join(names)} and {more:,} more)"
    if len(names) > 2:
        return f"{len(names)} shards ({joined(names)})"
    return f"shard{'' if len(names) == 1 else 's'} {joined(names)}"


def cut_expiry(lost_ms: int | None, retention_ms: int, *, is_bound: bool = False) -> str:
    """In what time records expire, in a table: `-`, `now`, `3 h`, `>24 h`. No record is kept for
    longer than the retention, so a slow loss of pace, which reaches further, is `>` that.
    `is_bound`: of a lag that is an upper bound, records expire later than this.
    """
    if lost_ms is None:
        return "-"
    if lost_ms > retention_ms or (is_bound and lost_ms):
        return f">{duration(min(lost_ms, retention_ms))}"
    return duration(lost_ms) if lost_ms else "now"


def visible(text: str) -> str:
    r"""The text with an escape (`\x00`, `\n`, `\u202e`) for each character that is not seen."""
    return _UNSEEN.sub(lambda found: ascii(found.group())[1:-1], text)


# errors -------------------------------------------------------------------------------------------
class Topic(StrEnum):
    """What an error is about, where that decides what else is to be done."""

    LOSS = "loss"
    ACCESS = "access"
    RIGHT = "right"
    NETWORK = "network"
    COMMAND = "command"
    OTHER = "other"


# By the error's class, whose name is stored with it.
_TOPICS = {
    DataLossError.__name__: Topic.LOSS,
    StoreAccessError.__name__: Topic.ACCESS,
    AccessDeniedError.__name__: Topic.RIGHT,
    KeyAccessError.__name__: Topic.RIGHT,
    ServiceUnavailableError.__name__: Topic.NETWORK,
    "CommandEndedError": Topic.COMMAND,  # that of `consume --exec`
}


def topic_of(error: str | None) -> Topic:
    """Of the name of an error's class; None where an older version stored none."""
    return _TOPICS.get(error or "", Topic.OTHER)
