"""The tracker's theory of operation, and its table as data.

Nodes. Each record that was emitted and may still be needed is a node. The nodes form a doubly
linked list in emission order, which is the order of the sequence numbers. A hash map finds a node
by its first number. So an event touches one node and at most its two neighbours. Resolved records
leave the map, so its size follows the unresolved records, not the read ones. A node may stand for a
span: several records that were emitted together.

States. An emission makes a node PENDING. A failure makes it QUEUED until its retry is due, or
EXHAUSTED if the retry policy allows no retry. The caller writes an exhausted record to the dead
letters and reports that. A retry makes the node PENDING again, in its old place in the list.
PENDING, QUEUED and EXHAUSTED are the *unresolved* states: the checkpoint does not pass them.
`TRANSITIONS` has every event that is allowed. Any other event raises and changes nothing.

    event           PENDING     QUEUED      EXHAUSTED   ACKED
    RETRY           -           PENDING     -           -
    ACK             ACKED       ACKED       ACKED       -
    FAIL            QUEUED      -           -           -
    EXHAUST         EXHAUSTED   EXHAUSTED   -           -
    DEAD_LETTER     -           -           ACKED       -

Outcomes. An outcome names an emission: a record and an attempt. An ack counts for any attempt, as
long as the record is unresolved, because the record was processed. A failure counts for the latest
attempt only, and only once. An outcome that does not count never reaches the table. A failure that
the record did not cause, as in an outage, is the same event FAIL: it queues the record without
counting an attempt.

Acks and the checkpoint. Every record before the first node is acked. So when the first node is
acked, the checkpoint moves over it. An acked node after an unresolved one is kept: the checkpoint
will have to jump to it. Of a run of acked nodes, the last is enough. Hence two invariants: the
first node is never acked, and no two neighbours are both acked. An ack restores both: it drops all
nodes of its run but the last, and that one too if it is now the first node; the checkpoint is then
its end. The checkpoint cannot move further: by the second invariant, the next node is unresolved.

Aggregates. The user records of an aggregate are records like others: each is a node, in the order
of the sub-sequence numbers, and has its own events. The checkpoint counts Kinesis records. So while
a user record of the aggregate that it would lie in is unresolved, or not emitted yet, it is the
greatest known number below that aggregate. An acked node remembers that number (`Node.below`) when
lower ones collapse into it.

Spans. The tracker knows the first and the last sequence number of a span. It does not know the ones
between them, except for records that were split out because they failed: sequence numbers are not
consecutive. So the checkpoint is the greatest *known* number below the first unresolved record, a
true lower bound. Redelivery is exact all the same: it uses the read position and the unresolved
records, not the checkpoint. When a pending span fails in part, it is split: each record, or range
of consecutive records, that is not acked becomes a PENDING node of its own and then has its own
event. Only a pending span is split. Once the span has failed as a whole, a late outcome for a part
of it is ignored, and all of it is delivered again.
"""

from __future__ import annotations

from enum import Enum


class NodeState(Enum):
    """The state of a node."""

    # Enum's own hash is a Python function, and it would be called several times for each record.
    # Members are singletons, so the hash of the identity is right as well.
    __hash__ = object.__hash__

    PENDING = "pending"
    QUEUED = "queued"
    EXHAUSTED = "exhausted"
    ACKED = "acked"
    NONE = "none"  # of the list's sentinel


class Event(Enum):
    """An event of a node. EXHAUST is a failure, or a retry that came due, after which the policy
    allows no further delivery.
    """

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


class Effect(Enum):
    """The effect of an outcome on its record."""

    ACKED = "acked"  # the record is resolved
    QUEUED = "queued"  # the record failed and waits for its retry
    EXHAUSTED = "exhausted"  # the record failed and may not be retried: dead-letter it
    IGNORED = "ignored"  # a failure of an earlier attempt, or of one that has its outcome already
    UNKNOWN = "unknown"  # no such emission: never made here, or its record is resolved already
