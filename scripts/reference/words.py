"""The sentences of the reference that the code does not hold. Written by hand; nothing else is.

Each mapping is keyed by a name of the code. `tests/docs/test_reference.py` fails for a name without
an entry, and for an entry without a name. Values are inline Markdown.
"""

from __future__ import annotations

from typing import NamedTuple

from kinesis_spout.service.permissions import PERMISSIONS, Use

# columns ------------------------------------------------------------------------------------------

COLUMNS = {
    "streamName": "the stream's name; in a query of several streams of which two have the same "
    "name, the stream's ARN",
    "shardId": "the shard's id; other streams have shards with the same ids",
    "sequenceNumber": "the sequence number, in decimal; compare it as a number, not as text",
    "subSequenceNumber": "the number of a user record in its aggregate, from 0; 0 for a record "
    "that is not part of one",
    "partitionKey": "the partition key that the producer gave",
    "data": "the payload, as the producer sent it",
    "approximateArrivalTimestamp": "the time at which Kinesis accepted the record",
    "attempt": "which delivery of the record this is: 1 for the first",
    "messageId": "`shardId:sequenceNumber:attempt`; in an aggregate, from the second user record "
    "on, `shardId:sequenceNumber.subSequenceNumber:attempt`; in a query of several streams, the "
    "stream and a `/` before it",
}

# SpoutConfig --------------------------------------------------------------------------------------

SPOUT_FIELDS = {
    "aws": "how to reach and sign in to AWS: an `AwsConfig`",
    "commit_interval_s": "how often shard states are stored",
    "fetch_concurrency": "how many shards are read at the same time",
    "rate": "calls and bytes per second for each shard: a `ReadRate`",
    "listeners": "objects that are called at each event: `SpoutListener`",
    "max_idle_poll_s": "the longest pause between two polls of an idle shard",
    "idle_wait": "how long `emissions` sleeps when there is no record: a function of the number of "
    "waits in a row",
    "limit_wait": (
        "how long `emissions` sleeps when `max_pending` is reached: a function of the number of "
        "waits in a row"
    ),
}

# command line -------------------------------------------------------------------------------------

EXIT_CODES = {
    "0": "done",
    "1": "an error: one sentence on stderr says what is wrong, where, and what to do; `drill`: a "
    "promise was broken, too; `status`: stalled, losing, or no state; `checkpoint set`: it "
    "would skip records; `pause --wait`: records may still be in flight at the timeout",
    "2": "wrong usage: an unknown option, a missing argument, a value out of bounds; `status`, "
    "`explain` and `checkpoint`: no such stream, too",
    "3": "Kinesis or ZooKeeper cannot be reached",
    "4": "another process owns the application",
    "130": "stopped by SIGINT (Ctrl-C)",
    "141": "the reader of stdout has gone away, as `head` does",
    "143": "stopped by SIGTERM",
}

# ZooKeeper ----------------------------------------------------------------------------------------


class Node(NamedTuple):
    """A node of the application's tree: the struct that it holds (None: a folder, or the text that
    `content` describes), what it says, and who writes it.
    """

    struct: str | None
    content: str
    writer: str


NODES = {
    "stream": Node(
        "StreamIdentity",
        "which stream this state belongs to. A stream that was deleted and created again under the "
        "same name is refused",
        "the first owner, once",
    ),
    "start": Node("StartPin", "where the application started", "the first owner, once"),
    "owner": Node(
        "OwnerInfo",
        "which process consumes. The node is ephemeral if its owner is a Spark driver or a "
        "single spout. If several tasks share the application, it is persistent and holds "
        "[`Tasks`](#znode-tasks)",
        "the owner, when it acquires the application",
    ),
    "owner/<i>-of-<n>": Node(
        "OwnerInfo", "the process that holds share i of n; ephemeral", "that task of the spout"
    ),
    "reset": Node(
        "OwnerInfo",
        "who removed the state of the application, and when; the node is removed when the "
        "application starts again",
        "`kinesis-spout reset`",
    ),
    "epoch": Node(
        None,
        "a number. Each new owner increases it. Every write checks the node's version, so a "
        "process that was replaced writes nothing",
        "each new owner",
    ),
    "epoch/<i>-of-<n>": Node(None, "the same for share i of n", "each new task of that share"),
    "epoch/unclosed-<i>-of-<n>": Node(
        None,
        "how many spouts of share i of n in a row have ended without being closed",
        "that task of the spout",
    ),
    "epoch/lister": Node(
        "Leader", "which task writes `shardList`", "the task that takes over the listing of shards"
    ),
    "shardList": Node(
        "StoredShardList",
        "the shards of the stream at the last listing. The tasks of a spout watch this node",
        "the owner, or the task that `epoch/lister` names",
    ),
    "<shardId>": Node(None, "a folder", "the owner"),
    "<shardId>/state": Node(
        "StoredShardState",
        "checkpoint, read position and the records that wait for a retry. Path and `checkpoint` "
        "are those of the AWS Kinesis Storm spout",
        "the owner, when it stores the outcomes of a batch, or when the spout commits",
    ),
    "plan": Node("PlanPointer", "the newest plan and its status", "the Spark driver"),
    "tracked": Node(
        "StoredPolicy",
        "present where records are tracked one by one: how failed records are treated",
        "the Spark driver, when a tracked query starts",
    ),
    "paused": Node(
        "Pause",
        "present while the application is paused: the node pauses the application whatever its "
        "content is; it says who paused the application, and why",
        "`kinesis-spout pause`, which needs no ownership; `resume` removes it",
    ),
    "history": Node(
        "HistoryHead",
        "the number of the next entry of the history. The version of the node shows whether "
        "another process has written in between",
        "who writes an entry",
    ),
    "history/<number>-<timeMs>-<kind>-<part>-of-<parts>": Node(
        "StoredHistoryEntry",
        "an entry of the history, compressed (zlib): at this time by the service's clock, all "
        "records of each shard before its position were acked. `full`: all shards; `changes`: "
        "the shards that have changed since the previous entry; `moved`: an operator has moved "
        "the application",
        "the owner, or the task that `epoch/lister` names, at most every 10 s; "
        "`kinesis-spout checkpoint`",
    ),
    "runs": Node(None, "a folder", "the owner"),
    "runs/all": Node(
        "RunLog",
        "the last runs of owners of the whole application: their settings, why the newest run "
        "waits, and how they ended. They are for people and for `kinesis-spout explain`; no "
        "process bases a decision on them",
        "the owner, when it starts, when it ends, and when it begins or ceases to wait; the main "
        "process of a Spark driver, when the query ends",
    ),
    "runs/<i>-of-<n>": Node(
        "RunLog", "the same for share i of n", "that task of the spout, likewise"
    ),
    "batches": Node(None, "a folder", "the Spark driver"),
    "batches/<planId>": Node(
        "PlanHeader",
        "the plan of one batch. Version 0 is an open plan; closing the plan writes the node "
        "once more",
        "the Spark driver",
    ),
    "batches/<planId>/<task>": Node(
        "TaskPlan", "the part of the plan that one task reads", "the Spark driver"
    ),
    "batches/<planId>/<task>/end": Node(
        "TaskLog",
        "entries on the records that the task read and hands over, in this order; nothing "
        "is appended to a sealed log",
        "the executor that runs the task",
    ),
    "batches/<planId>/<task>/begun": Node(
        None,
        "empty; shows that the task has begun its `end`, so that a removed `end` is not "
        "begun again",
        "the executor that runs the task",
    ),
    "batches/<planId>/report": Node(
        "ReportHeader",
        "the outcomes (acked or failed) of the records of a tracked batch",
        "the driver's process of `foreachBatch`",
    ),
    "batches/<planId>/report/<token>-<version>-<part>": Node(
        "ReportPart",
        "a part of a report that does not fit into one node",
        "the driver's process of `foreachBatch`",
    ),
}

