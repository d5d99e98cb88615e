"""The sentences of the reference that the code does not hold. Written by hand; nothing else is.

Each mapping is keyed by a name of the code. `tests/docs/test_reference.py` fails for a name without
an entry, and for an entry without a name. Values are inline Markdown.
"""

from __future__ import annotations

from typing import NamedTuple

from kinesis_spout.service.permissions import PERMISSIONS, Use

# columns ------------------------------------------------------------------------------------------

COLUMNS = {
    "streamName": "the name of the stream; its ARN if the query reads two streams of that name",
    "shardId": "the id of the shard. Shards of different streams can have the same id",
    "sequenceNumber": "the sequence number of the record, in decimal; compare it as a number, not "
    "as text",
    "subSequenceNumber": "the number of a user record in its aggregate, from 0; 0 for a record "
    "that is not part of an aggregate",
    "partitionKey": "the partition key that the producer gave",
    "data": "the payload, as the producer sent it",
    "approximateArrivalTimestamp": "the time at which Kinesis accepted the record",
    "attempt": "the number of this delivery of the record: 1 for the first",
    "messageId": "`shardId:sequenceNumber:attempt`, or for the second and later user records of an "
    "aggregate `shardId:sequenceNumber.subSequenceNumber:attempt`. In a query of several streams, "
    "the id begins with the stream and a `/`",
}

# SpoutConfig --------------------------------------------------------------------------------------

SPOUT_FIELDS = {
    "aws": "region, endpoint and credentials of AWS: an `AwsConfig`",
    "commit_interval_s": "time between two commits, which store the shard states in ZooKeeper",
    "fetch_concurrency": "number of shards that are read at the same time",
    "rate": "maximum GetRecords calls and bytes per second for each shard: a `ReadRate`",
    "listeners": "objects whose methods the spout calls at each event: `SpoutListener`",
    "max_idle_poll_s": "the longest pause between two polls of an idle shard",
    "idle_wait": "a function that returns how long `emissions` sleeps when there is no record. The "
    "function's argument is the number of waits in a row",
    "limit_wait": "a function that returns how long `emissions` sleeps when `max_pending` is "
    "reached. The function's argument is the number of waits in a row",
}

# command line -------------------------------------------------------------------------------------

EXIT_CODES = {
    "0": "the command did what it was asked to do",
    "1": "the command failed: stderr says what is wrong, where, and what to do. `drill`: a "
    "guarantee was broken. `status`: the verdict is stalled or losing, or the application has no "
    "state. `checkpoint set`: the move would skip records. `pause --wait`: records may still be in "
    "flight at the timeout",
    "2": "the command line is wrong: an unknown option, a missing argument, or a value out of "
    "bounds. `status`, `explain` and `checkpoint`: the stream does not exist",
    "3": "Kinesis or ZooKeeper cannot be reached",
    "4": "another process owns the application",
    "130": "SIGINT (Ctrl-C) stopped the command",
    "141": "the program that reads the output has ended, as `head` does",
    "143": "SIGTERM stopped the command",
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
        "the stream that this state belongs to. A stream that was deleted and created again with "
        "the same name is refused",
        "the first owner, once",
    ),
    "start": Node(
        "StartPin", "the position where the application started", "the first owner, once"
    ),
    "owner": Node(
        "OwnerInfo",
        "the process that owns the application. A Spark driver or a single spout creates an "
        "ephemeral znode. Several tasks create a persistent znode that contains "
        "[`Tasks`](#znode-tasks)",
        "the owner, when it acquires the application",
    ),
    "owner/<i>-of-<n>": Node(
        "OwnerInfo",
        "the process that owns share i of n of the shards; an ephemeral znode",
        "the task of the spout that owns the share",
    ),
    "reset": Node(
        "OwnerInfo",
        "the process that removed the state of the application. The next start of the application "
        "removes this znode",
        "`kinesis-spout reset`",
    ),
    "epoch": Node(
        None,
        "a number that each new owner increases. Every write checks the version of this znode, so "
        "a former owner cannot write",
        "each new owner",
    ),
    "epoch/<i>-of-<n>": Node(
        None,
        "a number that each new owner of share i of n increases",
        "each new owner of the share",
    ),
    "epoch/unclosed-<i>-of-<n>": Node(
        None,
        "the number of spouts of share i of n that ended in a row without being closed",
        "the task of the spout that owns the share",
    ),
    "epoch/lister": Node(
        "Leader",
        "the task that writes `shardList`",
        "the task that takes over the listing of shards",
    ),
    "shardList": Node(
        "StoredShardList",
        "the shards of the stream at the last listing. The tasks of a spout watch this znode",
        "the owner, or the task that `epoch/lister` names",
    ),
    "<shardId>": Node(None, "a znode with the state of one shard", "the owner"),
    "<shardId>/state": Node(
        "StoredShardState",
        "the checkpoint and the read position of the shard, and the records that wait for a retry. "
        "The AWS Kinesis Storm spout uses the same path and the same key `checkpoint`",
        "the owner, when it stores the outcomes of a batch, or when the spout commits",
    ),
    "plan": Node("PlanPointer", "the newest batch and its status", "the Spark driver"),
    "tracked": Node(
        "StoredPolicy",
        "the rules for retries. This znode exists if the query tracks records one by one",
        "the Spark driver, when a tracked query starts",
    ),
    "paused": Node(
        "Pause",
        "the process that paused the application, and its reason. The application is paused while "
        "this znode exists",
        "`kinesis-spout pause`, which needs no ownership; `resume` removes the znode",
    ),
    "history": Node(
        "HistoryHead",
        "the number of the next entry of the history. The version of the znode increases with each "
        "written entry",
        "the process that writes an entry",
    ),
    "history/<number>-<timeMs>-<kind>-<part>-of-<parts>": Node(
        "StoredHistoryEntry",
        "an entry of the history, compressed with zlib: the positions of shards at a time of "
        "Kinesis's clock. All records before a position were acked at that time. Kind `full` has "
        "all shards, `changes` the shards that moved since the previous entry. Kind `moved` "
        "records a move by an operator",
        "the owner, or the task that `epoch/lister` names, at most every 10 s; "
        "`kinesis-spout checkpoint`",
    ),
    "runs": Node(None, "a znode with the last runs of the application", "the owner"),
    "runs/all": Node(
        "RunLog",
        "the settings and the ends of the last runs of the application, and the reason why the "
        "newest run waits. Only `kinesis-spout explain` reads these values",
        "the owner, when it starts, ends, begins to wait or stops waiting; the main process of a "
        "Spark driver, when the query ends",
    ),
    "runs/<i>-of-<n>": Node(
        "RunLog",
        "the last runs of share i of n",
        "the task of the spout that owns the share, at the same events as for `runs/all`",
    ),
    "batches": Node(None, "a znode with the batches of a Spark job", "the Spark driver"),
    "batches/<planId>": Node(
        "PlanHeader",
        "the plan of one batch: the number of its tasks and its limits. The driver closes the plan "
        "by a second write of this znode",
        "the Spark driver",
    ),
    "batches/<planId>/<task>": Node(
        "TaskPlan", "the shards that one task of the batch reads", "the Spark driver"
    ),
    "batches/<planId>/<task>/end": Node(
        "TaskLog",
        "the log of the task: the records that the task read and passed to Spark, in order",
        "the executor that runs the task",
    ),
    "batches/<planId>/<task>/begun": Node(
        None,
        "an empty znode that exists once the task has created its log. If an operator removes the "
        "log, the task does not create it again",
        "the executor that runs the task",
    ),
    "batches/<planId>/report": Node(
        "ReportHeader",
        "the outcomes (acked or failed) of the records of a tracked batch",
        "the driver's Python process that runs `foreachBatch`",
    ),
    "batches/<planId>/report/<token>-<version>-<part>": Node(
        "ReportPart",
        "a part of a report that does not fit into one znode",
        "the driver's Python process that runs `foreachBatch`",
    ),
}

