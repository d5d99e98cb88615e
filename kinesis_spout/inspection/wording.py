"""Times, positions and errors as people read them. Pure.

An error comes as a message and its remedy. Of one that came through Spark, and of one that an older
version stored, a text "message; remedy" alone is known: no other text is split.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.config import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Of the 56 digits of a sequence number. The last ones tell records apart.
SHOWN_DIGITS = 12
MAX_REASON = 80
_BRIEF_DIGITS = 8
_TIME = re.compile(r"\d{4}-(\d\d-\d\d)T(\d\d:\d\d)")
_SHARD_PREFIX = "shardId-"
_DENIED = re.compile(
    r"not authorized to perform: ([a-z]+:[A-Za-z]+)(?: on resource: (arn:[^\s,;]+[^\s,;.]))?"
)
_VERBS = frozenset(
    {"allow", "check", "correct", "enable", "give", "lower", "raise", "repair", "restore", "set"}
    | {"start", "use", "ask", "create", "get", "install", "keep", "leave", "let", "make", "name"}
    | {"pass", "put", "register", "remove", "run", "see", "split", "stop", "try", "upgrade", "wait"}
)
_AND_START = re.compile(r",? and start the (?:job|query) again\b")  # an action of its own


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


def cut_expiry(lost_ms: int | None, retention_ms: int) -> str:
    """In what time records expire, in a table: `-`, `now`, `3 h`, `>24 h`. No record is kept for
    longer than the retention, so a slow loss of pace, which reaches further, is `>` that.
    """
    if lost_ms is None:
        return "-"
    if lost_ms > retention_ms:
        return f">{duration(retention_ms)}"
    return duration(lost_ms) if lost_ms else "now"


def printable(text: str) -> str:
    return text if text.isprintable() else repr(text)


# errors -------------------------------------------------------------------------------------------
class Topic(StrEnum):
    """What an error is about, where that decides what else is to be done."""

    LOSS = "loss"
    ACCESS = "access"
    KEY = "key"
    RIGHT = "right"
    NETWORK = "network"
    START = "start"
    OTHER = "other"


# By words of the error, and else of its remedy; the first counts. An end is stored without the
# class of its error.
_TOPICS = {
    Topic.LOSS: re.compile("fail_on_data_loss|failOnDataLoss"),
    Topic.ACCESS: re.compile("denies access"),
    Topic.KEY: re.compile("KMS"),
    Topic.RIGHT: re.compile("not authorized to perform: [a-z]+:|AccessDenied"),
}
_ABOUT = {"check the network": Topic.NETWORK, "try again": Topic.NETWORK, "start ": Topic.START}


class ErrorText(NamedTuple):
    """`remedy`: what the error asks for; None where it asks for nothing."""

    message: str
    remedy: str | None
    topic: Topic


def error_text(message: str | None, remedy: str | None = None) -> ErrorText:
    """The error; without a remedy, `message` may be the whole text. Safe to print."""
    if message is None:
        return ErrorText("an error", None, Topic.OTHER)
    text = message = printable(message)
    if remedy:
        text = f"{message}; {remedy}"
    else:
        first, *others = message.split("; ")
        remedies = list(takewhile(_is_remedy, reversed(others)))[::-1]
        message = "; ".join([first, *others[: len(others) - len(remedies)]])
        remedy = "; or, ".join(remedies)
    if (denied := _DENIED.search(text)) is not None:
        on = f" on {denied[2]}" if denied[2] else ""
        remedy = f"allow {denied[1]}{on} to the role or user of the job (IAM)"
    remedy = _AND_START.sub("", remedy)
    topics = [topic for topic, words in _TOPICS.items() if words.search(text)]
    topics += [topic for begin, topic in _ABOUT.items() if remedy.startswith(begin)]
    return ErrorText(message, remedy or None, next(iter(topics), Topic.OTHER))


def _is_remedy(clause: str) -> bool:
    """Whether it begins as one, and was not cut."""
    return clause.split(" ", 1)[0] in _VERBS and not clause.endswith("...")
