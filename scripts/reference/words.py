"""The sentences of the reference that the code does not hold. Written by hand; nothing else is.

Each mapping is keyed by a name of the code. `tests/docs/test_reference.py` fails for a name without
an entry, and for an entry without a name. Values are inline Markdown.
"""

from __future__ import annotations

from typing import NamedTuple

from kinesis_spout.service.permissions import PERMISSIONS, Use

# columns ------------------------------------------------------------------------------------------

COLUMNS = {
    "streamName": "the name of the stream that the record was read from. If the query reads two "
    "streams of the same name, the column contains the ARN of the stream",
    "shardId": "the id of the shard that the record was read from. Shards of different streams "
    "can have the same id",
    "sequenceNumber": "the sequence number of the record, in decimal. Compare sequence numbers as "
    "numbers, not as text",
    "subSequenceNumber": "a user record's index in its aggregate, counted from 0. A record that is "
    "not part of an aggregate has the index 0",
    "partitionKey": "the partition key that the producer gave to the record",
    "data": "the payload of the record, as the producer sent it",
    "approximateArrivalTimestamp": "when Kinesis accepted the record from the producer",
    "attempt": "the number of this delivery of the record: 1 for the first delivery",
    "messageId": "the id of the delivery: `shardId:sequenceNumber:attempt`. The second and later "
    "user records of an aggregate have the id `shardId:sequenceNumber.subSequenceNumber:attempt`. "
    "In a query of several streams, the id starts with the stream's name and a `/`",
}

# SpoutConfig --------------------------------------------------------------------------------------

SPOUT_FIELDS = {
    "aws": "the region, the endpoint and the credentials of AWS, as an `AwsConfig`",
    "commit_interval_s": "the time between two commits. A commit stores the shard states in "
    "ZooKeeper",
    "fetch_concurrency": "the number of shards that are read at once",
    "rate": "the maximum GetRecords requests and bytes per second for each shard, as a `ReadRate`",
    "listeners": "the spout's listeners. At each event, the spout calls a method of each "
    "`SpoutListener`",
    "max_idle_poll_s": "the longest pause between two reads of an idle shard",
    "idle_wait": "a function that returns how long `emissions` sleeps when no record is ready, "
    "given the number of waits in a row",
    "limit_wait": "a function that returns how long `emissions` sleeps when `max_pending` records "
    "are in flight, given the number of waits in a row",
}

# command line -------------------------------------------------------------------------------------

EXIT_CODES = {
    "0": "the command succeeded",
    "1": "the command failed. The message on stderr names the fault, its place and the remedy. "
    "`drill`: the job broke a guarantee. `status`: the verdict is stalled or losing, or the "
    "application has no state. `checkpoint set`: the move would skip records. `pause --wait`: "
    "records may still be in flight at the timeout",
    "2": "the command line is wrong: an unknown option, a missing argument, or a value out of "
    "bounds. `status`, `explain` and `checkpoint`: the stream does not exist",
    "3": "Kinesis or ZooKeeper cannot be reached",
    "4": "another process owns the application",
    "130": "SIGINT (Ctrl-C) stopped the command",
    "141": "the program that was reading the command's output has ended, as `head` does",
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
        "the stream that the stored state belongs to. A job refuses the state if the stream was "
        "deleted and created again with the same name",
        "the first owner of the application",
    ),
    "start": Node(
        "StartPin",
        "where the application started to read",
        "the first owner of the application",
    ),
    "owner": Node(
        "OwnerInfo",
        "the process that owns the application. A Spark driver or a single spout creates an "
        "ephemeral znode. Several tasks create a persistent znode that contains "
        "[`Tasks`](#znode-tasks)",
        "the new owner of the application",
    ),
    "owner/<i>-of-<n>": Node(
        "OwnerInfo",
        "the process that owns share i of n of the shards. The znode is ephemeral",
        "the spout task that owns the share",
    ),
    "reset": Node(
        "OwnerInfo",
        "the process that removed the state of the application. The application removes this "
        "znode when it starts again",
        "`kinesis-spout reset`",
    ),
    "epoch": Node(
        None,
        "a number that each new owner of the application increases. Every write checks the "
        "version of this znode, so a former owner cannot write",
        "each new owner of the application",
    ),
    "epoch/<i>-of-<n>": Node(
        None,
        "a number that each new owner of share i of n increases",
        "each new owner of share i of n of the shards",
    ),
    "epoch/unclosed-<i>-of-<n>": Node(
        None,
        "the number of consecutive spouts of share i of n that ended without being closed",
        "the spout task that owns the share",
    ),
    "epoch/lister": Node(
        "Leader",
        "the spout task that writes `shardList`",
        "the spout task that takes over the listing of the shards",
    ),
    "shardList": Node(
        "StoredShardList",
        "the shards of the stream at the last listing. The tasks of a spout watch this znode",
        "the owner, or the task whose name is in `epoch/lister`",
    ),
    "<shardId>": Node(None, "the parent znode of the state of one shard", "the owner"),
    "<shardId>/state": Node(
        "StoredShardState",
        "the shard's checkpoint and read position, and the records waiting for a retry. The AWS "
        "Kinesis Storm spout uses the same path and the same key `checkpoint`",
        "the owner, when it stores the outcomes of a batch, or when the spout commits",
    ),
    "plan": Node(
        "PlanPointer",
        "the newest batch of the Spark job, and the status of this batch",
        "the Spark driver",
    ),
    "tracked": Node(
        "StoredPolicy",
        "the rules for retries. This znode exists if the Spark query tracks records one by one",
        "the Spark driver, when a tracked query starts",
    ),
    "paused": Node(
        "Pause",
        "the process that paused the application, and its reason. The application is paused while "
        "the znode exists",
        "`kinesis-spout pause`. `kinesis-spout resume` removes the znode",
    ),
    "history": Node(
        "HistoryHead",
        "the number of the next entry of the checkpoint history. Each written entry increases "
        "the version of the znode",
        "the process that writes an entry of the checkpoint history",
    ),
    "history/<number>-<timeMs>-<kind>-<part>-of-<parts>": Node(
        "StoredHistoryEntry",
        "an entry of the checkpoint history, compressed with zlib. The entry contains shards' "
        "positions at a time by Kinesis's clock. All records before a position were acked at that "
        "time. An entry of kind `full` has all shards. An entry of kind `changes`, which earlier "
        "versions wrote, has the shards that moved since the previous entry. An entry of kind "
        "`moved` records a move by an operator",
        "the owner, or the task whose name is in `epoch/lister`, at most every 10 s; "
        "`kinesis-spout checkpoint` after a move",
    ),
    "runs": Node(None, "the parent znode of the logs of the application's last runs", "the owner"),
    "runs/all": Node(
        "RunLog",
        "the settings and the ends of the application's last runs, and the reason why the newest "
        "run is waiting. Only `kinesis-spout explain` reads this znode",
        "the owner. When a Spark query ends, the main process of the Spark driver",
    ),
    "runs/<i>-of-<n>": Node(
        "RunLog",
        "the settings and the ends of the last runs that owned share i of n of the shards",
        "the spout task that owns the share",
    ),
    "batches": Node(None, "the parent znode of the batches of a Spark job", "the Spark driver"),
    "batches/<planId>": Node(
        "PlanHeader",
        "the plan of one batch: the number of its tasks and its limits. The Spark driver writes "
        "this znode a second time to close the plan",
        "the Spark driver",
    ),
    "batches/<planId>/<task>": Node(
        "TaskPlan", "the shards that one task of the batch reads", "the Spark driver"
    ),
    "batches/<planId>/<task>/end": Node(
        "TaskLog",
        "the log of one task of the batch: the records that the task read and passed to "
        "Spark, in order",
        "the executor that runs the task",
    ),
    "batches/<planId>/<task>/begun": Node(
        None,
        "an empty znode that exists once the task has created its log. If an operator removes "
        "the log, the task does not create the log again",
        "the executor that runs the task",
    ),
    "batches/<planId>/report": Node(
        "ReportHeader",
        "the outcomes (acked or failed) of the records of a batch of a tracked query",
        "the driver's Python process that runs `foreachBatch`",
    ),
    "batches/<planId>/report/<token>-<version>-<part>": Node(
        "ReportPart",
        "a part of the report of a batch. Only a report that does not fit into one znode has parts",
        "the driver's Python process that runs `foreachBatch`",
    ),
}