FIELDS = {
    "Pause": {
        "by": "who paused the application",
        "sinceMs": "when the pause began, by the clock of that machine",
        "reason": "the reason that was given",
        "format": "format of the value",
    },
    "RunLog": {
        "runs": "the last runs, oldest first, at most 10",
        "hold": "why the newest run gives its program no record, though it has some",
        "triggerMs": "the interval of the Spark query's trigger, as configured or as observed",
        "throttled": "the shards whose reads the service refused last, at most 20",
        "refusedLetters": "the dead letters that `dead_letter` of a spout currently refuses",
        "notSubscribed": "why shards that should be read by subscription have none",
        "failingReads": "reads of a spout that get no answer, or fail and are tried again",
        "noAnswers": "a spout's program that acks or fails none of its records",
        "format": "format of the value",
    },
    "Run": {
        "owner": "the process",
        "kind": "`spark` or `spout`",
        "sessionTimeoutMs": "how long ZooKeeper keeps the session of the process after its death",
        "shards": "the only shards that the run reads; none for all. Kept for the newest run",
        "readMode": "`polling` or `efo`",
        "maxPending": "the most records that may be in flight (spout)",
        "maxRecords": "the most records of a batch (Spark), or of the whole run (spout)",
        "maxUnresolvedPerShard": (
            "how many unresolved (failed or waiting) records of a shard hold its new ones back"
        ),
        "maxAttempts": "a record becomes a dead letter after this many deliveries (spout)",
        "maxAgeMs": "a record also becomes a dead letter this long after its first failure (spout)",
        "tellsErrors": "whether an error of the query's sink or function would be reported (Spark)",
        "messageTimeoutMs": (
            "how long a record may be in flight before it fails; 0: for ever (spout)"
        ),
        "readsPerSecond": (
            "the most reads of a shard per second, if the run allows fewer than the service"
        ),
        "bytesPerSecond": (
            "the most bytes of a shard per second, if the run allows fewer than the service"
        ),
        "end": "how the run ended; none while it runs, and if the process was killed",
    },
    "RunEnd": {
        "timeMs": "when the run ended, by the clock of its machine",
        "kind": "`stopped`: somebody stopped it; `done`: nothing was left to do; `failed`",
        "says": "what was wrong and where, without secrets, at most 500 characters; for a run "
        "that is `done`, what remains for the next run",
        "remedy": "what to do about it; none if nothing is known, or if `says` contains it",
        "error": "the class of the error; none if an older version wrote this",
    },
    "RefusedLetters": {
        "count": "how many dead letters",
        "lastMs": "when the last one was refused, by the owner's clock",
        "says": "the last error's sentence, without secrets, at most 500 characters",
    },
    "ReadTrouble": {
        "sinceMs": "since when, by the owner's clock",
        "says": "the last error's sentence, without secrets, at most 500 characters; none if no "
        "service answers",
        "remedy": "what to do about it",
        "error": "the class of the error; none if an older version wrote this",
    },
    "NoAnswers": {
        "sinceMs": "since when, by the owner's clock",
        "count": "how many deliveries have timed out since then",
    },
    "Throttle": {
        "count": "how many reads of the shard were refused since the run began",
        "lastMs": "when the last read was refused, by the owner's clock",
    },
    "Hold": {
        "kind": "`deactivated`: the program called `deactivate()`; `full`: `max_pending` records "
        "are in flight; `not taken`: records are there, and the program does not ask for "
        "any",
        "sinceMs": "since when",
    },
    "HistoryHead": {
        "next": "the number of the next entry",
        "format": "format of the history",
    },
    "StoredHistoryEntry": {
        "positions": "for each shard, its position: every record before it was acked",
        "cause": (
            "the command that moved the application; none if the job's own progress was stored"
        ),
        "format": "format of the entry",
    },
    "StreamIdentity": {
        "arn": "the stream's ARN",
        "name": "the stream's name",
        "createdMs": "when the stream was created",
        "format": "format of the value",
    },
    "StartPin": {
        "timeMs": "the service's time when the start was decided",
        "wish": "the starting position as the user wrote it",
        "position": "where the shards in `shards` start",
        "shards": "the shards that the stream had then; later ones start at TRIM_HORIZON",
        "shardPositions": "positions of single shards, by shard id",
        "importing": "`checkpoint import` is under way or was interrupted: nobody reads from here",
        "format": "format of the value",
    },
    "OwnerInfo": {
        "host": "the machine",
        "pid": "the process",
        "sinceMs": "when it acquired the application",
        "hostIdentity": "kernel and pid namespace: a successor there can see that the holder died",
        "processStart": "start of the process in the kernel's ticks: tells a reused pid",
    },
    "Tasks": {
        "totalTasks": "into how many shares the application is divided",
        "format": "format of the value",
    },
    "Leader": {
        "task": "the task, as `<i>-of-<n>`",
        "epoch": "the number of that task's ownership",
        "format": "format of the value",
    },
    "StoredShardList": {"shardList": "shard ids"},
    "StoredShardState": {
        "checkpoint": "everything up to this sequence number is acked; `SHARD_END` of a finished "
        "shard",
        "lastCheckpoint": "the last sequence number of a finished shard",
        "readPosition": "where the next read begins",
        "unresolved": "records between `checkpoint` and `readPosition` that have failed or wait",
        "reasons": "reasons that several of these share",
        "userRecords": "whether these records are marked as user records of aggregates; an "
        "earlier version set no mark, and delivered aggregates as they were",
        "lifecycle": "`active`; `drained`: read to the end, records wait; `finished`: all acked",
        "parents": "the shards that this one continues",
        "settledPlan": "the last plan whose outcomes are in this state",
        "verifiedUntilMs": "service time up to which no record can have been missed",
        "atTip": "whether the last read reached the tip",
        "format": "format of the value; 0 is a value of the AWS Kinesis Storm spout",
    },
    "Row": {
        "0": "sequence number; for a range: its first number, its last number and its count",
        "1": "failed deliveries so far; failures during an outage do not count",
        "2": "when the next retry may come, ms since 1970",
        "3": "first failure, ms since 1970",
        "4": "last failure, ms since 1970",
        "5": "the reason, or its index in `reasons`",
        "6": "a hash of the partition key",
        "7": "waits for an earlier record of its key or shard, and did not fail itself",
        "8": "waits for its dead letter; it is not retried",
        "9": (
            "delivered while aggregates were not unpacked, so its retries are not unpacked "
            "either; left out if false"
        ),
    },
    "UnresolvedRecord": {
        "first": "sequence number, or the first of a range",
        "last": "the last of the range",
        "count": "records of the range",
        "attempts": "failed deliveries so far; failures during an outage do not count",
        "dueMs": "when the next retry may come",
        "firstFailureMs": "first failure, including failures that do not count as attempts",
        "lastFailureMs": "last failure",
        "reason": "the reason",
        "key": "a hash of the partition key",
        "blocked": "waits for an earlier record of its key or shard, and did not fail itself",
        "rejected": "waits for its dead letter; it is not retried",
        "whole": (
            "delivered while aggregates were not unpacked, so its retries are not unpacked either"
        ),
    },
    "PlanPointer": {
        "id": "the plan's id, `<number>-<nonce>`",
        "status": "`open`: tasks may publish; `closed`: no task may publish; `settled`: its "
        "outcomes are in the shard states",
    },
    "PlanHeader": {
        "createdMs": "when the plan was made",
        "tasks": "number of tasks",
        "untilMs": "the service time that an AvailableNow run reads up to",
        "storms": "how many plans in a row, up to this one, were outages",
        "deliveryLimit": "the most records that the function is given, after the function of an "
        "earlier batch never returned",
        "format": "format of the value",
    },
    "TaskPlan": {
        "shards": "the shards to read, in the order of their rows",
        "maxBytes": "payload bytes that the task holds before it publishes",
        "fetchTimeMs": "time after which the task leaves a shard in which it has found records",
        "fetchCapMs": (
            "time after which the task leaves a shard that is behind and in which it has found "
            "nothing"
        ),
        "retentionMs": "the stream's retention when the plan was made",
        "aggregatedRecords": (
            "the value of the option when the plan was made; every attempt uses it"
        ),
        "consumerArn": "the consumer with which the first attempt may subscribe to the shards",
    },
    "ShardSlice": {
        "shardId": "the shard",
        "position": "where the read begins",
        "maxRecords": "the most new records; 0: retries only",
        "iterator": "a hint that saves a GetShardIterator; it may have expired",
        "nextReadMs": "a hint: when the service allows the next read, by the last reader's clock",
        "nextSubscribeMs": "a hint: when the service allows the next subscription",
        "endingSequence": "where a closed shard ends, as ListShards says",
        "retries": "records to read again, before the new ones",
        "verifiedUntilMs": "service time before which no record can have been missed",
        "gone": "the service no longer has the shard, so its retries are gone",
        "hashKeys": "first and last hash key of the shard; user records outside them are left out",
    },
    "PlannedRetry": {
        "first": "sequence number, or the first of a range",
        "last": "the last of the range",
        "count": "records of the range",
        "attempts": "deliveries before this one",
        "exhausted": "the record is read only to write its dead letter",
        "maxRecords": "the most records of the range that this plan reads",
        "whole": (
            "the record was delivered while aggregates were not unpacked, so it is not unpacked "
            "now either"
        ),
    },
    "TaskLog": {
        "entries": (
            "entries; each is on records of one shard, which follow the shard's earlier records"
        ),
        "sealed": "true once nothing more is appended",
        "format": "format of the value; format 1 was one entry for each shard, written once",
    },
    "ShardReadResult": {
        "shardId": "the shard",
        "first": "first sequence number that was read, inclusive",
        "last": "last sequence number that was read, inclusive",
        "count": "how many new records were read",
        "atTip": "the last call reached the tip",
        "tipMs": "the service's time at the last call, or at the shard's end",
        "shardEnd": "the shard ends after `last`",
        "gone": "the service does not know the shard any more; the rest of it was not read",
        "children": "the shards that continue it, as far as the service named them",
        "lastArrivalMs": "arrival time of the record `last`",
        "millisBehindLatest": "`MillisBehindLatest` of the last call",
        "iterator": "a hint for the next read",
        "nextReadMs": "when the service's limits allow the next read, by the reader's clock",
        "nextSubscribeMs": "when the next subscription makes sense, by the reader's clock",
        "throttled": "how many reads the service refused because the shard's limits were used up",
        "pushed": "how many of the records came by a subscription",
        "fallback": "why the shard was polled at the end",
        "retriesDone": "how many of the planned retries were looked for",
        "retryRows": "how many records of retries were found; they are not in `count`",
        "retriesGone": "first numbers of retries of which no record is left",
        "retriesShort": "ranges of which only the later records are left",
        "retryPart": "what was read of the next range, where that was only a part",
        "position": "where the read began",
        "lapsedMs": "service time of a page before which records may have expired unread",
        "users": "the user records that were handed over, where aggregates were unpacked",
        "bytes": "length of the data of these records",
    },
    "ShortRange": {
        "first": "the first sequence number of the range",
        "missing": "how many of its records are past the retention",
    },
    "RangePart": {
        "last": "the last sequence number that was read, inclusive",
        "rest": "the first one that was not read; it stays queued with those behind it",
        "count": "how many records were read",
    },
    "UserRecords": {
        "count": "how many records were handed over",
        "first": "the first of them, with its sub-sequence number",
        "last": "the last of them",
    },
    "ChildShard": {"shardId": "the child", "parents": "its parents"},
    "StoredPolicy": {
        "retryLimit": "retries after the first delivery",
        "firstDelayMs": "delay of the first retry",
        "growth": "factor from one delay to the next",
        "maxDelayMs": "the longest delay",
        "jitter": "the share of the delay that is random",
        "maxAgeMs": "a record whose first failure is older is not retried",
        "onFailure": "`continue`, `block_key` or `block_shard`",
        "format": "format of the value",
    },
    "ReportHeader": {
        "token": "who opened the report",
        "status": "`open`: the batch runs; `done`: its sinks and dead letters are written",
        "report": "counts of the batch",
        "outcomes": "outcomes by shard, where they fit into this node",
        "openedVersion": "the node's version when it was opened; part of the names of the parts",
        "openings": (
            "how often the report was opened without being finished: the batch runs, or its "
            "process died"
        ),
        "parts": "number of parts, where the outcomes do not fit",
        "digest": "SHA-256 of the parts",
        "format": "format of the value",
    },
    "PlanReport": {
        "unresolved": "empty as stored: they are in `outcomes`, or in the parts",
        "tasks": "the tasks whose results the batch has seen; the others are delivered again",
        "deliveryLimit": "the most records that the next plan may give the function, after the "
        "function of a batch never returned",
        "storm": "true if most records failed: it is an outage, and attempts did not count",
        "failed": "deliveries that failed",
        "retried": "failed deliveries that are queued for a retry",
        "exhausted": "failed deliveries that are not tried again",
        "deadLettered": "dead letters that were written",
        "dropped": 'records that `on_exhausted="drop"` dropped',
        "doneMs": "when the report was done",
        "format": "format of the value",
    },
    "ReportPart": {
        "shards": "outcomes by shard",
        "reasons": "reasons that several records share",
        "userRecords": "as in a shard's state",
    },
    "StoredOutcome": {
        "shardId": "the shard",
        "unresolved": "records of it that failed; all others of the plan are acked",
    },
}