_FORMAT = "version of the format in which this value is stored"
_SAYS = "the message of the last error, without secrets, at most 500 characters"
_ERROR = "the class of the error; absent in a value that an older version wrote"
_SEQUENCE = "the sequence number of the record, or of the first record of a range"
_COUNT = "the number of records in the range"
_ATTEMPTS = "the number of failed deliveries so far; failures during an outage do not count"
_BLOCKED = (
    "true if the record has not failed itself, and waits because an earlier record of its key or "
    "shard has failed"
)
_REJECTED = "true if the record is not retried, and waits for its dead letter to be written"
_WHOLE = "true if aggregates were not unpacked at the delivery, so they are not unpacked at retries"
_KEY = "a hash of the partition key"

FIELDS = {
    "Pause": {
        "by": "the process that paused the application",
        "sinceMs": "the time at which the pause began, by the clock of the process in `by`",
        "reason": "the reason that the operator gave for the pause",
        "format": _FORMAT,
    },
    "RunLog": {
        "runs": "the last runs, oldest first, at most 10",
        "hold": "the reason why the newest run delivers no records although it has some (spout)",
        "triggerMs": "the interval of the Spark query's trigger, as configured or as observed",
        "throttled": "the shards whose reads Kinesis throttled last, at most 20",
        "refusedLetters": "the dead letters that `dead_letter` of a spout currently refuses",
        "notSubscribed": "the reason why shards have no subscription although the run uses "
        "enhanced fan-out",
        "failingReads": "the reads of a spout that fail or get no response, and that are retried",
        "noAnswers": "the deliveries of a spout whose program acks and fails no record",
        "losses": "the newest losses of records after which a run continued, at most 5",
        "format": _FORMAT,
    },
    "Run": {
        "owner": "the process of the run",
        "kind": "the kind of consumer: `spark` or `spout`",
        "sessionTimeoutMs": "the time after which ZooKeeper ends the session of a dead process",
        "shards": "the only shards that the run reads; absent if the run reads all shards",
        "readMode": "the way of reading: `polling` or `efo`",
        "maxPending": "the maximum number of records in flight (spout)",
        "maxRecords": "the maximum number of records in a batch (Spark) or in the run (spout)",
        "maxUnresolvedPerShard": "the number of unresolved records at which a shard delivers no "
        "new records",
        "maxAttempts": "the number of deliveries after which a record is dead-lettered (spout)",
        "maxAgeMs": "the time after its first failure at which a record is dead-lettered (spout)",
        "tellsErrors": "true if the run records an error of the query's sink or function (Spark)",
        "messageTimeoutMs": "the time in flight after which a record fails; 0 for no limit (spout)",
        "readsPerSecond": "the maximum reads of a shard per second, if below the limit of Kinesis",
        "bytesPerSecond": "the maximum bytes of a shard per second, if below the limit of Kinesis",
        "end": "the end of the run; absent while the run continues, and after its process was "
        "killed",
    },
    "RunEnd": {
        "timeMs": "the time at which the run ended, by the clock of its machine",
        "kind": "`stopped`: somebody stopped the run; `done`: nothing was left to read; `failed`: "
        "an error ended the run",
        "says": "the message of the error, without secrets, at most 500 characters; of a run that "
        "is `done`: the records that the run leaves to the next run",
        "remedy": "the action that resolves the error; absent if none is known, or if `says` "
        "contains it",
        "error": _ERROR,
    },
    "RefusedLetters": {
        "count": "the number of refused dead letters",
        "lastMs": "the time of the last refusal of a dead letter, by the owner's clock",
        "says": _SAYS,
    },
    "Loss": {
        "timeMs": "the time at which the loss was reported, by the owner's clock",
        "says": "the sentence of the log",
    },
    "ReadTrouble": {
        "sinceMs": "the time since which reads fail, by the owner's clock",
        "says": f"{_SAYS}; absent if Kinesis does not respond",
        "remedy": "the action that resolves the error",
        "error": _ERROR,
    },
    "NoAnswers": {
        "sinceMs": "the time since which the program has acked and failed no record, by the "
        "owner's clock",
        "count": "the number of deliveries that have timed out since that time",
    },
    "Throttle": {
        "count": "the number of throttled reads of the shard since the run began",
        "lastMs": "the time of the last throttled read, by the owner's clock",
    },
    "Hold": {
        "kind": "`deactivated`: the program called `deactivate()`; `full`: `max_pending` records "
        "are in flight; `not taken`: the program does not ask for the records that are ready",
        "sinceMs": "the time at which the spout stopped delivering records",
    },
    "HistoryHead": {
        "next": "the number of the next entry of the history",
        "format": "version of the format of the history",
    },
    "StoredHistoryEntry": {
        "positions": "for each shard, a position: every record before it was acked",
        "cause": "the command that moved the application; absent if the job itself progressed",
        "format": _FORMAT,
    },
    "StreamIdentity": {
        "arn": "the ARN of the stream",
        "name": "the name of the stream",
        "createdMs": "the time at which the stream was created",
        "format": _FORMAT,
    },
    "StartPin": {
        "timeMs": "the time at which the application started, by Kinesis's clock",
        "wish": "the starting position as the user wrote it",
        "position": "the position at which the shards in `shards` start",
        "shards": "the shards of the stream when the application started. Later shards start at "
        "TRIM_HORIZON",
        "shardPositions": "the starting positions of single shards, by shard id",
        "importing": "true while `checkpoint import` runs, and after it was interrupted; the "
        "application does not start",
        "format": _FORMAT,
    },
    "OwnerInfo": {
        "host": "the host name of the machine",
        "pid": "the process id",
        "sinceMs": "the time at which the process acquired the application",
        "hostIdentity": "the boot id of the kernel and the pid namespace of the process. A "
        "process on the same machine uses these ids to check whether the owner has died",
        "processStart": "the start time of the process in kernel ticks, which distinguishes "
        "two processes with the same pid",
    },
    "Tasks": {
        "totalTasks": "the number of tasks that share the application",
        "format": _FORMAT,
    },
    "Leader": {
        "task": "the task that lists the shards, as `<i>-of-<n>`",
        "epoch": "the value of the task's znode `epoch/<i>-of-<n>` when the task took over the "
        "listing",
        "format": _FORMAT,
    },
    "StoredShardList": {"shardList": "the ids of the shards"},
    "StoredShardState": {
        "checkpoint": "the sequence number up to which all records are acked; `SHARD_END` for a "
        "finished shard",
        "lastCheckpoint": "the last sequence number of a finished shard",
        "readPosition": "the position at which the next read of the shard starts",
        "unresolved": "the unresolved records between `checkpoint` and `readPosition`",
        "reasons": "the failure reasons that several unresolved records share",
        "userRecords": "true if `unresolved` distinguishes user records from aggregates. It is "
        "false in a value of an earlier version, which did not unpack aggregates",
        "lifecycle": "`active`: the shard is read; `drained`: the shard was read to its end, and "
        "records are unresolved; `finished`: all records of the shard are acked",
        "parents": "the shards that were split or merged into this shard",
        "settledPlan": "the last batch whose outcomes are part of this state",
        "verifiedUntilMs": "the time, by Kinesis's clock, before which no record was missed",
        "atTip": "true if the last read reached the newest record of the shard",
        "format": f"{_FORMAT}; 0 for a value that the AWS Kinesis Storm spout wrote",
    },
    "Row": {
        "0": "the sequence number of the record; for a range of records: the first sequence "
        "number, the last sequence number, and the number of records",
        "1": _ATTEMPTS,
        "2": "the earliest time of the next retry",
        "3": "the time of the first failure",
        "4": "the time of the last failure",
        "5": "the reason of the failure, or its index in `reasons`",
        "6": _KEY,
        "7": _BLOCKED,
        "8": _REJECTED,
        "9": f"{_WHOLE}; absent if false",
    },
    "UnresolvedRecord": {
        "first": _SEQUENCE,
        "last": "the last sequence number of the range",
        "count": _COUNT,
        "attempts": _ATTEMPTS,
        "dueMs": "the earliest time of the next retry",
        "firstFailureMs": "the time of the first failure, also if that failure did not count as an "
        "attempt",
        "lastFailureMs": "the time of the last failure",
        "reason": "the reason of the failure",
        "key": _KEY,
        "blocked": _BLOCKED,
        "rejected": _REJECTED,
        "whole": _WHOLE,
    },
    "PlanPointer": {
        "id": "the id of the batch, `<number>-<nonce>`",
        "status": "`open`: tasks may publish the records that they read; `closed`: no task may "
        "publish; `settled`: the outcomes of the batch are in the shard states",
    },
    "PlanHeader": {
        "createdMs": "the time at which the batch was planned",
        "tasks": "the number of tasks of the batch",
        "untilMs": "the time up to which an AvailableNow run reads, by Kinesis's clock",
        "storms": "the number of batches in a row, this one included, in which most records failed",
        "deliveryLimit": "the maximum number of records that are passed to the function, if the "
        "function of an earlier batch never returned",
        "format": _FORMAT,
    },
    "TaskPlan": {
        "shards": "the shards that the task reads, in the order of their rows",
        "maxBytes": "the maximum payload bytes that the task reads",
        "fetchTimeMs": "the time after which the task stops reading a shard that has returned "
        "records",
        "fetchCapMs": "the time after which the task stops reading a lagging shard that has "
        "returned no records",
        "retentionMs": "the retention of the stream when the batch was planned",
        "aggregatedRecords": "the value of option `aggregatedRecords` when the batch was planned; "
        "every attempt of the task uses it",
        "consumerArn": "the ARN of the consumer with which the first attempt of the task may "
        "subscribe to the shards",
    },
    "ShardSlice": {
        "shardId": "the id of the shard",
        "position": "the position at which the read of the shard starts",
        "maxRecords": "the maximum number of new records; 0 if only retries are read",
        "iterator": "a shard iterator for the first read; it may have expired",
        "nextReadMs": "the earliest time at which the limits of Kinesis allow the next read, by "
        "the clock of the process that read the shard last",
        "nextSubscribeMs": "the earliest time at which Kinesis allows the next subscription",
        "endingSequence": "the last sequence number of a closed shard, as ListShards returned it",
        "retries": "the records that are retried, which the task reads before the new records",
        "verifiedUntilMs": "the time, by Kinesis's clock, before which no record was missed",
        "gone": "true if Kinesis no longer has the shard, so its records cannot be retried",
        "hashKeys": "the first and the last hash key of the shard. User records of aggregates "
        "whose hash keys are outside this range are not delivered",
    },
    "PlannedRetry": {
        "first": _SEQUENCE,
        "last": "the last sequence number of the range",
        "count": _COUNT,
        "attempts": "the number of earlier deliveries",
        "exhausted": "true if the record is read only for its dead letter, and not retried",
        "maxRecords": "the maximum number of records of the range that this batch reads",
        "whole": _WHOLE,
    },
    "TaskLog": {
        "entries": "the records that the task read. Each entry covers records of one shard that "
        "follow the shard's previous entry",
        "sealed": "true once the log is complete",
        "format": f"{_FORMAT}; format 1 had one entry for each shard, and was written once",
    },
    "ShardReadResult": {
        "shardId": "the id of the shard",
        "first": "the first sequence number that was read, inclusive",
        "last": "the last sequence number that was read, inclusive",
        "count": "the number of new records that were read",
        "atTip": "true if the last read reached the newest record of the shard",
        "tipMs": "the time of the last read, or of the read that reached the shard's end, by "
        "Kinesis's clock",
        "shardEnd": "true if the shard has no record after `last`",
        "gone": "true if Kinesis no longer has the shard, so no record after `last` was read",
        "children": "the child shards that Kinesis returned at the shard's end",
        "lastArrivalMs": "the arrival time of the record `last`",
        "millisBehindLatest": "the `MillisBehindLatest` of the last GetRecords response",
        "iterator": "a shard iterator for the next read; it may have expired",
        "nextReadMs": "the earliest time at which the limits of Kinesis allow the next read, by "
        "the clock of the process that read the shard",
        "nextSubscribeMs": "the earliest time at which Kinesis allows the next subscription, by "
        "the clock of the process that read the shard",
        "throttled": "the number of reads that Kinesis throttled because the shard's limits were "
        "used up",
        "pushed": "the number of records that were read by subscription (enhanced fan-out)",
        "fallback": "the reason why the shard was polled although a subscription was planned",
        "retriesDone": "the number of planned retries that the task looked for",
        "retryRows": "the number of retried records that were found; `count` does not include them",
        "retriesGone": "the first sequence numbers of the planned retries whose records have all "
        "expired",
        "retriesShort": "the planned ranges whose earlier records have expired",
        "retryPart": "the part of the next planned range that was read",
        "position": "the position at which the read started",
        "lapsedMs": "the time of a page, by Kinesis's clock, before which records may have expired "
        "unread",
        "users": "the user records that were delivered, if aggregates were unpacked",
        "bytes": "the payload bytes of these records, retries included",
    },
    "ShortRange": {
        "first": "the first sequence number of the range",
        "missing": "the number of expired records in the range",
    },
    "RangePart": {
        "last": "the last sequence number of the range that was read, inclusive",
        "rest": "the first sequence number of the range that was not read. This record and "
        "the later ones stay queued",
        "count": "the number of records of the range that were read",
    },
    "UserRecords": {
        "count": "the number of user records that were delivered",
        "first": "the sequence and sub-sequence number of the first user record",
        "last": "the sequence and sub-sequence number of the last user record",
    },
    "ChildShard": {
        "shardId": "the id of the child shard",
        "parents": "the ids of the child shard's parents",
    },
    "StoredPolicy": {
        "retryLimit": "the maximum number of retries after the first delivery",
        "firstDelayMs": "the delay of the first retry",
        "growth": "the factor by which each delay is longer than the previous one",
        "maxDelayMs": "the longest delay",
        "jitter": "the random share of the delay, from 0 to 1",
        "maxAgeMs": "the time after its first failure at which a record is no longer retried",
        "onFailure": "the records that wait while a failed record is retried. `continue`: none; "
        "`block_key`: records of its partition key; `block_shard`: records of its shard",
        "format": _FORMAT,
    },
    "ReportHeader": {
        "token": "the id of the process that opened the report",
        "status": "`open`: the batch runs; `done`: its sinks and its dead letters are written",
        "report": "the record counts of the batch",
        "outcomes": "the outcomes by shard, unless they are in part znodes",
        "openedVersion": "the version of the znode when the report was opened, which is part of "
        "the names of the part znodes",
        "openings": "the number of times that the report was opened and not completed: the batch "
        "still runs, or its process died",
        "parts": "the number of part znodes, if the outcomes do not fit into this znode",
        "digest": "the SHA-256 of the parts",
        "format": _FORMAT,
    },
    "PlanReport": {
        "unresolved": "empty in ZooKeeper, because `outcomes` or the part znodes have these "
        "records",
        "tasks": "the tasks whose records the batch contained. The records of other tasks are "
        "redelivered",
        "deliveryLimit": "the maximum number of records that the next batch passes to the "
        "function, if the function of a batch never returned",
        "storm": "true if most records failed. The failures count as an outage, not as attempts",
        "failed": "the number of deliveries that failed",
        "retried": "the number of failed records that are queued for a retry",
        "exhausted": "the number of failed records that are not retried",
        "deadLettered": "the number of dead letters that were written",
        "dropped": 'the number of records that `on_exhausted="drop"` dropped',
        "doneMs": "the time at which the report was completed",
        "format": _FORMAT,
    },
    "ReportPart": {
        "shards": "the outcomes by shard",
        "reasons": "the failure reasons that several records share",
        "userRecords": "true if user records of aggregates are marked, as in a shard's state",
    },
    "StoredOutcome": {
        "shardId": "the id of the shard",
        "unresolved": "the failed records of the shard. All other records of the batch are acked",
    },
}

