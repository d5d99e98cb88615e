"""An error of ours as message and remedy, and what it is about. Pure.

Most errors come with both as fields. Some are known as a text alone: those that reach us through
Spark, those that older versions stored, and the answers to a look. No other code reads a text back.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

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
    RIGHT = "right"
    KEY = "key"
    ACCESS = "access"
    NETWORK = "network"
    START = "start"
    OTHER = "other"


class SplitError(NamedTuple):
    """`remedy`: what the error asks for; None where it asks for nothing."""

    message: str
    remedy: str | None
    topic: Topic


def split(text: str | None, known_remedy: str | None = None) -> SplitError:
    """The error whose message is `text`; without a known remedy, `text` may be "message; remedy",
    where the remedy may have several clauses. Safe to print.
    """
    if text is None:
        return SplitError("an error", None, Topic.OTHER)
    text = text if text.isprintable() else repr(text)
    clauses, remedies = [text], [] if known_remedy is None else [_AND_START.sub("", known_remedy)]
    if known_remedy is None:
        clauses = text.split("; ")
        while len(clauses) > 1 and _is_remedy(clauses[-1]):
            remedies.insert(0, _AND_START.sub("", clauses.pop()))
    remedy: str | None = "; or, ".join(remedies) or None
    denied, topic = _DENIED.search(text), Topic.OTHER
    if denied is not None:
        on = f" on {denied[2]}" if denied[2] else ""
        remedy = f"allow {denied[1]}{on} to the role or user of the job (IAM)"
    text = text if known_remedy is None else f"{text}; {known_remedy}"
    if "fail_on_data_loss" in text or "failOnDataLoss" in text:
        topic = Topic.LOSS
    elif "denies access" in text:
        topic = Topic.ACCESS
    elif "KMS" in text:
        topic = Topic.KEY
    elif denied is not None or "AccessDenied" in text:
        topic = Topic.RIGHT
    elif remedy is not None and remedy.startswith(("check the network", "try again")):
        topic = Topic.NETWORK
    elif remedy is not None and remedy.startswith("start "):
        topic = Topic.START
    return SplitError("; ".join(clauses), remedy, topic)


def _is_remedy(clause: str) -> bool:
    """Whether it begins as one, and was not cut."""
    return clause.split(" ", 1)[0] in _VERBS and not clause.endswith("...")