# metrics ------------------------------------------------------------------------------------------

PROGRESS = {
    "format": "format of the report",
    "application": "name of the application",
    "stream": "name of the stream",
    "plan": "the newest plan",
    "retentionMs": "how long the stream keeps a record, in ms",
    "dataLosses": "reports of this run that records may be lost",
    "emitted": "rows of the settled batches of this run, retries included",
    "retried": "rows of those batches that were retries",
    "acked": "rows of those batches that were acked",
    "failed": "rows of those batches that failed",
    "dropped": "records that were given up without a dead letter in this run",
    "pushedRecords": "with `readMode` `efo`: new records of this run that came by subscription",
    "polledRecords": "with `readMode` `efo`: new records of this run that came by GetRecords",
    "fallbacks": "with `readMode` `efo`: reads of a shard whose subscription failed, by reason",
    "shards": "for each shard that is not finished: `lagMs`, `emitted`, `retried` and "
    "`unresolved`; empty with more than 100 shards",
    "lagMs": "how far the job is behind, in ms of arrival time; null where that is not known",
    "readableShards": "shards that are open, or that are closed and not yet read to their ends",
    "unresolved": "records that have failed or wait, and are neither acked nor given up yet",
    "retriesWaiting": "unresolved records that wait for a retry",
    "exhausted": "records that were given up in this run",
    "deadLettered": "dead letters that were written in this run",
    "oldestUnresolvedMs": "how long ago the oldest unresolved record failed for the first time",
    "outage": "true while nothing new is read because most records fail",
    "streams": "in a query of several streams, which has only `format` beside it: a report like "
    "this one for each stream",
    "trouble": "in such a query, why the stream is left out of the batches; absent where it is not",
}