# metrics ------------------------------------------------------------------------------------------

PROGRESS = {
    "format": "version of the format of this report",
    "application": "the name of the application",
    "stream": "the name of the stream",
    "plan": "the id of the newest batch",
    "retentionMs": "the retention of the stream, in ms",
    "dataLosses": "the number of possible losses of records that this run has reported",
    "emitted": "the number of records in the completed batches of this run, retries included",
    "retried": "the number of retries in the completed batches of this run",
    "acked": "the number of acked records in the completed batches of this run",
    "failed": "the number of failed deliveries in the completed batches of this run",
    "dropped": "the number of records that this run dropped without a dead letter",
    "pushedRecords": "with `readMode` `efo`: the number of new records that this run read by "
    "subscription",
    "polledRecords": "with `readMode` `efo`: the number of new records that this run read with "
    "GetRecords",
    "fallbacks": "with `readMode` `efo`: the number of shard reads whose subscription failed, by "
    "reason",
    "shards": "for each unfinished shard: `lagMs`, `emitted`, `retried` and `unresolved`; empty if "
    "the stream has more than 100 such shards",
    "lagMs": "the lag of the job, in ms of arrival time; null if it is not known",
    "readableShards": "the number of shards that are open, or that are closed and not yet read to "
    "their ends",
    "unresolved": "the number of unresolved records",
    "retriesWaiting": "the number of unresolved records that wait for a retry",
    "exhausted": "the number of records that used up their retries in this run",
    "deadLettered": "the number of dead letters that this run wrote",
    "oldestUnresolvedMs": "the time since the first failure of the oldest unresolved record, in ms",
    "outage": "true while no new records are read because most records fail",
    "streams": "in a query of several streams: for each stream, a report with the keys of this "
    "table. The report of the query itself has only `streams` and `format`",
    "trouble": "in a query of several streams: the reason why batches omit the stream; absent if "
    "batches read the stream",
}