_FORMAT = "the version of the format in which this value is stored"
_SAYS = "the first 500 characters of the last error's message, without secrets"
_ERROR = "the class of the error. Older versions of kinesis-spout did not store the class"
_SEQUENCE = "the sequence number of the record, or of the first record of a range"
_COUNT = "the number of records in the range"
_ATTEMPTS = (
    "the number of failed deliveries of the record so far. Failures during an outage do not count"
)
_BLOCKED = (
    "true if the record itself has not failed, but is waiting because an earlier record of its "
    "partition key or shard has failed"
)
_REJECTED = "true if the record is not retried, but is waiting until its dead letter is written"
_WHOLE = (
    "true if aggregates were not unpacked at the first delivery. Retries do not unpack them either"
)
_KEY = "a hash of the record's partition key"

FIELDS = {
    "Pause": {
        "by": "the process that paused the application",
        "sinceMs": "when the pause began, by the clock of the process that began it",
        "reason": "the reason that the operator gave for the pause",
        "format": _FORMAT,
    },
    "RunLog": {
        "runs": "the application's last runs (at most 10), the oldest first",
        "hold": "the reason why the newest run of a spout delivers no records although records "
        "are ready",
        "triggerMs": "the Spark query's trigger interval, as configured or observed",
        "throttled": "the shards whose reads Kinesis throttled most recently (at most 20)",
        "refusedLetters": "the dead letters that a spout's function `dead_letter` is refusing",
        "notSubscribed": "the reason why shards have no subscription, in a run that uses enhanced "
        "fan-out",
        "failingReads": "the spout's reads that are failing or getting no response. The spout "
        "retries these reads",
        "noAnswers": "how many deliveries a spout's program has neither acked nor failed, and "
        "since when",
        "losses": "the newest losses of records after which a run continued (at most 5)",
        "format": _FORMAT,
    },
    "Run": {
        "owner": "the process of this run of the application",
        "kind": "the kind of the consumer: `spark` or `spout`",
        "sessionTimeoutMs": "the time after which ZooKeeper ends the session of a dead process",
        "shards": "the shards that the run reads. The key is absent if it reads all shards",
        "readMode": "how the run reads shards: `polling` or `efo`",
        "maxPending": "the maximum number of records that a spout may have in flight",
        "maxRecords": "the maximum number of records in a batch of a Spark job, or in the whole "
        "run of a spout",
        "maxUnresolvedPerShard": "the number of unresolved records of a shard at which no new "
        "records of the shard are delivered",
        "maxAttempts": "the number of deliveries of a record after which a spout dead-letters the "
        "record",
        "maxAgeMs": "the time after a record's first failure at which a spout dead-letters the "
        "record",
        "tellsErrors": "true if a Spark job's run stores errors of the query's sink or function",
        "messageTimeoutMs": "the time in flight after which a record of a spout counts as failed. "
        "0 means no limit",
        "readsPerSecond": "the maximum number of reads of a shard per second. The key is absent if "
        "the value is the limit of Kinesis",
        "bytesPerSecond": "the maximum number of bytes read from a shard per second. The key is "
        "absent if the value is the limit of Kinesis",
        "end": "how the run ended. The key is absent while the run continues, and if its process "
        "was killed",
    },
    "RunEnd": {
        "timeMs": "when the run ended, by its machine's clock",
        "kind": "how the run ended. `stopped`: somebody stopped it. `done`: no "
        "record was left to read. `failed`: an error ended it",
        "says": "the first 500 characters of the error's message, without secrets. For a "
        "run that is `done`, this text names the records that the run leaves to the next run",
        "remedy": "the action that resolves the error. The key is absent if no action is known, or "
        "if `says` contains the action",
        "error": _ERROR,
    },
    "RefusedLetters": {
        "count": "the number of dead letters that the function `dead_letter` is refusing",
        "lastMs": "when a dead letter was last refused, by the owner's clock",
        "says": _SAYS,
    },
    "Loss": {
        "timeMs": "when the loss was reported, by the owner's clock",
        "says": "the log's sentence about the loss",
    },
    "ReadTrouble": {
        "sinceMs": "when reads began to fail, by the owner's clock",
        "says": f"{_SAYS}. The key is absent if Kinesis does not respond",
        "remedy": "the action that resolves the error of the failing reads",
        "error": _ERROR,
    },
    "NoAnswers": {
        "sinceMs": "since when the spout's program has neither acked nor failed a record, by the "
        "owner's clock",
        "count": "the number of deliveries that have timed out since the program last acked or "
        "failed a record",
    },
    "Throttle": {
        "count": "the number of reads of the shard that Kinesis has throttled since the run began",
        "lastMs": "when Kinesis last throttled a read of the shard, by the owner's clock",
    },
    "Hold": {
        "kind": "the reason why the spout delivers no records. `deactivated`: the program called "
        "`deactivate()`. `full`: `max_pending` records are in flight. `not taken`: the "
        "program does not take the records that are ready",
        "sinceMs": "when the spout stopped delivering records",
    },
    "HistoryHead": {
        "next": "the number of the next entry of the checkpoint history",
        "format": "the version of the checkpoint history's stored format",
    },
    "StoredHistoryEntry": {
        "positions": "each shard's position, by shard id. Every record before the position was "
        "acked",
        "cause": "the command that moved the checkpoints. The key is absent if a job moved the "
        "checkpoints",
        "format": _FORMAT,
    },
    "StreamIdentity": {
        "arn": "the ARN of the stream that the state belongs to",
        "name": "the name of the stream",
        "createdMs": "when the stream was created",
        "retentionMs": "the last known retention of the stream",
        "expiredMs": "records that arrived before this time may have expired, because the "
        "retention of the stream was shorter before",
        "format": _FORMAT,
    },
    "StartPin": {
        "timeMs": "when the application started, by Kinesis's clock",
        "wish": "the starting position as the user wrote it",
        "position": "the position at which the shards listed in `shards` started",
        "shards": "the shards that the stream had when the application started. Shards that are "
        "created later start at TRIM_HORIZON",
        "shardPositions": "the starting positions of the shards that do not start at `position`, "
        "by shard id",
        "importing": "true while `kinesis-spout checkpoint import` is running, and after an import "
        "was interrupted. The application does not start while the value is true",
        "format": _FORMAT,
    },
    "OwnerInfo": {
        "host": "the name of the process's host",
        "pid": "the process id (pid)",
        "sinceMs": "when the process became the owner of the application",
        "hostIdentity": "the boot id of the kernel, and the pid namespace of the process. Another "
        "process on the same machine checks with these ids whether the owner has died",
        "processStart": "the start time of the process in kernel ticks, which distinguishes "
        "two processes with the same pid",
    },
    "Tasks": {
        "totalTasks": "the number of tasks that share the application",
        "format": _FORMAT,
    },
    "Leader": {
        "task": "the spout task that lists the shards, as `<i>-of-<n>`",
        "epoch": "the value of the task's znode `epoch/<i>-of-<n>` when the task took over the "
        "listing",
        "format": _FORMAT,
    },
    "StoredShardList": {"shardList": "the ids of the stream's shards"},
    "StoredShardState": {
        "checkpoint": "the sequence number up to which all records of the shard are acked or "
        "dead-lettered, or `SHARD_END` for a finished shard",
        "lastCheckpoint": "the sequence number of the last record of a finished shard",
        "readPosition": "where the next read of the shard starts",
        "unresolved": "the unresolved records of the shard between `checkpoint` and `readPosition`",
        "reasons": "the texts of the failure reasons that several unresolved records share",
        "userRecords": "true if the list `unresolved` distinguishes user records from aggregates. "
        "The value is false if an earlier version, which did not unpack aggregates, "
        "wrote the state",
        "lifecycle": "the lifecycle of the shard. `active`: the shard is being read. `drained`: "
        "the shard was read to its end, but some records are unresolved. `finished`: "
        "all records of the shard are acked or dead-lettered",
        "parents": "the shards that were split or merged into this shard",
        "settledPlan": "the id of the last batch whose outcomes are in the shard's stored state",
        "verifiedUntilMs": "a time of Kinesis's clock. No record of the shard that arrived "
        "before this time was missed",
        "atTip": "true if the last read reached the newest record of the shard",
        "format": f"{_FORMAT}. A value that the AWS Kinesis Storm spout wrote has format 0",
    },
    "Row": {
        "0": "the sequence number of the record. A range of records is stored as its first "
        "sequence number, its last sequence number, and its number of records",
        "1": _ATTEMPTS,
        "2": "the earliest time at which the record is retried",
        "3": "when the record first failed",
        "4": "when the record last failed",
        "5": "the reason why the record failed, or the index of the reason in `reasons`",
        "6": _KEY,
        "7": _BLOCKED,
        "8": _REJECTED,
        "9": f"{_WHOLE}. The value is absent if it is false",
    },
    "UnresolvedRecord": {
        "first": _SEQUENCE,
        "last": "the sequence number of the last record of the range",
        "count": _COUNT,
        "attempts": _ATTEMPTS,
        "dueMs": "the earliest time at which the record is retried",
        "firstFailureMs": "when the record first failed, even if that failure did not "
        "count as an attempt",
        "lastFailureMs": "when the record last failed",
        "reason": "the reason why the record failed last",
        "key": _KEY,
        "blocked": _BLOCKED,
        "rejected": _REJECTED,
        "whole": _WHOLE,
    },
    "PlanPointer": {
        "id": "the id of the batch, `<number>-<nonce>`",
        "status": "the status of the batch. `open`: tasks may publish the records that they read. "
        "`closed`: no task may publish records any more. `settled`: the outcomes of the "
        "batch are in the shard states",
    },
    "PlanHeader": {
        "createdMs": "when the batch was planned",
        "tasks": "the number of Spark tasks that read the batch",
        "untilMs": "the arrival time up to which an AvailableNow run reads records, by Kinesis's "
        "clock",
        "storms": "the number of batches in a row in which most records failed, including this "
        "batch",
        "deliveryLimit": "the maximum number of records that are passed to the `foreachBatch` "
        "function. The limit is set after an earlier batch's function did not return",
        "format": _FORMAT,
    },
    "TaskPlan": {
        "shards": "the shards that the task reads, in the order in which it returns their rows",
        "maxBytes": "the maximum number of payload bytes that the task reads",
        "fetchTimeMs": "the time after which the task stops reading a shard that has returned "
        "records",
        "fetchCapMs": "the time after which the task stops reading a lagging shard that has "
        "returned no records",
        "retentionMs": "the retention of the stream when the batch was planned",
        "aggregatedRecords": "the value of option `aggregatedRecords` when the batch was planned. "
        "Every attempt of the task uses this value",
        "consumerArn": "the ARN of the enhanced fan-out consumer, with which the task's first "
        "attempt may subscribe to the shards",
    },
    "ShardSlice": {
        "shardId": "the id of the shard",
        "position": "where the read of the shard starts",
        "maxRecords": "the maximum number of new records that the task reads from the shard. 0 "
        "means that the task reads only retries",
        "iterator": "a shard iterator for the shard's first read. It may have expired",
        "nextReadMs": "the earliest time at which Kinesis's limits allow the shard's next read",
        "nextSubscribeMs": "the earliest time at which Kinesis allows the next subscription to the "
        "shard",
        "endingSequence": "a closed shard's last sequence number, as ListShards returned it",
        "retries": "the records that the task reads again to retry them. The task reads these "
        "records before the new records",
        "verifiedUntilMs": "a time of Kinesis's clock. No record of the shard that arrived "
        "before this time was missed",
        "gone": "true if Kinesis no longer has the shard. Its records cannot be retried",
        "hashKeys": "the shard's first and last hash key. User records with hash keys outside this "
        "range are not delivered",
    },
    "PlannedRetry": {
        "first": _SEQUENCE,
        "last": "the sequence number of the last record of the range",
        "count": _COUNT,
        "attempts": "the number of earlier deliveries of the records",
        "exhausted": "true if the records are read only to write their dead letters, and are not "
        "retried",
        "maxRecords": "the maximum number of records of the range that the batch reads",
        "whole": _WHOLE,
    },
    "TaskLog": {
        "entries": "the ranges of records that the task read. Each entry is a range of one "
        "shard, and follows the shard's previous range",
        "sealed": "true once the log of the task is complete",
        "format": f"{_FORMAT}. A log of format 1 had one entry for each shard and was written once",
    },
    "ShardReadResult": {
        "shardId": "the id of the shard",
        "first": "the sequence number of the first record that was read from the shard",
        "last": "the sequence number of the last record that was read from the shard",
        "count": "the number of new records that were read from the shard",
        "atTip": "true if the last read reached the newest record of the shard",
        "tipMs": "the time of the shard's last read, by Kinesis's clock",
        "shardEnd": "true if the shard is closed and has no record after `last`",
        "gone": "true if Kinesis no longer has the shard, so that no record after `last` was read",
        "children": "the child shards that Kinesis returned at the end of the shard",
        "lastArrivalMs": "the arrival time of the last record that was read from the shard",
        "millisBehindLatest": "the `MillisBehindLatest` of the last GetRecords response",
        "iterator": "a shard iterator for the shard's next read. It may have expired",
        "nextReadMs": "the earliest time at which Kinesis's limits allow the shard's next read",
        "nextSubscribeMs": "the earliest time at which Kinesis allows the next subscription to "
        "the shard",
        "throttled": "the number of the shard's reads that Kinesis throttled because the shard's "
        "limits were used up",
        "pushed": "the number of records of the shard that were read by subscription (enhanced "
        "fan-out)",
        "fallback": "the reason why the task polled the shard, although the batch planned a "
        "subscription",
        "retriesDone": "the number of ranges of retries that the task has tried to read",
        "retryRows": "the number of retried records that were found. `count` does not include "
        "these records",
        "retriesGone": "the first sequence numbers of the ranges of retries whose records have all "
        "expired",
        "retriesShort": "the ranges of retries whose first records have expired",
        "retryPart": "the range of retries that the task has read only in part",
        "position": "where the read of the shard started",
        "lapsedMs": "a time of Kinesis's clock. Records of the shard that arrived before this "
        "time may have expired unread",
        "users": "the user records of the shard that were delivered, if aggregates were unpacked",
        "bytes": "the number of payload bytes of the records that were read, including retries",
    },
    "ShortRange": {
        "first": "the first sequence number of this range of retries",
        "missing": "the number of records of this range of retries that have expired",
    },
    "RangePart": {
        "last": "the sequence number of the last record that was read from the range",
        "rest": "the sequence number of the range's first unread record. This record and the later "
        "ones stay queued",
        "count": "the number of records of the range that were read",
    },
    "UserRecords": {
        "count": "the number of user records of the shard that were delivered",
        "first": "the sequence number and the sub-sequence number of the first delivered user "
        "record",
        "last": "the sequence number and the sub-sequence number of the last delivered user record",
    },
    "ChildShard": {
        "shardId": "the id of the child shard",
        "parents": "the ids of the child shard's parents",
    },
    "StoredPolicy": {
        "retryLimit": "the maximum number of a record's retries after its first delivery",
        "firstDelayMs": "the delay before a record's first retry",
        "growth": "the factor by which the delay grows with each retry of a record",
        "maxDelayMs": "the longest delay before a retry of a record",
        "jitter": "the random share of the delay before a retry, from 0 to 1",
        "maxAgeMs": "the maximum time between a record's first failure and a retry",
        "onFailure": "the records that wait while a failed record is retried. `continue`: no "
        "record waits. `block_key`: the records with the same partition key wait. `block_shard`: "
        "the records of the same shard wait",
        "format": _FORMAT,
    },
    "ReportHeader": {
        "token": "the id of the process that opened the report",
        "status": "the status of the report. `open`: the batch is running. `done`: the batch's "
        "rows and dead letters are written",
        "report": "how many of the batch's records had each outcome",
        "outcomes": "the outcomes of the records by shard. The key is absent if the outcomes are "
        "in part znodes",
        "openedVersion": "the version of the znode when the report was opened. The part znodes' "
        "names contain this version",
        "openings": "the number of times that the report was opened but not completed, because the "
        "batch is still running or its process died",
        "parts": "the number of part znodes of a report that does not fit into this znode",
        "digest": "the SHA-256 digest of the report's parts",
        "format": _FORMAT,
    },
    "PlanReport": {
        "unresolved": "an empty list. The unresolved records are in `outcomes` or in the part "
        "znodes",
        "tasks": "the tasks whose records were in the batch. The records of other tasks are "
        "redelivered",
        "deliveryLimit": "the maximum number of records that the next batch passes to the "
        "`foreachBatch` function. The limit is set after a batch's function did not return",
        "storm": "true if most records of the batch failed. These failures count as an outage, and "
        "not as attempts",
        "failed": "the number of deliveries of the batch that failed",
        "retried": "the number of failed records of the batch that are queued for a retry",
        "exhausted": "the number of failed records of the batch that are not retried",
        "deadLettered": "the number of dead letters that the batch wrote",
        "dropped": "the number of records of the batch that were dropped because `on_exhausted` is "
        '`"drop"`',
        "doneMs": "when the batch's report was completed",
        "format": _FORMAT,
    },
    "ReportPart": {
        "shards": "the outcomes of the records, by shard",
        "reasons": "the texts of the failure reasons that several records share",
        "userRecords": "true if the outcomes distinguish user records from aggregates, as in the "
        "state of a shard",
    },
    "StoredOutcome": {
        "shardId": "the id of the shard",
        "unresolved": "the shard's failed records. Its other records in the batch are acked",
    },
}

