"""What an error asks for, and what it is about. Pure.

An error comes as a message and its remedy. Of one that came through Spark, and of one that an older
version stored, a text "message; remedy" alone is known: no other text is split.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from kinesis_spout.inspection.wording import printable

_DENIED = re.compile(
    r"not authorized to perform: ([a-z]+:[A-Za-z]+)(?: on resource: (arn:[^\s,;]+[^\s,;.]))?"
)
_VERBS = frozenset(
    {"allow", "check", "correct", "enable", "give", "lower", "raise", "repair", "restore", "set"}
    | {"start", "use", "ask", "create", "get", "install", "keep", "leave", "let", "make", "name"}
    | {"pass", "put", "register", "remove", "run", "see", "split", "stop", "try", "upgrade", "wait"}
)
_AND_START = re.compile(r",? and start the (?:job|query) again\b")  # an action of its own


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
        clauses = message.split("; ")
        first = len(clauses)
        while first > 1 and _is_remedy(clauses[first - 1]):
            first -= 1
        message, remedy = "; ".join(clauses[:first]), "; or, ".join(clauses[first:])
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