# errors -------------------------------------------------------------------------------------------


class Trouble(NamedTuple):
    """Why an error is raised and what follows from it, and the option or command that helps."""

    cause: str
    help: str


ERRORS = {
    "AccessDeniedError": Trouble(
        "AWS accepts the credentials, but an IAM policy or the policy of the stream's KMS key does "
        "not allow the request.",
        "Attach the [IAM policy](aws.md) of your use. The message names the operation.",
    ),
    "AckerError": Trouble(
        "`acker.settle` was not called, the acker lost track of rows, or a sink wrote other rows "
        "than the acker had checked. No record of the batch is acked.",
        "Call `acker.settle((frame, write), ...)` once, with all sinks, at the end of the "
        "function. `persist()` each frame whose rows differ each time Spark computes them.",
    ),
    "AggregatedRecordError": Trouble(
        "The producer aggregates records with the Kinesis Producer Library, and "
        "`aggregatedRecords` is `fail`. No record after the aggregate was read.",
        "Set [`aggregatedRecords`](options.md) to `unpack` or `raw`. The field of the spout is "
        "`aggregated_records`.",
    ),
    "BatchContentError": Trouble(
        "The frame passed to `tracked` does not contain exactly the rows that the tasks of the "
        "batch read: it was filtered, or comes from another query. No record of the batch is "
        "acked.",
        "Pass the frame of `read_stream` to `foreachBatch` unchanged, and filter inside the "
        "function.",
    ),
    "CheckpointRegressionError": Trouble(
        "A write would have moved a checkpoint back. Nothing was written.",
        "Report this bug of kinesis-spout with the message.",
    ),
    "InterruptedSleepError": Trouble(
        "A spout was closed while a request waited for its next attempt. No record is lost.",
        "Ignore this error: only the spout's own threads see it.",
    ),
    "LetterRefusedError": Trouble(
        "`dead_letter` raised an error for a record several times in a row, or did not return "
        "within 30 seconds. The spout continues, and keeps the record until its dead letter is "
        "written.",
        "Correct `dead_letter`, or the place to which it writes. The spout sends the dead letter "
        "again within a minute.",
    ),
    "KeyAccessError": Trouble(
        "The stream's KMS key is disabled or missing, or its policy does not allow these "
        "credentials to use it.",
        "Enable the KMS key, or allow the use that the message names.",
    ),
    "MoveRefusedError": Trouble(
        "`checkpoint set` names a shard, a record or a time that does not exist, or the end of an "
        "open shard.",
        "Pass a position that the message allows. `kinesis-spout shards` lists the shards.",
    ),
    "RedriveError": Trouble(
        "The path of `redrive` contains no dead letters or files of several formats, or the ledger "
        "of put records cannot be written. `redrive` put nothing.",
        "Pass the path of the job's `DeadLetter`, or the file of `consume --dead-letter`. Pass "
        "`--format` if the message asks for it.",
    ),
    "DrillError": Trouble(
        "The drill has no verdict: its job failed by itself, or never reached the step at which "
        "the drill kills it.",
        "Read the log of the job. `--keep DIR` keeps the log.",
    ),
    "CommandEndedError": Trouble(
        "The command of `consume --exec` ended before the stream was read.",
        "Repair the command. The next run redelivers the records that the command did not answer.",
    ),
    "CliError": Trouble(
        "A command of `kinesis-spout` failed.",
        "Do what the message on stderr says. `kinesis-spout --debug COMMAND` shows the traceback.",
    ),
    "ConfigError": Trouble(
        "An option is unknown, has an invalid value, or contradicts another option.",
        "Correct the option that the message names: [options](options.md), "
        "[SpoutConfig](spout-config.md).",
    ),
    "ConflictError": Trouble(
        "Another process changed the stored state between a read and a write of this process. "
        "Nothing was written.",
        "Use the application name in only one query, or in one set of tasks. Then restart the "
        "query.",
    ),
    "ConsumerNotFoundError": Trouble(
        "The stream has no registered consumer of this name or ARN.",
        "List the registered consumers with `kinesis-spout consumers list STREAM`. With "
        "`consumer_name`, a spout registers a missing consumer.",
    ),
    "CredentialsError": Trouble(
        "No AWS credentials were found, one half of them is missing, or AWS refuses them.",
        "Set `profile`, `awsAccessKeyId` and `awsSecretAccessKey`, or `roleArn`: "
        "[options](options.md).",
    ),
    "DataLossError": Trouble(
        "Records expired before they were read, because the job was stopped or too slow for longer "
        "than the stream's retention. Or Kinesis no longer lists a shard that has unread records.",
        "Raise the retention of the stream. To accept the loss, set "
        "[`failOnDataLoss`](options.md) to `false`: the log then names the lost records.",
    ),
    "DeadLetterError": Trouble(
        "The dead letters of a batch could not be written to their sink. No record of the batch is "
        "acked.",
        "Repair the sink and start the query again. The query redelivers the records of the batch.",
    ),
    "EmbeddedZookeeperError": Trouble(
        "The embedded ZooKeeper cannot run: Java or PySpark's jars are missing, its directory "
        "cannot be written, or another process uses the directory.",
        "Install Java 17 or newer, and use a separate directory on each machine. Or set "
        "`zookeeper` to the address of a ZooKeeper server.",
    ),
    "ExhaustedRecordError": Trouble(
        "A record used up its retries or was rejected, and `on_exhausted` is `stop`. No record of "
        "the batch is acked.",
        "Correct the job or the record. To store such records as dead letters instead, use "
        '`tracked(on_exhausted="dead_letter", dead_letter=...)`.',
    ),
    "ExpiredIteratorError": Trouble(
        "A shard iterator, or the page token of a listing, is older than five minutes. A job "
        "creates new iterators, and raises this error if Kinesis refuses these for two minutes.",
        "If your code calls the client, request a new iterator at the same position.",
    ),
    "FailRecordError": Trouble(
        "Your code raised `FailRecordError` in a `with emission:` block. The record fails, and the "
        "loop continues. With `retry=False`, the record is dead-lettered.",
        "Nothing needs to be done: the error ends with the block.",
    ),
    "FakeKinesisError": Trouble(
        "Root of the errors that FakeKinesis raises on purpose.",
        "See `ServiceError` and `TransportFaultError`.",
    ),
    "FunctionError": Trouble(
        "The function of a batch raised something that Spark cannot pass on: not an `Exception`, "
        "such as `SystemExit`, or an error whose text cannot be sent to Java.",
        "Correct the function. The message names its error, and the log shows the traceback.",
    ),
    "IllegalAckerEventError": Trouble(
        "A tuple was acked or failed twice, an emission got two outcomes in one `with` block, or "
        "a root does not belong to this acker. Nothing was changed.",
        "Ack or fail each tuple and emission once. Anchor a tuple only to parts of emissions of "
        "one spout.",
    ),
    "IllegalTrackerEventError": Trouble(
        "A record was acked or failed in a state that does not allow it. Nothing was changed.",
        "Report this bug of kinesis-spout with the message, which names the shard, the sequence "
        "number and the state.",
    ),
    "InvalidPositionError": Trouble(
        "The text of a position, such as `startingPosition`, is not valid.",
        "Use `LATEST`, `TRIM_HORIZON`, an ISO time, `-2h`, `AT:<sequence>` or `AFTER:<sequence>` "
        "in [`startingPosition`](options.md).",
    ),
    "InvalidSequenceNumberError": Trouble(
        "The text of a sequence number is not valid.",
        "Copy the decimal sequence number from the record or from `kinesis-spout shards`.",
    ),
    "InvalidStoreSettingError": Trouble(
        "The connect string of ZooKeeper, or the name of an application, stream or root, is not "
        "valid in ZooKeeper.",
        "Correct `zookeeper`, `applicationName` or `zookeeperRoot`: [options](options.md).",
    ),
    "KinesisError": Trouble(
        "Root of the errors of `kinesis_spout` and `spark_job`. `retryable` is true for a "
        "transient error.",
        "Catch `KinesisError` to catch every error of these packages.",
    ),
    "MalformedRecordError": Trouble(
        "The scheme (decoder) cannot decode the payload of a record.",
        "Correct the producer or the scheme. If records are tracked, the record is dead-lettered "
        "at once, because a retry cannot help.",
    ),
    "MalformedResponseError": Trouble(
        "A response is not a valid Kinesis response: the endpoint is not Kinesis, or a proxy "
        "changes responses.",
        "Check `endpointUrl` and the proxy.",
    ),
    "MigrationError": Trouble(
        "`kinesis-spout import` cannot read the state of the other consumer, or finds no position "
        "in it for a shard. Nothing was changed.",
        "Do what the message says, for example pass `--at`.",
    ),
    "MissingExtraError": Trouble(
        "A package of an optional dependency group (pip extra) is not installed.",
        "Install the extra with the command in the message.",
    ),
    "NothingAckedError": Trouble(
        "`breaker_failures` records failed and no record was acked: your code, or a service that "
        "it calls, fails for every record. No record is lost.",
        "Repair your code or that service, and start the spout again. `breaker_failures` sets the "
        "number of failures.",
    ),
    "NotListerError": Trouble(
        "Another task took over the listing of the shards. Nothing was written.",
        "Nothing needs to be done: the task keeps its share of the shards and continues.",
    ),
    "OwnedByAnotherError": Trouble(
        "Another process runs an application of the same name. The message names the process.",
        "Stop that process, or use another `applicationName`. [`ownerWait`](options.md) sets how "
        "long a new job waits for the previous one to end.",
    ),
    "PayloadError": Trouble(
        "A scheme (decoder) of your own raised this error in `read`, because it cannot decode the "
        "payload.",
        "Nothing needs to be done: the record counts as malformed, with the reason of this error.",
    ),
    "PlanClosedError": Trouble(
        "A Spark task finished after its batch had ended, because Spark had given the task up or "
        "because a new driver took over.",
        "Nothing needs to be done: a later batch redelivers the records of the task.",
    ),
    "TaskLogError": Trouble(
        "The log that a Spark task published in ZooKeeper was changed or removed. Nothing was "
        "appended to the log.",
        "Start the query again: it redelivers the records of a removed log. If the error returns, "
        "remove the damaged znodes in `batches/<planId>`: a later batch redelivers the records.",
    ),
    "RequestRefusedError": Trouble(
        "Kinesis refused an argument, such as a sequence number of another stream or shard, or a "
        "time in the future.",
        "Correct the position in [`startingPosition`](options.md), or reset the application: "
        "`kinesis-spout reset`.",
    ),
    "SchemeDefinitionError": Trouble(
        "The schema of a scheme (decoder) is not valid, or the scheme does not support it.",
        "Correct the schema: [schemes](api/schemes.md).",
    ),
    "SchemeError": Trouble(
        "Root of the errors of `scheme`.",
        "Catch `SchemeError` to catch every error of this package.",
    ),
    "SchemeUnavailableError": Trouble(
        "A service that a scheme (decoder) uses, for example a schema registry, cannot be reached. "
        "The spout redelivers the record; a Spark query fails and redelivers the batch.",
        "If the error persists, check the network and the permissions.",
    ),
    "ServiceError": Trouble(
        "FakeKinesis returned an error response, as Kinesis would. `code` is an error code of the "
        "Kinesis API reference.",
        "Correct the request, or expect the error in your test.",
    ),
    "ServiceUnavailableError": Trouble(
        "Kinesis did not respond for a minute, returned an internal error for a minute, or is "
        "still creating the stream.",
        "Check the network and the endpoint. Then start the query again.",
    ),
    "ShardNotFoundError": Trouble(
        "The stream exists, but the shard has expired or belongs to another stream.",
        "List the shards of the stream with `kinesis-spout shards STREAM`.",
    ),
    "SpoutClosedError": Trouble(
        "A method was called on a spout that is not open.",
        "Use the spout in a `with` statement, or call `open()` first.",
    ),
    "StaleOwnerError": Trouble(
        "Another process took over the application after the ZooKeeper session of this process "
        "expired. This process stores nothing more.",
        "To continue with this process, stop the other one and restart this one. If long pauses "
        "are normal, raise [`zookeeperSessionTimeout`](options.md).",
    ),
    "SubscriptionInUseError": Trouble(
        "The consumer has another subscription to the shard, or had one less than five seconds "
        "ago. The job or spout subscribes again.",
        "If the error persists, another application uses the consumer: give each application "
        "[its own consumer](../guides/enhanced-fan-out.md).",
    ),
    "SparkConnectError": Trouble(
        "`source.tracked(...)` was used in a session of Spark Connect.",
        "Run the query in its own session: [Spark Connect](../guides/spark-connect.md).",
    ),
    "StateError": Trouble(
        "Root of the errors of `state`. `retryable` is true for a transient error.",
        "Catch `StateError` to catch every error of this package.",
    ),
    "StateTooLargeError": Trouble(
        "A value or a transaction is larger than ZooKeeper allows. Nothing was written.",
        "Lower [`maxUnresolvedPerShard`](options.md).",
    ),
    "StaleCredentialsError": Trouble(
        "AWS accepted the credentials of a running job before, and refuses them now: they were "
        "replaced or have expired. The job waits, and looks up its credentials at each attempt.",
        "Put new credentials in the place where the job reads them.",
    ),
    "StillThrottledError": Trouble(
        "Kinesis has throttled the reads of a shard for minutes, because other consumers use up "
        "its read limits. A spout waits without limit, unless `give_up_after_s` is set.",
        "Lower [`readsPerSecond`](options.md), move other consumers to enhanced fan-out, or add "
        "shards.",
    ),
    "StoredDataError": Trouble(
        "A znode is damaged, or a newer version of kinesis-spout wrote it.",
        "Upgrade kinesis-spout, restore the znode, or reset the application: `kinesis-spout "
        "reset`.",
    ),
    "StoreAccessError": Trouble(
        "ZooKeeper refuses the connection, or access to a znode, because of the client's "
        "certificate, identity or permissions.",
        "Correct the option that the message names, or the ACL of the znode "
        "([Security](../guides/security.md)).",
    ),
    "StoreUnavailableError": Trouble(
        "ZooKeeper did not respond within the time limit. A write that was in progress may have "
        "been applied or not.",
        "Check the servers in `zookeeper` and the network. Then restart the query: it continues.",
    ),
    "UnfinishedImportError": Trouble(
        "`checkpoint import` was interrupted, so some shards do not have their imported positions.",
        "Run the import again, or remove the state: `kinesis-spout reset`.",
    ),
    "StreamMismatchError": Trouble(
        "The stored state belongs to another stream, or to an earlier stream of the same name "
        "that was deleted.",
        "Use another `applicationName`, or remove the old state: `kinesis-spout reset`.",
    ),
    "StreamError": Trouble(
        "One of the streams of a query failed. The message has the name of the stream and the "
        "original error.",
        "Resolve the original error.",
    ),
    "StreamNotFoundError": Trouble(
        "The stream does not exist in this region and account.",
        "Check `streamName`, `region` and the account of the credentials.",
    ),
    "KeyThrottledError": Trouble(
        "KMS throttles the requests for the stream's key in the whole account. A job waits and "
        "retries.",
        "Raise the account's KMS request quota, or use the key less.",
    ),
    "ThrottledError": Trouble(
        "A limit of the shard, the account or KMS was exceeded. A job waits and retries.",
        "If the error persists, see `StillThrottledError`.",
    ),
    "TransportFaultError": Trouble(
        "FakeKinesis dropped a connection because the fault plan of your test said so.",
        "Expect the error in your test.",
    ),
    "UnreadableRecordError": Trouble(
        "A record has an arrival time outside the years 1 to 9999, for example from a faulty "
        "emulator. The records before it are delivered.",
        "Repair the endpoint that serves the stream, or skip the record with the `checkpoint set` "
        "command in the message.",
    ),
    "UnwritableRecordError": Trouble(
        "A row to be written to a stream has no data, is too large, or has an invalid key. No row "
        "of its Arrow batch was put; the rows of earlier Arrow batches were put.",
        "Correct the row as the message says.",
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
            "Spark driver": "one request at the start, then one every `shardRefreshInterval` "
            "({shardRefreshInterval})",
            "spout": "one request at the start, then one every `shard_refresh_interval_s` "
            "({shard_refresh_interval_s} s)",
            "batch read": "one request at `load()`, and one before the first action",
            "`kinesis-spout shards`": "one request",
            "`kinesis-spout status`, `explain`": "two requests; with `--watch`, one every 2 s",
            "the sink": "one request per write, and one per task",
            "any reader": "one request after each ResourceNotFoundException, to distinguish a "
            "missing shard from a missing stream",
        },
    ),
    "list_shards": Call(
        "kinesis:ListShards",
        {
            "Spark driver": "one listing at the start, one every `shardRefreshInterval` "
            "({shardRefreshInterval}), and one at the end of each shard. A listing takes one "
            "request per page of 1,000 shards",
            "spout": "one listing at the start, one every `shard_refresh_interval_s` "
            "({shard_refresh_interval_s} s), and one at the end of each shard",
            "batch read": "one listing before the first action; during a reshard, up to five",
            "`kinesis-spout shards`": "one listing",
            "`kinesis-spout status`, `explain`": "two listings; with `--watch`, one every 2 s",
            "the sink": "one listing per task; after a reshard, at most one every 10 s",
        },
    ),
    "get_shard_iterator": Call(
        "kinesis:GetShardIterator",
        {
            "Spark task": "in each batch, one request per shard that has no valid iterator, and "
            "one per range of retries",
            "Spark driver": "one request per idle shard, and another when its iterator expires",
            "spout": "one request per shard, one after each error, and one per range of retries",
            "batch read": "in each action, one request per shard, and one after each error",
            "`kinesis-spout shards --lag`": "one request per shard",
            "`kinesis-spout status`, `explain`": "one request per shard, for up to 100 shards "
            "(`--ask`); with `--watch`, every 2 s",
        },
    ),
    "get_records": Call(
        "kinesis:GetRecords",
        {
            "Spark task": "up to `readsPerSecond` ({readsPerSecond}) requests per second for each "
            "shard that has unread records",
            "Spark driver": "one request for one record per idle shard every `probeInterval` "
            "({probeInterval}), for up to 100 shards",
            "spout": "up to `rate.reads_per_second` ({readsPerSecond}) requests per second for "
            "each shard; for an idle shard, one request every `idle_poll_s` ({idle_poll_s} s) "
            "to `max_idle_poll_s` ({max_idle_poll_s} s)",
            "batch read": "up to `readsPerSecond` ({readsPerSecond}) requests per second for each "
            "shard, until the end of the range",
            "`kinesis-spout shards --lag`": "one request per shard",
            "`kinesis-spout status`, `explain`": "one request per shard, for up to 100 shards "
            "(`--ask`); with `--watch`, every 2 s",
        },
    ),
    "subscribe_to_shard": Call(
        "kinesis:SubscribeToShard",
        {
            "spout with `read_mode` `efo`": "one request per shard every 5 minutes, and one after "
            "each error",
            "tasks of a query with `readMode` `efo`": "one request per shard and batch, at most "
            "one every 5 s per shard; a task subscribes to up to 16 shards at a time",
        },
    ),
    "describe_stream_consumer": Call(
        "kinesis:DescribeStreamConsumer",
        {
            "spout with `read_mode` `efo`": "one request at the start, then one every 2 s until "
            "the consumer is ACTIVE; one after each ResourceNotFoundException",
            "driver of a query with `readMode` `efo`": "one request at the first batch. Until the "
            "consumer is ACTIVE: one every 2 s for 15 s, then one a minute. One request after each "
            "ResourceNotFoundException of a task",
            "`kinesis-spout consumers remove`": "one request",
        },
    ),
    "register_stream_consumer": Call(
        "kinesis:RegisterStreamConsumer",
        {
            "spout with `consumer_name`": "one request if the stream has no consumer of that name",
            "driver of a query with `consumerName`": (
                "one request if the stream has no consumer of that name"
            ),
        },
    ),
    "list_stream_consumers": Call(
        "kinesis:ListStreamConsumers",
        {
            "`kinesis-spout consumers list`": "one request per page of 100 consumers",
        },
    ),
    "deregister_stream_consumer": Call(
        "kinesis:DeregisterStreamConsumer",
        {
            "`kinesis-spout consumers remove`": "one request",
        },
    ),
    "put_records": Call(
        "kinesis:PutRecords",
        {
            "`kinesis-spout produce`": "one request per {request_records} records or {request_mib} "
            "MiB; at least one a second while lines arrive",
            "`kinesis-spout redrive`": "one request per {request_records} dead letters or "
            "{request_mib} MiB",
            "`DeadLetter.to_stream`": "one request per {request_records} dead letters or "
            "{request_mib} MiB of each partition of a batch; the executors send it",
            "the sink": "one request per {request_records} records or {request_mib} MiB of each "
            "task; the executors send it",
        },
    ),
    "assume_role": Call(
        "sts:AssumeRole",
        {
            "every process with `roleArn`": "one request at the start, and one before the "
            "credentials expire",
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
        "a query with `readMode` `efo`, and for the spout and `kinesis-spout consume` with "
        "`read_mode` `efo`. Attach it in addition to the policy for reading with Spark or with the "
        "spout",
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
        "`kinesis-spout shards` and `status --ask 0`. `shards --lag`, and `status` with `--ask` "
        "above 0, need the policy for reading with the spout",
        PERMISSIONS[Use.DESCRIBE].operations,
        "",
    ),
    Policy(
        "Put records",
        "`kinesis-spout produce`, for `kinesis-spout redrive` on the stream to which records "
        "return, and for `DeadLetter.to_stream` on the stream of dead letters",
        PERMISSIONS[Use.PRODUCE].operations,
        "kms:GenerateDataKey",
    ),
    Policy(
        "Put aggregates, or large dead letters",
        "`kinesis-spout produce --aggregate`, and for `DeadLetter.to_stream` with `payload_only` "
        "if a payload can be larger than 1 MiB",
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
    "plan-created": "The plan of the batch is in ZooKeeper. Spark does not know the plan yet.",
    "plan-logged": "Spark wrote the plan's id to its offset log. No task has started.",
    "log-appended": "A task added the records that it read to its log. The task has not passed "
    "these rows to Spark yet.",
    "log-sealed": "A task completed its log. The task has not passed its last rows to Spark yet.",
    "report-opened": "The report of a tracked batch is open. The function has not run.",
    "sink-written": "`kinesis-spout run` wrote its sink. Spark has not committed the batch.",
    "dead-letters-written": "The dead letters of a batch are written. The report of the batch is "
    "not complete.",
    "report-part-written": "A part of a large report is written. The header of the report is not "
    "written.",
    "report-done": "The report of a batch is complete. Spark has not committed the batch.",
    "plan-closed": "The plan of a batch is closed, so its tasks can publish no more records. No "
    "shard state has changed.",
    "shard-states-half-written": "Some, but not all, shard states of a batch are written.",
    "plan-settled": "All shard states of a batch are written, and its plan is marked as settled.",
    "letters-saved": "`checkpoint skip --to` wrote its file. No shard state has changed.",
    "import-begun": "`checkpoint import` wrote the start of the application, and no shard state.",
    "states-moved": "`checkpoint set` or `skip` wrote the shard states. The command still owns "
    "the application.",
}
