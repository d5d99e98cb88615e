"""The tracker's theory of operation, and its two tables.

What is tracked. Each record that was emitted and may still be needed is a node. The nodes stand in
a doubly linked list in the order of their emission, which is the order of their sequence numbers,
and in a hash map, so that each event finds its node and touches at most its two neighbours. A node
may stand for a span of records that were emitted together.

The life of a node. Emitting makes it PENDING. A failure makes it QUEUED until its retry is due, or
EXHAUSTED if it may not be tried again: the caller then writes it to the dead letter and says so.
PENDING, QUEUED and EXHAUSTED are all *unresolved*: the checkpoint does not pass them. A retry gives
the node back its PENDING state in its old place. `TRANSITIONS` holds every event that is allowed;
any other raises and changes nothing.

    event           PENDING     QUEUED      EXHAUSTED   ACKED
    RETRY           -           PENDING     -           -
    ACK             ACKED       ACKED       ACKED       -
    FAIL            QUEUED      -           -           -
    EXHAUST         EXHAUSTED   EXHAUSTED   -           -
    DEAD_LETTER     -           -           ACKED       -

Which outcome counts. An emission is a record and an attempt. An ack counts whatever attempt it is
for, as long as the record is unresolved: it was processed. A failure counts for the latest attempt
only, and once. Outcomes that do not count never reach the table. A failure may be told not to count
as an attempt (an outage's, not the record's): the event is FAIL all the same.

What an ack leaves behind. Everything before the first node is acked, so when the first node is
acked, the checkpoint moves. An acked node behind an unresolved one is kept, because the checkpoint
will have to jump to it; of a run of acked nodes the highest is enough. So the first node is never
acked, and no two neighbours are. `CELLS` says what the ack of a node does, by its neighbours:

    before       after: acked                after: unresolved      after: none
    none         drop self and after,        drop self,             drop self,
                 checkpoint = after          checkpoint = self      checkpoint = self
    unresolved   drop self                   keep self              keep self
    acked        drop self and before        drop before            drop before

Spans. Of a span only the first and the last sequence number are known (s - 1 is not a sequence
number), and those of the records that are split out of it because they failed. So the checkpoint is
the greatest *known* number below the first unresolved one: a true lower bound. What must be
delivered again is exact all the same: it goes by read position and unresolved records. A pending
span that fails in part is split: each record, or run of records that follow each other, that is not
acked becomes a PENDING node of its own, and then meets its own event. Only a pending span is split:
when it has failed since, a late word on a part of it is ignored, and all of it comes again.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class NodeState(Enum):
    # Members are singletons, so identity is equality. Enum's own hash is a Python function and
    # would be called several times for each record.
    __hash__ = object.__hash__

    PENDING = "pending"
    QUEUED = "queued"
    EXHAUSTED = "exhausted"
    ACKED = "acked"
    NONE = "none"  # the list's sentinel: no node there


class Event(Enum):
    __hash__ = object.__hash__

    RETRY = "retry"
    ACK = "ack"
    FAIL = "fail"
    EXHAUST = "exhaust"
    DEAD_LETTER = "dead letter"


TRANSITIONS = {
    (Event.RETRY, NodeState.QUEUED): NodeState.PENDING,
    (Event.ACK, NodeState.PENDING): NodeState.ACKED,
    (Event.ACK, NodeState.QUEUED): NodeState.ACKED,
    (Event.ACK, NodeState.EXHAUSTED): NodeState.ACKED,
    (Event.FAIL, NodeState.PENDING): NodeState.QUEUED,
    (Event.EXHAUST, NodeState.PENDING): NodeState.EXHAUSTED,
    (Event.EXHAUST, NodeState.QUEUED): NodeState.EXHAUSTED,
    (Event.DEAD_LETTER, NodeState.EXHAUSTED): NodeState.ACKED,
}


class Neighbour(Enum):
    """What a neighbour is to an ack."""

    __hash__ = object.__hash__

    NONE = "none"
    UNRESOLVED = "unresolved"
    ACKED = "acked"


SEEN_AS = {
    NodeState.PENDING: Neighbour.UNRESOLVED,
    NodeState.QUEUED: Neighbour.UNRESOLVED,
    NodeState.EXHAUSTED: Neighbour.UNRESOLVED,
    NodeState.ACKED: Neighbour.ACKED,
    NodeState.NONE: Neighbour.NONE,
}

# Places around the acked node, as indexes into (before, self, after).
BEFORE, SELF, AFTER = range(3)


class Cell(NamedTuple):
    """The places whose nodes are dropped, and the place (if any) whose number becomes the
    checkpoint.
    """

    drop: tuple[int, ...]
    checkpoint: int | None = None


CELLS = {
    (Neighbour.NONE, Neighbour.ACKED): Cell((SELF, AFTER), checkpoint=AFTER),
    (Neighbour.NONE, Neighbour.UNRESOLVED): Cell((SELF,), checkpoint=SELF),
    (Neighbour.NONE, Neighbour.NONE): Cell((SELF,), checkpoint=SELF),
    (Neighbour.UNRESOLVED, Neighbour.ACKED): Cell((SELF,)),
    (Neighbour.UNRESOLVED, Neighbour.UNRESOLVED): Cell(()),
    (Neighbour.UNRESOLVED, Neighbour.NONE): Cell(()),
    (Neighbour.ACKED, Neighbour.ACKED): Cell((BEFORE, SELF)),
    (Neighbour.ACKED, Neighbour.UNRESOLVED): Cell((BEFORE,)),
    (Neighbour.ACKED, Neighbour.NONE): Cell((BEFORE,)),
}


class Effect(Enum):
    """What an outcome did."""

    ACKED = "acked"  # the record is resolved
    QUEUED = "queued"  # it failed and waits for its retry
    EXHAUSTED = "exhausted"  # it failed and may not be tried again: dead-letter it
    IGNORED = "ignored"  # a failure of an emission that had its outcome, or of an earlier attempt
    UNKNOWN = (
        "unknown"  # no such emission of an unresolved record: never made here, or resolved already
    )