# errors -------------------------------------------------------------------------------------------


class Trouble(NamedTuple):
    """Why an error is raised, and the option or command that helps."""

    cause: str
    help: str


ERRORS = {
    "AccessDeniedError": Trouble(
        "An IAM policy, or the policy of the stream's KMS key, does not allow the call.",
        "Attach the policy of your use: [AWS calls](aws.md). The message names the operation.",
    ),
    "AckerError": Trouble(
        "`acker.settle` was not called, was called in a way that loses track of rows, or a sink "
        "wrote other rows than were checked.",
        "Call `acker.settle((frame, write), ...)` once, with all sinks, at the end of the "
        "function. `persist()` a frame that answers differently each time.",
    ),
    "AggregatedRecordError": Trouble(
        "The producer uses the Kinesis Producer Library with aggregation, and the reader is set to "
        "stop at it.",
        "Set [`aggregatedRecords`](options.md) to `unpack`, or to `raw` (`aggregated_records` of "
        "the spout).",
    ),
    "BatchContentError": Trouble(
        "The frame was not made by this query's `read_stream`, was filtered before `tracked`, or "
        "was computed from another plan.",
        "Pass the frame of `read_stream` to `foreachBatch` unchanged, and filter inside the "
        "function.",
    ),
    "CheckpointRegressionError": Trouble(
        "A write is older than the state that is stored.",
        "This is a fault of the program: report it with the message. Nothing was written.",
    ),
    "InterruptedSleepError": Trouble(
        "A spout was closed while a call waited for its next attempt.",
        "Nothing is wrong, and no record is lost. Only the threads of the spout see it.",
    ),
    "LetterRefusedError": Trouble(
        "`dead_letter` raised, or did not return within 30 seconds, for one record. The spout "
        "continues, and keeps the record until its dead letter is written.",
        "Correct `dead_letter`, or the place to which it writes. The dead letter is sent "
        "again within a minute.",
    ),
    "KeyAccessError": Trouble(
        "The KMS key of the stream cannot be used, or not with these credentials.",
        "Enable the key, or allow the use that the message names.",
    ),
    "MoveRefusedError": Trouble(
        "`checkpoint set` names a shard, a record or a time that does not exist, or the end of a "
        "shard that is open.",
        "Give a position that the message allows. `kinesis-spout shards` lists the shards.",
    ),
    "RedriveError": Trouble(
        "The path contains no dead letters, or files of more than one format; or its ledger cannot "
        "be written. Nothing was put.",
        "Give the path of the job's `DeadLetter`, or the file of `consume --dead-letter`, and the "
        "format if the message asks for it.",
    ),
    "DrillError": Trouble(
        "a drill could not be done: the job failed before the drill disturbed it, or never came "
        "to the step at which the drill kills it",
        "read the log of the job; `--keep DIR` keeps it",
    ),
    "CommandEndedError": Trouble(
        "The command of `consume --exec` ended while the stream was still read.",
        "Repair the command. The next run redelivers the records without an answer.",
    ),
    "CliError": Trouble(
        "A command cannot do what it was asked for.",
        "Follow the sentence on stderr; `kinesis-spout --debug COMMAND` shows the traceback.",
    ),
    "ConfigError": Trouble(
        "An option is unknown, malformed, or contradicts another one.",
        "The message names the option and its rule: [options](options.md), "
        "[SpoutConfig](spout-config.md).",
    ),
    "ConflictError": Trouble(
        "Another process changed the same state between a read and a write.",
        "Let one query, or one set of tasks, use an application name. Restart the query: it reads "
        "the state again.",
    ),
    "ConsumerNotFoundError": Trouble(
        "The stream has no consumer of that name or ARN.",
        "`kinesis-spout consumers list STREAM` shows the registered ones. With `consumer_name`, "
        "a spout registers a missing consumer.",
    ),
    "CredentialsError": Trouble(
        "No credentials were found, only half of them, or they are refused or expired.",
        "Set `profile`, `awsAccessKeyId` and `awsSecretAccessKey`, or `roleArn`: "
        "[options](options.md).",
    ),
    "DataLossError": Trouble(
        "Records expired before they were read: the job was stopped, or slower than its input, for "
        "longer than the stream's retention.",
        "Raise the retention of the stream. To accept the loss, set "
        "[`failOnDataLoss`](options.md) to `false`: the log then names what was lost.",
    ),
    "DeadLetterError": Trouble(
        "The dead-letter sink refused the dead letters, or could not be reached.",
        "Repair the sink and start the query again: nothing was acked, so the records of "
        "the batch are delivered again.",
    ),
    "EmbeddedZookeeperError": Trouble(
        "Java or PySpark's jars are missing, the directory cannot be written, or another process "
        "uses it.",
        "Install Java 17 or newer; use a directory of its own per machine; or give the address "
        "of a ZooKeeper server in `zookeeper`.",
    ),
    "ExhaustedRecordError": Trouble(
        "A record used up its retries, or was rejected, and `on_exhausted` is `stop`.",
        'Correct the job or the record. `tracked(on_exhausted="dead_letter", dead_letter=...)` '
        "puts such records aside instead.",
    ),
    "ExpiredIteratorError": Trouble(
        "A shard iterator is older than five minutes.",
        "Readers create a new one by themselves, and raise this error only after the service has "
        "refused new ones for two minutes. If you call the client yourself, ask for a new "
        "iterator at the same position.",
    ),
    "FailRecordError": Trouble(
        "Your code raised it in a `with emission:` block.",
        "The error ends with the block: the record fails, and the loop continues.",
    ),
    "FakeKinesisError": Trouble(
        "Your test uses the fake in a way that the service refuses.",
        "See `ServiceError` and `TransportFaultError`.",
    ),
    "FunctionError": Trouble(
        "The function of a batch raised something that is no `Exception`, such as `SystemExit`, "
        "or an error whose text cannot be sent to Java.",
        "The message names the error, and the log shows where it was raised: correct the function.",
    ),
    "IllegalAckerEventError": Trouble(
        "A tuple was acked or failed twice, an emission was given two outcomes in one `with` "
        "block, or a root does not belong to this acker.",
        "Ack or fail each tuple and emission once, and share one acker between spouts whose "
        "tuples are joined.",
    ),
    "IllegalTrackerEventError": Trouble(
        "A record was acked or failed, and its state does not allow that.",
        "This is a fault of the program: report it with the message, which names shard, sequence "
        "number and state.",
    ),
    "InvalidPositionError": Trouble(
        "A text is not a position.",
        "Use `LATEST`, `TRIM_HORIZON`, an ISO time, `-2h`, `AT:<sequence>` or `AFTER:<sequence>` "
        "in [`startingPosition`](options.md).",
    ),
    "InvalidSequenceNumberError": Trouble(
        "A text is not a sequence number.",
        "Copy it from the record or from `kinesis-spout shards`; it is decimal.",
    ),
    "InvalidStoreSettingError": Trouble(
        "The connect string, or a name of an application, stream or root, cannot be used in "
        "ZooKeeper.",
        "Correct `zookeeper`, `applicationName` or `zookeeperRoot`: [options](options.md).",
    ),
    "KinesisError": Trouble(
        "Root of the errors of `kinesis_spout` and `spark_job`.",
        "Catch it to catch all of these. `retryable` tells transient from final.",
    ),
    "MalformedRecordError": Trouble(
        "A payload cannot be decoded with the scheme.",
        "Correct the producer or the scheme (decoder). If records are tracked, the record "
        "becomes a dead letter at once.",
    ),
    "MalformedResponseError": Trouble(
        "Something other than Kinesis answers at the endpoint, or a proxy changes answers.",
        "Check `endpointUrl` and the proxy.",
    ),
    "MigrationError": Trouble(
        "`kinesis-spout import` cannot read the state of the other consumer, or that state does "
        "not say where the consumer is in a shard.",
        "The message says what to do, for example to pass `--at`. Nothing was changed.",
    ),
    "MissingExtraError": Trouble(
        "A package that only an optional dependency group (extra) installs is missing.",
        "The message says how to install it, from the checkout or wheel at hand.",
    ),
    "NothingAckedError": Trouble(
        "`breaker_failures` records failed and none was ever acked: the fault is in your code or "
        "in a service that it calls.",
        "Repair the fault and start again; nothing is lost. `breaker_failures` sets the number.",
    ),
    "NotListerError": Trouble(
        "Another task took over the role of listing the shards.",
        "You need not do anything: the spout continues with its share.",
    ),
    "OwnedByAnotherError": Trouble(
        "Another process consumes under the same application name. The message names it.",
        "Stop that process, or use another `applicationName`. "
        "[`ownerWait`](options.md) sets how long a start waits.",
    ),
    "PayloadError": Trouble(
        "A scheme (decoder) of your own raised it in `read`: the payload cannot be decoded.",
        "You need not do anything: the record counts as malformed, with this reason.",
    ),
    "PlanClosedError": Trouble(
        "A task finished after the plan of its batch was closed: Spark had given the task up, or "
        "a new driver took over.",
        "You need not do anything: the records of the task are delivered again in a later batch.",
    ),
    "TaskLogError": Trouble(
        "The log that a task has published was changed or removed in ZooKeeper.",
        "Start the query again: the records of a removed log are delivered again. If the error "
        "returns, the nodes of the plan are damaged: remove `batches/<planId>`, and its records "
        "are delivered again in a later batch.",
    ),
    "RequestRefusedError": Trouble(
        "The position is a sequence number of another stream or shard, or a time in the future.",
        "Correct the position in [`startingPosition`](options.md), or reset the application: "
        "`kinesis-spout reset`.",
    ),
    "SchemeDefinitionError": Trouble(
        "The schema text of a scheme (decoder) is not valid.",
        "Correct the DDL text: [schemes](api/schemes.md).",
    ),
    "SchemeError": Trouble("Root of the errors of `scheme`.", "Catch it to catch all of these."),
    "SchemeUnavailableError": Trouble(
        "A service that a scheme (decoder) uses, for example a schema registry, cannot be reached.",
        "Nothing is lost: the record, or the batch, is delivered again. If the error persists, "
        "check the network and the permissions.",
    ),
    "ServiceError": Trouble(
        "The fake answers as the service would: `code` is a code of the API reference.",
        "Correct the call, or expect the error in your test.",
    ),
    "ServiceUnavailableError": Trouble(
        "Kinesis does not answer, answers with a fault of its own, or the stream is being created.",
        "Calls are retried for a minute before this is raised. Check network and endpoint; then "
        "start the query again.",
    ),
    "ShardNotFoundError": Trouble(
        "The shard is past the stream's retention, or belongs to another stream.",
        "`kinesis-spout shards NAME` lists the shards of the stream.",
    ),
    "SpoutClosedError": Trouble(
        "A method of a spout that is not open was called.",
        "Use the spout in a `with` statement, or call `open()` first.",
    ),
    "StaleOwnerError": Trouble(
        "Another process took the application over, after this one's ZooKeeper session lapsed.",
        "Nothing was written. If this process should go on, stop the other one and restart. "
        "Raise [`zookeeperSessionTimeout`](options.md) where pauses of this length are normal.",
    ),
    "SubscriptionInUseError": Trouble(
        "The consumer has another subscription to the shard, or had one within five seconds.",
        "The reader subscribes again. If the error persists, another reader uses the consumer: "
        "give each application [one of its own](../guides/enhanced-fan-out.md).",
    ),
    "SparkConnectError": Trouble(
        "`source.tracked(...)` was given to a query of Spark Connect.",
        "Run the query in a session of its own: [Spark Connect](../guides/spark-connect.md).",
    ),
    "StateError": Trouble(
        "Root of the errors of `state`.",
        "Catch it to catch all of these. `retryable` tells transient from final.",
    ),
    "StateTooLargeError": Trouble(
        "A value is larger than one ZooKeeper node or transaction may be.",
        "Lower [`maxUnresolvedPerShard`](options.md).",
    ),
    "StaleCredentialsError": Trouble(
        "The service has accepted the credentials of a running job before, and refuses them now: "
        "they were replaced or have expired.",
        "Put new credentials where the job finds them. The job looks them up again at each "
        "attempt, and keeps waiting, as it does for a service that does not answer.",
    ),
    "StillThrottledError": Trouble(
        "Other consumers use up the shard's read limits.",
        "Lower [`readsPerSecond`](options.md), move other consumers to enhanced fan-out, or add "
        "shards. The spout waits for ever, unless `give_up_after_s` is set.",
    ),
    "StoredDataError": Trouble(
        "A node in ZooKeeper is damaged, or was written by a newer version.",
        "Upgrade this process, restore the node, or reset the application: `kinesis-spout reset`.",
    ),
    "StoreAccessError": Trouble(
        "ZooKeeper refuses the connection, or access to a node, because of the client's "
        "certificate, identity or permissions.",
        "Correct the option that the message names, or the access control list of the node "
        "(docs: Security).",
    ),
    "StoreUnavailableError": Trouble(
        "ZooKeeper does not answer within the time limit.",
        "Check the servers in `zookeeper` and the network. The query goes on after a restart.",
    ),
    "UnfinishedImportError": Trouble(
        "`checkpoint import` was stopped before its end, so some shards do not have their "
        "imported positions yet.",
        "Run the import again, or remove the state: `kinesis-spout reset`.",
    ),
    "StreamMismatchError": Trouble(
        "The stream was deleted and created again, or the application name was used for another "
        "stream.",
        "Use another `applicationName`, or remove the old state: `kinesis-spout reset`.",
    ),
    "StreamError": Trouble(
        "A query of several streams met an error on one of the streams, and the error "
        "itself does not name the stream.",
        "The text names the stream. Follow the error that comes after the name.",
    ),
    "StreamNotFoundError": Trouble(
        "There is no stream of this name in this region and account.",
        "Check `streamName`, `region` and the credentials' account.",
    ),
    "KeyThrottledError": Trouble(
        "KMS limits the requests for the key that the stream is encrypted with.",
        "Raise the account's KMS request quota, or use the key less. Readers wait and try again.",
    ),
    "ThrottledError": Trouble(
        "A limit of the shard, the account or KMS was hit.",
        "Readers wait and try again. If the error persists, see `StillThrottledError`.",
    ),
    "TransportFaultError": Trouble(
        "A fault plan of your test dropped the connection.",
        "Expect it in your test.",
    ),
    "UnreadableRecordError": Trouble(
        "A record has an arrival time outside the years 1 to 9999, for example from a "
        "faulty emulator.",
        "Repair the server of the stream, or skip the record with the `checkpoint set` command "
        "in the message. The records before it are delivered first.",
    ),
    "UnwritableRecordError": Trouble(
        "A row that is written to a stream has no data, is too large, or has a bad key.",
        "The message names the rule. No row of its Arrow batch was put; the rows before "
        "that batch were put.",
    ),
}