# metrics ------------------------------------------------------------------------------------------

PROGRESS = {
    "format": "the version of the format of this progress report",
    "application": "the name of the application that the query runs",
    "stream": "the name of the stream",
    "plan": "the id of the newest batch of the application",
    "retentionMs": "the retention period of the stream, in ms",
    "dataLosses": "the number of possible record losses that this run of the query has reported",
    "emitted": "the number of records in the completed batches of this run, retries included",
    "retried": "the number of retries in the completed batches of this run",
    "acked": "the number of acked records in the completed batches of this run",
    "failed": "the number of failed deliveries in the completed batches of this run",
    "dropped": "the number of records that this run of the query dropped without a dead letter",
    "pushedRecords": "with `readMode` `efo`: the number of new records that this run read by "
    "subscription",
    "polledRecords": "with `readMode` `efo`: the number of new records that this run read with "
    "GetRecords",
    "fallbacks": "with `readMode` `efo`: the number of reads that polled a shard because its "
    "subscription failed, by reason",
    "shards": "the values of `lagMs`, `emitted`, `retried` and `unresolved` of each unfinished "
    "shard. The object is empty if the stream has more than 100 unfinished shards",
    "lagMs": "the lag of the query, in ms of arrival time. The value is null if the lag is not "
    "known",
    "readableShards": "the number of shards that the query still reads: open shards, and closed "
    "shards that are not yet read to their ends",
    "unresolved": "the number of unresolved records of the stream",
    "retriesWaiting": "the number of the stream's unresolved records that are waiting for a retry",
    "exhausted": "the number of records that used up their retries in this run of the query",
    "deadLettered": "the number of dead letters that this run of the query wrote",
    "oldestUnresolvedMs": "the time since the oldest unresolved record first failed, in ms",
    "outage": "true while the query reads no new records because most records fail",
    "streams": "in a query of several streams: the progress report of each stream, with the keys "
    "of this table. The report of the query itself has only the keys `streams` and "
    "`format`",
    "trouble": "in a query of several streams: the reason why batches currently omit the stream. "
    "The key is absent while batches read the stream",
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
        "Attach the [IAM policy](aws.md) for your use. The error message names the refused "
        "operation.",
    ),
    "AckerError": Trouble(
        "The batch's function did not call `acker.settle`, the acker lost track of rows, or a sink "
        "wrote other rows than the acker had checked. No record of the batch is acked.",
        "Call `acker.settle((frame, write), ...)` once, with all sinks, at the end of the "
        "function. `persist()` each frame that Spark computes with different rows each time.",
    ),
    "AggregatedRecordError": Trouble(
        "A record is an aggregate of the Kinesis Producer Library, but `aggregatedRecords` is "
        "`fail`. No record after the aggregate was read.",
        "Set [`aggregatedRecords`](options.md) to `unpack` or `raw`. For a spout, set the field "
        "`aggregated_records`.",
    ),
    "BatchContentError": Trouble(
        "The frame passed to `tracked` does not contain exactly the rows that the batch's tasks "
        "read. The frame was filtered, or belongs to another query. No record of the batch is "
        "acked.",
        "Pass the frame of `read_stream` to `foreachBatch` unchanged, and filter inside the "
        "function.",
    ),
    "CheckpointRegressionError": Trouble(
        "A write would have moved a checkpoint back. Nothing was written to ZooKeeper.",
        "Report this bug in kinesis-spout, and include the error message.",
    ),
    "InterruptedSleepError": Trouble(
        "A spout was closed while a request was waiting for its next attempt. No record is lost.",
        "Ignore this error: only the spout's own threads see it.",
    ),
    "LetterRefusedError": Trouble(
        "The function `dead_letter` raised an error for a record, or did not return within 30 "
        "seconds. The spout continues, and keeps the record until its dead letter is written.",
        "Correct the function `dead_letter`, or the destination that it writes to. The spout "
        "retries the dead letter within a minute.",
    ),
    "KeyAccessError": Trouble(
        "The stream's KMS key is disabled or missing, or its policy does not allow its use with "
        "these credentials.",
        "Enable the KMS key, or allow the KMS action that the message names.",
    ),
    "MoveRefusedError": Trouble(
        "`checkpoint set` cannot move a shard to the requested position. The shard or the record "
        "does not exist, the time is in the future, or the position is the end of an open shard.",
        "Pass a position that the message allows. `kinesis-spout shards` lists the stream's "
        "shards.",
    ),
    "RedriveError": Trouble(
        "The path passed to `redrive` has no dead letters, or has files of several formats, or "
        "`redrive` cannot write its list of put records. `redrive` put no record on the stream.",
        "Pass the path of the job's `DeadLetter`, or the file of `consume --dead-letter`. If the "
        "message asks for the format, pass `--format`.",
    ),
    "DrillError": Trouble(
        "The drill has no verdict, because its job failed by itself, or never reached the step at "
        "which the drill would have killed it.",
        "Read the job's log. The option `--keep DIR` keeps the log.",
    ),
    "CommandEndedError": Trouble(
        "The command passed to `consume --exec` ended before `consume` had read the stream.",
        "Repair the command. The next run of `consume` redelivers the records that got no answer "
        "from the command.",
    ),
    "CliError": Trouble(
        "A command of `kinesis-spout` failed.",
        "Follow the remedy in the message on stderr. `kinesis-spout --debug COMMAND` shows "
        "the traceback.",
    ),
    "ConfigError": Trouble(
        "An option is unknown, has an invalid value, or contradicts another option.",
        "Correct the option that the message names. The pages [options](options.md) and "
        "[SpoutConfig](spout-config.md) list the options and their values.",
    ),
    "ConflictError": Trouble(
        "Another process changed the stored state between a read and a write of this process. "
        "This process wrote nothing.",
        "Use the application name in only one query, or in one group of spout tasks. Then "
        "restart the query or the tasks.",
    ),
    "ConsumerNotFoundError": Trouble(
        "The stream has no registered consumer of this name or ARN.",
        "List the registered consumers with `kinesis-spout consumers list STREAM`. With "
        "`consumer_name`, a spout registers a missing consumer.",
    ),
    "CredentialsError": Trouble(
        "No AWS credentials were found, the access key or its secret is missing, or AWS "
        "refuses the credentials.",
        "Set `profile`, or `roleArn`, or both `awsAccessKeyId` and `awsSecretAccessKey` "
        "([options](options.md)).",
    ),
    "DataLossError": Trouble(
        "Records expired before the job read them, because the job was stopped or too slow for "
        "longer than the stream's retention. The job also raises this error if Kinesis no longer "
        "lists a shard that has unread records.",
        "Raise the stream's retention. To accept the loss, set [`failOnDataLoss`](options.md) to "
        "`false`. The log then names the lost records.",
    ),
    "DeadLetterError": Trouble(
        "The dead letters of a batch could not be written to their sink. No record of the batch is "
        "acked.",
        "Repair the dead-letter sink and start the query again. The query redelivers the batch's "
        "records.",
    ),
    "EmbeddedZookeeperError": Trouble(
        "The embedded ZooKeeper cannot run, because Java or PySpark's jars are missing, its "
        "directory cannot be written, or another process uses the directory.",
        "Install Java 17 or newer, and use a separate directory on each machine. Alternatively, "
        "set the option `zookeeper` to the address of a ZooKeeper server.",
    ),
    "ExhaustedRecordError": Trouble(
        "A record used up its retries or was rejected, while `on_exhausted` is `stop`. No record "
        "of the batch is acked.",
        "Correct the job's function. To store such records as dead letters instead, use "
        '`tracked(on_exhausted="dead_letter", dead_letter=...)`.',
    ),
    "ExpiredIteratorError": Trouble(
        "A shard iterator, or the page token of a listing, is older than five minutes. A job "
        "creates a new iterator, and raises this error only if Kinesis refuses new iterators for "
        "two minutes.",
        "If your own code reads the shard, request a new iterator at the same position.",
    ),
    "FailRecordError": Trouble(
        "Your code raised `FailRecordError` in a `with emission:` block. The record fails, and "
        "your loop continues. With `retry=False`, the record is dead-lettered.",
        "Nothing needs to be done: the `with` block catches the error.",
    ),
    "FakeKinesisError": Trouble(
        "`FakeKinesisError` is the base class of the errors that FakeKinesis raises on purpose.",
        "Follow the remedy of `ServiceError` or `TransportFaultError`.",
    ),
    "FunctionError": Trouble(
        "A batch's function raised an error that Spark cannot pass on. The error is not an "
        "`Exception` (for example `SystemExit`), or its text cannot be sent to Java.",
        "Correct the batch's function. The message names its error, and the log shows the "
        "traceback.",
    ),
    "IllegalAckerEventError": Trouble(
        "A tuple was acked or failed twice, an emission got two outcomes in one `with` block, or "
        "a root does not belong to this acker. The acker changed nothing.",
        "Ack or fail each tuple and emission once. Anchor a tuple only to parts of one spout's "
        "emissions.",
    ),
    "IllegalTrackerEventError": Trouble(
        "A record was acked or failed although its state does not allow this event. The "
        "tracker changed nothing.",
        "Report this bug in kinesis-spout, and include the error message. The message names the "
        "shard, the sequence number and the state.",
    ),
    "InvalidPositionError": Trouble(
        "A position is not valid, for example in `startingPosition`.",
        "Use `LATEST`, `TRIM_HORIZON`, an ISO time, `-2h`, `AT:<sequence>` or `AFTER:<sequence>` "
        "in [`startingPosition`](options.md).",
    ),
    "InvalidSequenceNumberError": Trouble(
        "The text is not a valid sequence number.",
        "Copy the decimal sequence number from the record or from `kinesis-spout shards`.",
    ),
    "InvalidStoreSettingError": Trouble(
        "ZooKeeper's connect string is not valid, or the name of an application, stream or root is "
        "not valid in ZooKeeper.",
        "Correct the option `zookeeper`, `applicationName`, `streamName` or `zookeeperRoot` "
        "([options](options.md)).",
    ),
    "KinesisError": Trouble(
        "`KinesisError` is the base class of the errors of `kinesis_spout` and `spark_job`. The "
        "attribute `retryable` is true for a transient error.",
        "Catch `KinesisError` to catch every error of `kinesis_spout` and `spark_job`.",
    ),
    "MalformedRecordError": Trouble(
        "The scheme (decoder) cannot decode the payload of a record.",
        "Correct the producer or the scheme. A spout or a tracked query dead-letters the record "
        "at once, because a retry cannot help.",
    ),
    "MalformedResponseError": Trouble(
        "A response is not one that Kinesis would send. The endpoint is not Kinesis, or a proxy "
        "changes responses.",
        "Check the option `endpointUrl`, and the proxy between the job and Kinesis.",
    ),
    "MigrationError": Trouble(
        "`kinesis-spout import` cannot read the other consumer's state, or this state has no "
        "position for a shard. `import` changed nothing.",
        "Follow the remedy in the message, for example pass `--at`.",
    ),
    "MissingExtraError": Trouble(
        "A package of an optional dependency group (pip extra) is not installed.",
        "Install the pip extra with the command in the message.",
    ),
    "NothingAckedError": Trouble(
        "The number of failed records reached `breaker_failures`, and no record was acked. Your "
        "code, or a service that your code calls, fails for every record. No record is lost.",
        "Repair your code or the service that it calls, and start the spout again. "
        "`breaker_failures` sets the number of failures after which the spout stops.",
    ),
    "NotListerError": Trouble(
        "Another task of the spout took over the listing of the shards. This task wrote no list of "
        "shards.",
        "Nothing needs to be done: the task keeps its share of the shards, and continues.",
    ),
    "OwnedByAnotherError": Trouble(
        "Another process is running the application. The error message names this process.",
        "Stop the process that the message names, or use another `applicationName`. The option "
        "[`ownerWait`](options.md) sets how long a new job waits for the previous job to end.",
    ),
    "PayloadError": Trouble(
        "Your own scheme (decoder) raised this error in its method `read`, because it cannot "
        "decode the payload.",
        "Nothing needs to be done: the record counts as malformed, with this error's reason.",
    ),
    "PlanClosedError": Trouble(
        "A Spark task finished after its batch had ended. Spark had given up the task, or a new "
        "driver had taken over.",
        "Nothing needs to be done: a later batch redelivers the task's records.",
    ),
    "TaskLogError": Trouble(
        "Another process changed or removed the log that a Spark task published in ZooKeeper. "
        "Nothing was appended to the log.",
        "Start the query again. The query redelivers a removed log's records. If the error "
        "returns, remove the damaged znodes in `batches/<planId>`. A later batch then redelivers "
        "the records.",
    ),
    "RequestRefusedError": Trouble(
        "Kinesis refused an argument of a request, such as a sequence number of another stream "
        "or shard, or a time in the future.",
        "Correct the position in [`startingPosition`](options.md), or reset the application with "
        "`kinesis-spout reset`.",
    ),
    "SchemeDefinitionError": Trouble(
        "The schema passed to a scheme (decoder) is not valid, or the scheme does not support it.",
        "Correct the scheme's schema. The page [schemes](api/schemes.md) names the supported "
        "types.",
    ),
    "SchemeError": Trouble(
        "`SchemeError` is the base class of the errors of the package `scheme`.",
        "Catch `SchemeError` to catch every error of the package `scheme`.",
    ),
    "SchemeUnavailableError": Trouble(
        "A service that a scheme (decoder) uses, for example a schema registry, cannot be "
        "reached. A spout redelivers the record. A Spark query fails, and redelivers the batch.",
        "If the error persists, check the network, and the permissions for the service that "
        "the scheme uses.",
    ),
    "ServiceError": Trouble(
        "FakeKinesis returned an error response, as Kinesis would. The attribute `code` is an "
        "error code of the Kinesis API reference.",
        "Correct your test's request, or expect the error in your test.",
    ),
    "ServiceUnavailableError": Trouble(
        "Kinesis did not respond for a minute, returned an internal error for a minute, or is "
        "still creating the stream.",
        "Check the network and the Kinesis endpoint. Then start the query again.",
    ),
    "ShardNotFoundError": Trouble(
        "The stream exists, but the requested shard has expired or belongs to another stream.",
        "List the stream's shards with `kinesis-spout shards STREAM`.",
    ),
    "SpoutClosedError": Trouble(
        "A method was called on a spout that is not open.",
        "Use the spout in a `with` statement, or call `open()` first.",
    ),
    "StaleOwnerError": Trouble(
        "Another process took over the application after the ZooKeeper session of this process "
        "expired. This process stores no more outcomes.",
        "To continue with this process, stop the other process and restart this process. If your "
        "process often pauses for a long time, raise [`zookeeperSessionTimeout`](options.md).",
    ),
    "SubscriptionInUseError": Trouble(
        "The enhanced fan-out consumer has another subscription to the shard, or subscribed to "
        "the shard less than five seconds ago. The job or spout subscribes again.",
        "If the error persists, another application uses the same consumer. Give each "
        "application [its own consumer](../guides/enhanced-fan-out.md).",
    ),
    "SparkConnectError": Trouble(
        "`source.tracked(...)` was used in a Spark Connect session.",
        "Run the query in its own Spark session ([Spark Connect](../guides/spark-connect.md)).",
    ),
    "StateError": Trouble(
        "`StateError` is the base class of the errors of the package `state`. The attribute "
        "`retryable` is true for a transient error.",
        "Catch `StateError` to catch every error of the package `state`.",
    ),
    "StateTooLargeError": Trouble(
        "A value or a transaction is larger than ZooKeeper allows. Nothing was written to "
        "ZooKeeper.",
        "Lower the option [`maxUnresolvedPerShard`](options.md).",
    ),
    "StaleCredentialsError": Trouble(
        "AWS refuses the credentials of a running job, although AWS accepted them before. The "
        "credentials were replaced, or have expired. The job keeps trying, and looks up its "
        "credentials at each attempt.",
        "Put new credentials where the job reads them.",
    ),
    "StillThrottledError": Trouble(
        "Kinesis has throttled the reads of a shard for minutes, because other consumers use up "
        "the shard's read limits. A spout waits without limit, unless `give_up_after_s` is set.",
        "Lower [`readsPerSecond`](options.md), move other consumers to enhanced fan-out, or add "
        "shards to the stream.",
    ),
    "StoredDataError": Trouble(
        "A znode is damaged, or a newer version of kinesis-spout wrote it.",
        "Upgrade kinesis-spout, restore the znode from a backup, or reset the application with "
        "`kinesis-spout reset`.",
    ),
    "StoreAccessError": Trouble(
        "ZooKeeper refuses the connection or the access to a znode, because of the client's "
        "certificate, identity or permissions.",
        "Correct the option that the message names, or correct the znode's ACL "
        "([Security](../guides/security.md)).",
    ),
    "StoreUnavailableError": Trouble(
        "ZooKeeper did not respond within the time limit. ZooKeeper may or may not have applied "
        "a write that was in progress.",
        "Check the network, and the servers that the option `zookeeper` names. Then restart "
        "the query. The query continues at its checkpoints.",
    ),
    "UnfinishedImportError": Trouble(
        "`kinesis-spout checkpoint import` was interrupted, so some shards do not have their "
        "imported positions.",
        "Run `kinesis-spout checkpoint import` again, or remove the state with "
        "`kinesis-spout reset`.",
    ),
    "StreamMismatchError": Trouble(
        "The stored state of the application belongs to another stream, or to a deleted stream "
        "of the same name.",
        "Use another `applicationName`, or remove the old state with `kinesis-spout reset`.",
    ),
    "StreamError": Trouble(
        "One of the streams of a query failed. The message contains the name of the stream and "
        "the original error.",
        "Resolve the original error, which the message contains.",
    ),
    "StreamNotFoundError": Trouble(
        "The stream does not exist in the region and the account that the job uses.",
        "Check the options `streamName` and `region`, and the account of the credentials.",
    ),
    "KeyThrottledError": Trouble(
        "KMS throttles the requests for the stream's KMS key in the whole account. A job waits "
        "and retries the request.",
        "Raise the account's quota for KMS requests, or use the KMS key less.",
    ),
    "ThrottledError": Trouble(
        "A limit of the shard, the account or KMS was exceeded. A job waits and retries the "
        "request.",
        "If the error persists, follow the remedy of `StillThrottledError`.",
    ),
    "TransportFaultError": Trouble(
        "FakeKinesis dropped a connection, because your test's fault plan contains this fault.",
        "Expect this error in your test.",
    ),
    "UnreadableRecordError": Trouble(
        "A record has an arrival time outside the years 1 to 9999, for example from a faulty "
        "emulator. The records before the faulty record are delivered.",
        "Repair the endpoint that serves the stream, or skip the record with the `checkpoint set` "
        "command in the message.",
    ),
    "UnwritableRecordError": Trouble(
        "A row to be written to a stream has no data, is too large, or has an invalid key. No row "
        "of the same Arrow batch was put on the stream. The rows of earlier Arrow batches were "
        "put.",
        "Correct the row, which the message names.",
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
    is the option's default, and `{request}` is the operation's name with "request".
    """

    action: str
    callers: dict[str, str]


CALLS = {
    "describe_stream_summary": Call(
        "kinesis:DescribeStreamSummary",
        {
            "Spark driver": "one {request} at the start of the query, then one request every "
            "`shardRefreshInterval` ({shardRefreshInterval})",
            "spout": "one {request} when the spout opens, then one request every "
            "`shard_refresh_interval_s` ({shard_refresh_interval_s} s)",
            "batch read": "one {request} at `load()`, and one request before the first action",
            "`kinesis-spout shards`": "one {request}",
            "`kinesis-spout status`, `explain`": "two {request}s. With `--watch`, one "
            "{request} every 2 s",
            "the sink": "one {request} per write, and one request per task of the write",
            "any reader": "one {request} after each ResourceNotFoundException, to distinguish a "
            "missing shard from a missing stream",
        },
    ),
    "list_shards": Call(
        "kinesis:ListShards",
        {
            "Spark driver": "one listing of the shards at the start of the query, one listing "
            "every `shardRefreshInterval` ({shardRefreshInterval}), and one "
            "listing at the end of each shard. A listing takes one {request} per "
            "page of 1,000 shards",
            "spout": "one listing of the shards when the spout opens, one listing every "
            "`shard_refresh_interval_s` ({shard_refresh_interval_s} s), and one listing "
            "at the end of each shard",
            "batch read": "one listing of the shards before the first action. During a reshard, "
            "up to five listings",
            "`kinesis-spout shards`": "one listing of the shards",
            "`kinesis-spout status`, `explain`": "two listings of the shards. With `--watch`, one "
            "listing every 2 s",
            "the sink": "one listing of the shards per task. After a reshard, at most one listing "
            "every 10 s",
        },
    ),
    "get_shard_iterator": Call(
        "kinesis:GetShardIterator",
        {
            "Spark task": "one {request} in each batch for each shard that has no valid iterator, "
            "and one request for each range of retries",
            "Spark driver": "one {request} per idle shard, and one request each time the iterator "
            "of the shard expires",
            "spout": "one {request} per shard, one request after each error, and one request for "
            "each range of retries",
            "batch read": "one {request} per shard in each action, and one request after each "
            "error",
            "`kinesis-spout shards --lag`": "one {request} per shard",
            "`kinesis-spout status`, `explain`": "one {request} per shard, for up to 100 shards "
            "(`--ask`). With `--watch`, the requests are "
            "repeated every 2 s",
        },
    ),
    "get_records": Call(
        "kinesis:GetRecords",
        {
            "Spark task": "up to `readsPerSecond` ({readsPerSecond}) {request}s per second for "
            "each shard that has unread records",
            "Spark driver": "one {request} per idle shard every `probeInterval` "
            "({probeInterval}), for up to 100 shards. Each request asks for one "
            "record",
            "spout": "up to `rate.reads_per_second` ({readsPerSecond}) {request}s per second for "
            "each shard. For an idle shard, one {request} every `idle_poll_s` "
            "({idle_poll_s} s) to `max_idle_poll_s` ({max_idle_poll_s} s)",
            "batch read": "up to `readsPerSecond` ({readsPerSecond}) {request}s per second for "
            "each shard, until the end of the range",
            "`kinesis-spout shards --lag`": "one {request} per shard",
            "`kinesis-spout status`, `explain`": "one {request} per shard, for up to 100 shards "
            "(`--ask`). With `--watch`, the requests are "
            "repeated every 2 s",
        },
    ),
    "subscribe_to_shard": Call(
        "kinesis:SubscribeToShard",
        {
            "spout with `read_mode` `efo`": "one {request} per shard every 5 minutes, and one "
            "request after each error",
            "tasks of a query with `readMode` `efo`": "one {request} per shard and batch, but at "
            "most one request per shard every 5 s. A "
            "task subscribes to up to 16 shards at a "
            "time",
        },
    ),
    "describe_stream_consumer": Call(
        "kinesis:DescribeStreamConsumer",
        {
            "spout with `read_mode` `efo`": "one {request} when the spout opens, then one request "
            "every 2 s until the consumer is ACTIVE. One "
            "{request} after each ResourceNotFoundException",
            "driver of a query with `readMode` `efo`": "one {request} at the first batch. Until "
            "the consumer is ACTIVE, one {request} "
            "every 2 s for 15 s, then one request per "
            "minute. One {request} after each "
            "ResourceNotFoundException of a task",
            "`kinesis-spout consumers remove`": "one {request}",
        },
    ),
    "register_stream_consumer": Call(
        "kinesis:RegisterStreamConsumer",
        {
            "spout with `consumer_name`": (
                "one {request} if the stream has no consumer of that name"
            ),
            "driver of a query with `consumerName`": (
                "one {request} if the stream has no consumer of that name"
            ),
        },
    ),
    "list_stream_consumers": Call(
        "kinesis:ListStreamConsumers",
        {
            "`kinesis-spout consumers list`": "one {request} per page of 100 consumers",
        },
    ),
    "deregister_stream_consumer": Call(
        "kinesis:DeregisterStreamConsumer",
        {
            "`kinesis-spout consumers remove`": "one {request}",
        },
    ),
    "put_records": Call(
        "kinesis:PutRecords",
        {
            "`kinesis-spout produce`": "one {request} per {request_records} records or "
            "{request_mib} MiB. At least one {request} per second "
            "while lines arrive on stdin",
            "`kinesis-spout redrive`": "one {request} per {request_records} dead letters or "
            "{request_mib} MiB",
            "`DeadLetter.to_stream`": "one {request} per {request_records} dead letters or "
            "{request_mib} MiB of each partition of a batch. The "
            "executors send the requests",
            "the sink": "one {request} per {request_records} records or {request_mib} MiB of each "
            "task. The executors send the requests",
        },
    ),
    "assume_role": Call(
        "sts:AssumeRole",
        {
            "every process with `roleArn`": "one {request} at the start of the process, and one "
            "request each time before the credentials expire",
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
        "`read_mode` `efo`. Attach this policy in addition to the policy for reading with Spark "
        "or with the spout",
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
        "`kinesis-spout shards` and `status --ask 0`. The commands `shards --lag`, and `status` "
        "with `--ask` above 0, need the policy for reading with the spout",
        PERMISSIONS[Use.DESCRIBE].operations,
        "",
    ),
    Policy(
        "Put records",
        "`kinesis-spout produce`, for `kinesis-spout redrive` on the stream that records return "
        "to, and for `DeadLetter.to_stream` on the stream of dead letters",
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
    "plan-created": "The plan of the batch is in ZooKeeper. Spark does not know this plan yet.",
    "plan-logged": "Spark wrote the plan's id to its offset log. No task has started.",
    "log-appended": "A task added the records that it read to its log. The task has not passed "
    "their rows to Spark yet.",
    "log-sealed": "A task completed its log. The task has not passed its last rows to Spark yet.",
    "report-opened": "The report of a batch of a tracked query is open. The batch's function has "
    "not run.",
    "sink-written": "`kinesis-spout run` wrote the rows of a batch to its sink. Spark has not "
    "committed the batch.",
    "dead-letters-written": "The dead letters of a batch are written. The report of the batch is "
    "not complete.",
    "report-part-written": "A part of a large report is written. The header of the report is not "
    "written yet.",
    "report-done": "The report of a batch is complete. Spark has not committed the batch.",
    "plan-closed": "The plan of a batch is closed, so its tasks can publish no more records. No "
    "shard state has changed.",
    "shard-states-half-written": "Some, but not all, shard states of a batch are written.",
    "plan-settled": "All shard states of a batch are written, and its plan is marked as settled.",
    "letters-saved": "`checkpoint skip --to` wrote the file of dead letters. No shard state has "
    "changed.",
    "import-begun": "`checkpoint import` wrote the starting position of the application, but no "
    "shard state.",
    "states-moved": "`checkpoint set` or `skip` wrote the shard states. The command still owns "
    "the application.",
}