# Exceptions that never reach a user, or that a user raises to name an outcome.
NOT_ERRORS = {
    "DamagedError": "the payloads are read one by one, each with its outcome",
    "Unsupported": "fastavro reads the payloads of the schema, each with its outcome",
    "FetchPostponedError": "the fetch is tried again after a pause",
    "Interrupted": "a signal: the command ends with its exit code",
    "IrregularError": "the payloads are read in smaller parts, in the end one by one",
    "LineError": "`produce` names the line and goes on",
    "PlanMismatchError": "the driver warns, and the records are delivered again",
    "Reject": "an outcome, see the [Spark API](api/spark.md)",
    "RemediedError": "the root of all roots: it has `message` and `remedy`",
    "Retry": "an outcome, see the [Spark API](api/spark.md)",
    "TransactionRefusedError": "the store raises another error in its place",
    "WrongOutputError": "fails the record whose function returned it",
    "_ArrivalTimeError": "becomes an `UnreadableRecordError`",
    "RowsExpiredError": "becomes a warning: the next plan reads the remaining records",
}

# AWS ----------------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One operation of an AWS API: its IAM action, and who calls it how often. `{option}` in a rate
    is the option's default.
    """

    action: str
    callers: dict[str, str]


CALLS = {
    "describe_stream_summary": Call(
        "kinesis:DescribeStreamSummary",
        {
            "Spark driver": "once at the start, then every `shardRefreshInterval` "
            "({shardRefreshInterval})",
            "spout": "once at the start, then every `shard_refresh_interval_s` "
            "({shard_refresh_interval_s} s)",
            "batch read": "once at `load()`, and once before the first action",
            "`kinesis-spout shards`": "once",
            "`kinesis-spout status`, `explain`": "twice, or every 2 s with `--watch`",
            "the sink": "once per write, and once per task",
            "any reader": "once after ResourceNotFoundException, to tell a missing shard from a "
            "missing stream",
        },
    ),
    "list_shards": Call(
        "kinesis:ListShards",
        {
            "Spark driver": "once at the start, then every `shardRefreshInterval` "
            "({shardRefreshInterval}), and at the end of a shard; one call per page "
            "of 1,000 shards",
            "spout": "once at the start, then every `shard_refresh_interval_s` "
            "({shard_refresh_interval_s} s), and at the end of a shard",
            "batch read": "once before the first action, one call per page of 1,000 shards; up to "
            "five times during a resharding",
            "`kinesis-spout shards`": "once",
            "`kinesis-spout status`, `explain`": "twice, or every 2 s with `--watch`",
            "the sink": "once per task, and after a reshard every 10 s at most",
        },
    ),
    "get_shard_iterator": Call(
        "kinesis:GetShardIterator",
        {
            "Spark task": "once per shard and batch without a fresh iterator, and once per range of"
            " retries",
            "Spark driver": "once per idle shard, and again when its iterator expires",
            "spout": "once per shard, after an error, and once per range of retries",
            "batch read": "once per shard and action, and after an error",
            "`kinesis-spout shards --lag`": "once per shard",
            "`kinesis-spout status`, `explain`": "once for up to 100 shards (`--ask`), or every "
            "2 s with `--watch`",
        },
    ),
    "get_records": Call(
        "kinesis:GetRecords",
        {
            "Spark task": "up to `readsPerSecond` ({readsPerSecond}) calls per second for each "
            "shard while there is something to read",
            "Spark driver": "one record per idle shard every `probeInterval` ({probeInterval}), up "
            "to 100 shards",
            "spout": "up to `rate.reads_per_second` ({readsPerSecond}) calls per second for each "
            "shard; for an idle shard, one call every `idle_poll_s` ({idle_poll_s} s) "
            "to `max_idle_poll_s` ({max_idle_poll_s} s)",
            "batch read": "up to `readsPerSecond` ({readsPerSecond}) calls per second for each "
            "shard, to the end of the range",
            "`kinesis-spout shards --lag`": "once per shard",
            "`kinesis-spout status`, `explain`": "once for up to 100 shards (`--ask`), or every "
            "2 s with `--watch`",
        },
    ),
    "subscribe_to_shard": Call(
        "kinesis:SubscribeToShard",
        {
            "spout with `read_mode` `efo`": "once per shard every 5 minutes, and after an error",
            "tasks of a query with `readMode` `efo`": "once per shard and batch, and every 5 s "
            "at most; up to 16 shards of a task at a time",
        },
    ),
    "describe_stream_consumer": Call(
        "kinesis:DescribeStreamConsumer",
        {
            "spout with `read_mode` `efo`": "once at the start, then every 2 s until the consumer "
            "is ACTIVE; after ResourceNotFoundException",
            "driver of a query with `readMode` `efo`": "once at the first batch, then every 2 s "
            "for 15 s until the consumer is ACTIVE, later once a minute; after a task got "
            "ResourceNotFoundException",
            "`kinesis-spout consumers remove`": "once",
        },
    ),
    "register_stream_consumer": Call(
        "kinesis:RegisterStreamConsumer",
        {
            "spout with `consumer_name`": "once if the stream has no consumer of that name",
            "driver of a query with `consumerName`": (
                "once if the stream has no consumer of that name"
            ),
        },
    ),
    "list_stream_consumers": Call(
        "kinesis:ListStreamConsumers",
        {
            "`kinesis-spout consumers list`": "once, one call per page of 100 consumers",
        },
    ),
    "deregister_stream_consumer": Call(
        "kinesis:DeregisterStreamConsumer",
        {
            "`kinesis-spout consumers remove`": "once",
        },
    ),
    "put_records": Call(
        "kinesis:PutRecords",
        {
            "`kinesis-spout produce`": "one call per {request_records} records or {request_mib} "
            "MiB, at least once a second while lines arrive",
            "`kinesis-spout redrive`": "one call per {request_records} dead letters or "
            "{request_mib} MiB",
            "`DeadLetter.to_stream`": "one call per {request_records} dead letters or "
            "{request_mib} MiB of each partition of a batch, from the "
            "executors",
            "the sink": "one call per {request_records} records or {request_mib} MiB of each task, "
            "from the executors",
        },
    ),
    "assume_role": Call(
        "sts:AssumeRole",
        {
            "every process with `roleArn`": "once, and again before the credentials expire",
        },
    ),
}


class Policy(NamedTuple):
    """An IAM policy: who needs it, and its statements: operations, and on what."""

    title: str
    needed_by: str
    operations: tuple[str, ...]
    kms: str


POLICIES = (
    Policy(
        "Read with Spark",
        "the Spark driver and its executors, for queries and batch reads",
        PERMISSIONS[Use.READ].operations,
        "kms:Decrypt",
    ),
    Policy(
        "Read with the spout",
        "`KinesisSpout` and `kinesis-spout consume`",
        PERMISSIONS[Use.READ].operations,
        "kms:Decrypt",
    ),
    Policy(
        "Read with enhanced fan-out",
        "a query with `readMode` `efo`, and the spout and `kinesis-spout consume` with "
        "`read_mode` `efo`; in addition to the policy for reading with Spark or with the spout",
        PERMISSIONS[Use.SUBSCRIBE].all_operations,
        "",
    ),
    Policy(
        "Manage consumers",
        "`kinesis-spout consumers`",
        PERMISSIONS[Use.CONSUMERS].all_operations,
        "",
    ),
    Policy(
        "Look at shards",
        "`kinesis-spout shards`, `status --ask 0`; with `--lag`, and with `--ask` above 0, they "
        "need the policy of a reader",
        PERMISSIONS[Use.DESCRIBE].operations,
        "",
    ),
    Policy(
        "Put records",
        "`kinesis-spout produce`, `kinesis-spout redrive` on the stream that records go back to, "
        "and `DeadLetter.to_stream` on the stream of dead letters",
        PERMISSIONS[Use.PRODUCE].operations,
        "kms:GenerateDataKey",
    ),
    Policy(
        "Put aggregates, or large dead letters",
        "`kinesis-spout produce --aggregate`, and `DeadLetter.to_stream` with `payload_only` "
        "where a payload may be above 1 MiB",
        PERMISSIONS[Use.PRODUCE].all_operations,
        "kms:GenerateDataKey",
    ),
    Policy(
        "Write with Spark",
        'the Spark driver and its executors, for `df.write.format("kinesis")`',
        PERMISSIONS[Use.SINK].operations,
        "kms:GenerateDataKey",
    ),
)

# failpoints ---------------------------------------------------------------------------------------

FAILPOINTS = {
    "plan-created": "the plan is in ZooKeeper; Spark does not know it yet",
    "plan-logged": "Spark wrote the plan's name to its offset log; no task has started",
    "log-appended": "a task appended the records that it read to its log, and goes on; none of "
    "these rows has left the task",
    "log-sealed": "a task sealed its log; its last rows have not left the task",
    "report-opened": "the report of a tracked batch is open; the function has not run",
    "sink-written": "`kinesis-spout run` wrote its sink; the batch is not committed",
    "dead-letters-written": "the dead letters are written; the report is not done",
    "report-part-written": "a part of a large report is written; its header is not",
    "report-done": "the report is done; Spark has not committed the batch",
    "plan-closed": "no task may publish any more; no shard state has moved",
    "shard-states-half-written": "some shard states moved, others not",
    "plan-settled": "all shard states moved, and the plan is marked as settled",
    "letters-saved": "`checkpoint skip --to` wrote its file; no shard state has moved",
    "import-begun": "`checkpoint import` wrote the start, and no shard state yet",
    "states-moved": "`checkpoint set` or `skip` wrote the shard states; the command still owns "
    "the application",
}
