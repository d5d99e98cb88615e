"""Explains shards by the table of causes, which says why a shard stands where it does and what to
do; and puts those together that need the same. Pure.

The rows are asked from top to bottom, and the first one that answers counts. The first of them say
what holds the shard itself: a process that is started, or a pause that is ended, does not help
against it. Those from `paused` on say why the job does not read a shard that it might. The comment
above a row says why it stands where it stands. The last row answers always.

What cannot be seen from outside: which other consumers read, limits that an owner does not report,
what the function does, whether the network is up. A cause that may be any of these says so, and
names where to look.

`kinesis_spout.inspection.cause` says how a row is written. The rule of a row is the function with
the name of its kind, in one of the two modules of rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kinesis_spout.inspection import process_rules, shard_rules
from kinesis_spout.inspection.cause import Explanation, Kind, Next, Role, rows_of
from kinesis_spout.inspection.health import OVER, SEVERITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kinesis_spout.inspection.cause import Cause, Found, Row
    from kinesis_spout.inspection.health import Look

_TEXT = """
:: throttled
    [throttled=now] Kinesis is throttling this command's reads of shard {shard}
    [throttled=batch] Kinesis throttled {refused_reads} {refused_reads:read|reads} of shard {shard}
        in the current batch
    [throttled=lately] Kinesis has throttled {refused_reads} {refused_reads:read|reads} of shard
        {shard} since the job started, the last at {refused_at_ms}
    [throttled] all consumers together have reached the shard's limit of 5 reads or 2 MB per second
    [throttled] the job itself has read {own_mb_per_second} MB per second from the shard

:: how it ended
    [end=stopped] the last run (pid {pid:id} on {host}) was stopped cleanly at {ended_at_ms}
    [end=done] the last run (pid {pid:id} on {host}) finished at {ended_at_ms}
    [end=failed, !is_same_error] the last run (pid {pid:id} on {host}) failed at {ended_at_ms} with:
        {error}
    [end=failed, is_same_error] the last run (pid {pid:id} on {host}) failed at {ended_at_ms} with
        the same error
    [end=silent] the last run (pid {pid:id} on {host}, started at {started_at_ms}) did not report
        how it ended
    [suspect=refusal] ZooKeeper may have refused the last run's report of its end
    [suspect=kill] the process of the last run was killed (kill -9, out of memory), or its host
        failed
    [suspect=worker] the query was stopped, its driver was killed (kill -9, out of memory), or a
        record of the batch crashed a Python worker
    [suspect=stop] the query was stopped, or its driver was killed (kill -9, out of memory)
    [suspect=sink] most likely, the query's sink or foreachBatch function raised an error
    [suspect=sink] the sink's error is stored only if the job reads with KinesisSource.read_stream
    [suspect=sink] the query may also have been stopped, or its driver killed (kill -9, out of
        memory)

:: find the end
    [suspect=refusal] fix look: read the end of the last run's log on {host}
    [suspect=worker] fix look: read the end of the job's log. If a Python worker crashes at each
        start, the cause is a record of the batch, the memory use of the worker, or a bug in the
        function #worker
    [suspect=sink] fix look: look for the exception of the sink or function at the end of the job's
        log
    [suspect=kill|stop|worker] fix look: find out on {host} why the process ended: read the job's
        log, dmesg (OOM killer) and the supervisor's log
    [suspect=sink] or look: if the job's log shows no exception, find out on {host} why the process
        ended: check its memory limit, dmesg (OOM killer) and the supervisor's log

:: look at the batch
    [stage=settling] fix look: read in the driver's log why the outcomes of the batch are not stored
    [stage=not begun, is_first] fix look: check in Spark's UI whether an executor has a free core;
        check in the executor's log whether the executor reaches Kinesis and ZooKeeper
    [stage=not begun] fix look: check in Spark's UI whether a Spark job of the batch is running. If
        no job is running, your foreachBatch function hangs before it reads the rows: take a stack
        dump of the driver's Python process
    [stage=not begun, !is_first] fix look: check in Spark's UI whether an executor has a free core;
        check in the executor's log whether the executor reaches Kinesis and ZooKeeper
    [stage=reading] fix look: check in the executor's log whether Kinesis is throttling the shard
    [stage=unanswered] fix look: find out why the driver and the Python workers ended. A record of
        the batch may crash these processes
    [stage=function, !is_late] fix look: check in Spark's UI what the sink or function is waiting
        for
    [stage=reported] fix look: read in the driver's log why Spark does not start a new batch: the
        next trigger may not be due, or the query may hang
    [stage=not reported] fix look: check that the query passes source.tracked(...) to foreachBatch;
        check in Spark's UI what the query is waiting for
    [stage=sink, !is_late] fix look: check in Spark's UI which stage of the batch is running
    [is_late] fix look: take a thread dump of the driver (Spark's UI) and a stack dump of its Python
        process: the dumps show what the function or its sink is waiting for
    [is_late] fix start: if the function or its sink hangs, restart the job: the batch is
        redelivered

:: read faster
    [consumer=spark] fix change: make the job faster: more cores, a faster function, or higher
        limits (maxRecordsPerTrigger, readsPerSecond). If the job already reads 2 MB per second from
        the shard, split the shard
    [consumer=spout] fix change: make the program (or the --exec command) faster, raise max_pending,
        or share the shards among more processes (total_tasks). If the spout already reads 2 MB per
        second from the shard, split the shard

:: other readers
    [throttled, reads_itself] fix look: ask the team that owns the stream whether other consumers
        read shard {shard} too
    [throttled, reads_itself] fix change: if other consumers read the shard, make these consumers
        read less often, or move them to enhanced fan-out. If this job alone reads 2 MB per second
        from the shard, split the shard
    [throttled, !reads_itself] fix look: ask the team that owns the stream which other consumers
        read shard {shard}
    [throttled, !reads_itself] fix change: make the other consumers of the shard read less often, or
        move them to enhanced fan-out

:: save the records
    [expires_soon] first change: raise the stream's retention (aws kinesis
        increase-stream-retention-period), so that unread records do not expire

:: correct the error
    [topic=command] fix look: read the stderr of the --exec command in the job's log on {host}
    [end=failed, !remedy, topic=access|loss|network|other|right] fix look: read the log of the last
        run and the log of its supervisor (systemd, Kubernetes, cron)
    [end=failed] fix change: {remedy} #{topic}
    [end=failed, !remedy] fix change: correct the cause of the last run's error #{topic}

:: correct the fault
    [fault=program] first change: check that the program (or the --exec command) acks or fails each
        record within --message-timeout (message_timeout_s; 30 s unless set). If the program hangs,
        restart it. If the program is slow, raise the timeout #answers
    [fault=worker] fix look: find out whether the record crashes the process that receives the
        record. The process may run out of memory, or the program may have a bug #worker
    [fault=reason] fix change: correct the cause of {reason:quoted}

:: read its log
    fix look: if the state of the shard does not change within a few minutes, read the job's log

:: ask again
    [!remedy] fix wait: wait until Kinesis answers
    [!remedy] fix look: if Kinesis does not answer for several minutes, look at the AWS Health
        Dashboard of the stream's region

# The stored state belongs to another stream, so no later row applies.
== other stream: Blocked
    [is_earlier] the application's state belongs to an earlier stream with the same name
    the earlier stream was created at {state_created_at_ms}
    the current stream was created at {stream_created_at_ms}
    [is_earlier] a job refuses to read the current stream with the state of the earlier stream
    the application's state belongs to {state_arn}
    the application has no state for {stream_arn}, the stream of this command
    [is_earlier] fix run: stop all processes of the application, and remove its old state $ reset
    [is_earlier] or change: to keep the old state, give the job another application name, or correct
        the job's region, account and endpoint
    [is_earlier] fix start: start the job from TRIM_HORIZON (startingPosition, --from). The default,
        LATEST, skips the records that the new stream already contains
    fix look: to look at the stream to which the stored state belongs, pass its region, account and
        endpoint (--region {region})
    [!region, !is_earlier] fix look: to look at the stream to which the stored state belongs, pass
        its region, account and endpoint
    [!is_earlier] or change: to read the current stream, give the job another application name

# Without stored state, no later row can be judged.
== no application: Unknown
    application {application} does not exist on stream {stream}
    either the application has never read the stream, or its state was removed, or its job uses
        another name, stream, ZooKeeper or --zookeeper-root
    other applications on this stream: {applications:names} and {more_applications} more
    [!more_applications] other applications on this stream: {applications:names}
    ZooKeeper has state of application {application} for other streams: {streams:names}
    fix look: if you mean application {likely_application}, pass --application {likely_application}
    fix look: compare --application, --stream, --zookeeper and --zookeeper-root with the options of
        the job
    fix look: to look at a stream that the application reads, pass --stream {likely_stream}
    [!likely_application] or run: if the application's state is lost, stop the job, restore the
        state from a backup of ZooKeeper or from an export (PATH), and start the job again $
        checkpoint import PATH
    or start: if the application has never run, start the job

# The application exists, but no shard has a state. If the run has ended, a row of the job says why.
== not begun: Blocked
    [stage=starting] the application has just started and has not stored its starting position yet
    [stage=ended] the last run ended before its first read
    the application's state was removed at {removed_at_ms} (kinesis-spout reset)
    process {pid:id} on {host} removed the state
    [stage=removed] the application has not been started since its state was removed
    [stage=starting] fix wait: wait until the application has listed the stream's shards
    [stage=starting] <read its log>
    [stage=removed] fix start: start the job (a Spark query with a new checkpointLocation): the job
        reads from its starting position

# No later row applies to a shard without a state.
== not tracked: Waiting
    [is_unknown] shard {shard} does not exist
    [is_unknown] the stream does not list the shard
    [is_unknown] the application has no state for the shard
    [!is_unknown] the application does not know shard {shard} yet
    [is_to_be_listed] the job finds the shard at its next request for the list of shards
    [is_unknown] fix look: list the shards of the stream $ shards
    fix wait: wait until the job lists the shards again ({option} is the interval)
    [is_to_be_listed] fix look: if the job does not find the shard, check whether the job is limited
        to other shards (shards, --shard)

# A loss of records comes before other causes: the remaining records must be saved first.
== records expired: Lost, below
    [is_gone] the stream no longer lists shard {shard}, which was not read to its end
    [!is_gone] unread records of shard {shard} may have expired
    the unread records arrived from {from_at_ms} to {to_at_ms}
    [is_gone] right after a split or merge, the stream's list of shards may be out of date
    [!is_gone] the job has read no record that arrived in the last {age_ms}
    [!is_gone] the stream keeps records for {retention_ms}
    [!is_gone] first change: raise the stream's retention before more unread records expire
    [is_gone] first look: run this command again in a minute. If the stream still does not list the
        shard, the unread records of the shard are lost
    [consumer=spark] first change: set failOnDataLoss to false, so that the job reads the remaining
        records instead of stopping with an error #loss
    [consumer=spout] first change: to read the remaining records, set fail_on_data_loss to False
        (consume: --no-fail-on-data-loss), or stop all processes and move the shard to its oldest
        record #loss $ checkpoint set {lost_shards} --to TRIM_HORIZON --allow-skip

# Even a running job does not read a child before its parents.
== waits for parents: Waiting, effect
    shard {shard} is waiting until its {parents:parent is|parents are} read to the end:
        {parents:shards}

# The job may poll the shard meanwhile, so a shard that keeps up can have this cause.
== not subscribed: Slow, below
    shard {shard} has had no subscription (enhanced fan-out) since {since_at_ms}: {error}
    the job polls the shard instead; all consumers that poll a shard share its limit of 5 reads and
        2 MB per second
    the job keeps trying to subscribe
    first change: {remedy}
    [!remedy] first change: check that the job's registered consumer exists (kinesis-spout consumers
        list)
    [is_missing] first or change: if the registered consumer was removed permanently, name another
        consumer (consumerName, --consumer-name)

# A shard whose records are read but never acked looks like a shard that keeps up.
== no answers: Blocked
    [!has_ended] the spout (pid {pid:id} on {host}) has received neither an ack nor a failure since
        {since_at_ms}
    [has_ended] the spout (pid {pid:id} on {host}) received neither an ack nor a failure from
        {since_at_ms} to its end
    {timed_out:records} timed out after {timeout_ms} (message_timeout_s)
    [!timeout_ms] {timed_out:records} timed out (message_timeout_s)
    the spout redelivers each record that timed out
    a record that times out at its last attempt is dead-lettered, even if the program has processed
        the record
    first change: make the program ack or fail each record. An --exec command must flush each line
        that it writes (print(..., flush=True), stdbuf -oL) #answers
    [!has_ended] first or start: if the program (or the --exec command) hangs, restart the job

# The shard has no unread record, so no later row applies.
== caught up: OK, remark
    [progress=past] all records of shard {shard} expired before the first start of the application
    [progress=finished] shard {shard} is read to its end
    [progress=finished] all records of shard {shard} are acked
    [progress=not settled] shard {shard} is read up to its newest record; the outcomes of batch
        {plan_id} are not stored yet
    [progress=idle|not read] shard {shard} is read up to its newest record
    [leaves_next] no process reads new records of shard {shard}
    [progress=reading] shard {shard} is read as fast as records arrive
    no process is running: the last run finished at {ended_at_ms}
    [has_no_owner, !ended_at_ms] no process is running
    <throttled>
    <other readers>
    [ended_at_ms] fix nothing: nothing to do until the job's next run is due
    [has_no_owner, !ended_at_ms] fix nothing: no record is waiting; start the job to read new
        records
    [!has_no_owner, !throttled, progress=finished|idle|past|reading] fix nothing: nothing to do

# A move back explains a large lag, even if a later row also applies.
== set back: Waiting, remark, below
    an operator moved shard {shard} back at {moved_at_ms} (kinesis-spout checkpoint {command})
    the job reads records of the shard a second time
    [is_read] fix wait: wait until the shard has caught up

# Failed records block the shard, even if its position has just moved.
== held by order: Blocked, effect, below
    [held=new records] the job reads no new record of shard {shard} until the failed records of its
        ancestor, shard {holder:shard}, are acked or dead-lettered
    [held=new records, !holder] the job reads no new record of shard {shard} until the shard's
        failed records are acked or dead-lettered
    [held=retries] {unresolved:records} of shard {shard} {unresolved:is|are} waiting until earlier
        records of shard {holder:shard} are acked or dead-lettered
    the job delivers records in order ({order})

# The shard is being read, so it is not blocked. A later row explains a crash loop.
== behind: Behind
    [pace=catching up] shard {shard} is {lag_ms} behind, but is catching up
    [pace=not known] shard {shard} is {lag_ms} behind
    [pace=not known, !lag_ms] shard {shard} is being read
    [pace=not known] the shard's reading speed is not known yet
    [is_in_loop] shard {shard} is read only between crashes of the process that reads it
    [pace=interrupted, !is_in_loop] shard {shard} was read until a moment ago
    [pace=interrupted] the shard is {lag_ms} behind
    [pace=falling behind] shard {shard} is {lag_ms} behind
    [pace=falling behind] the shard's lag is growing
    [pace=falling behind, !lag_ms] the lag of shard {shard} is growing
    in the last {window_ms}, the job's read position moved forward by only {read_ms}
    [is_after_burst] most likely, many records arrived in the shard at the same time
    each batch reaches its limit on records of the shard ({batch_limit})
    the job is limited to {reads_per_second} reads of the shard per second
    the job is limited to {mb_per_second} MB per second from the shard
    at this speed, unread records expire in {expires_in_ms}
    [pace=falling behind] at this speed, unread records expire in more than {retention_ms}
    <throttled>
    fix wait: wait. At this speed, the job reaches the shard's newest record at {tip_at_ms}
    <other readers>
    [pace=not known] fix wait: wait a minute, and run this command again
    <save the records>
    [reads_per_second] fix change: raise the job's limit on reads per second (readsPerSecond, or a
        spout's rate)
    [mb_per_second] fix change: raise the job's limit on bytes per second (readBytesPerSecond, or a
        spout's rate)
    [batch_limit] fix change: raise the number of records per batch: maxRecordsPerTrigger for all
        shards together, or maxRecordsPerShard
    [is_after_burst] fix wait: wait a few minutes, and run this command again
    [pace=falling behind, !has_reason] <read faster>
    [has_reason] or <read faster>

# The shard is read to its end, or its unresolved records stop further reads.
== unresolved record: Waiting
    {unresolved:records} of shard {shard} {unresolved:is|are} unresolved
    [is_at_end] the shard is read to its end
    [keeps_end] the job reads the children of shard {shard} once all unresolved records of the shard
        are acked or dead-lettered
    {failed:records} failed
    {waiting:records} {waiting:is|are} waiting for the failed {failed:record|records}
    [is_out] record {record:position} was delivered
    [is_out] the program has neither acked nor failed the record yet
    the record has been in flight for at least {out_ms} (since {out_since_at_ms})
    the next attempt of record {record:position} is attempt {attempt} of {attempts_max}
    [!attempts_max] the next attempt of record {record:position} is attempt {attempt}
    record {record:position} failed {failures} {failures:time|times}
    [is_rejected] the program rejected record {record:position}, so the record is not retried
    the next attempt is due at {due_at_ms}
    [is_due] the next attempt is due now
    [fault=reason|worker] the record fails with {reason:quoted}
    [!fault] the record failed with {reason:quoted}
    [fault=program] the program neither acked nor failed the record within its timeout
        (message_timeout_s)
    the shard's checkpoint has not moved for {still_ms}
    [is_blocked] an earlier unresolved record blocks the record
    [becomes_letter, !letter_is_far] after its last attempt, the record is dead-lettered
    [is_expired] the record has expired: the stream no longer contains it
    [stage=delivered] the current batch redelivers the record
    [stage=dead letter] the record is about to be dead-lettered
    {other_failures:records} {other_failures:has|have} failed, one of them with
        {other_reason:quoted}
    [stage=due|waits] fix look: show the record $ peek {shard} {sequence}
    [stage=besides|delivered, fault] fix look: show the record $ peek {shard} {sequence}
    <correct the fault>
    [stage=with the program, out_since_at_ms] fix look: find out why the program (or the --exec
        command) does not ack or fail the record. The program may hang #answers
    [stage=with the program] fix wait: wait for the record's ack or failure. The record times out
        after {timeout_ms} (--message-timeout, message_timeout_s)
    [stage=with the program, !timeout_ms, !has_no_timeout] fix wait: wait for the record's ack or
        failure. The record times out after --message-timeout (message_timeout_s; 30 s unless set)
    [has_no_timeout] fix wait: wait for the record's ack or failure. The record never times out,
        because message_timeout_s is not set
    [stage=with the program, !out_since_at_ms] fix look: find out why the program (or the --exec
        command) does not ack or fail the record. The program may hang #answers
    fix change: correct the cause of {other_reason:quoted}
    [stage=dead letter] fix wait: wait until the record's dead letter is written
    [stage=dead letter] fix look: if the dead letter is not written within a few minutes, read the
        reason in the job's log
    [stage=waits, !fault] fix wait: wait until {due_at_ms}, when the record is retried
    [stage=waits, fault] or wait: if the cause is already corrected, wait until {due_at_ms}, when
        the record is retried
    [stage=due|waits, consumer=spark, !letter_is_far] or run: if the record is dead-lettered, put it
        on the stream again (PATH: the path of the job's DeadLetter) $ redrive PATH
    [stage=due|waits] or run: if nobody needs the record, stop the job and skip the record $
        checkpoint skip --shard {shard} {record}

# The shard itself is not blocked, so the cause is in the job.
== unread: Blocked, effect, job
    [left=settling] the current batch has read shard {shard} to its end
    [left=end] the job has not yet read the end of shard {shard}, so it does not read the shard's
        children
    [left=end] all records of shard {shard} are read
    [left=records] shard {shard} has unread records
    [left=records] the oldest unread record arrived {lag_ms} ago and expires in {expires_in_ms}
    [left=records, !expires_in_ms] the oldest unread record arrived {lag_ms} ago
    [left=not known] shard {shard} may have unread records
    [left=not known, !is_never_read] the job has read all records of the shard that arrived more
        than {lag_ms} ago
    [left=not known, is_never_read] shard {shard} was never read up to its newest record
    <save the records>
    [was_skipped] first look: before you start the job, check in the checkpoint history whether an
        operator skipped records of the shard $ checkpoint history

# During a pause, no other action helps. If no process is running, a later row says so.
== paused: Paused, below
    the application was paused by {by} at {since_at_ms}, {age_ms} ago
    [!by] the application was paused at {since_at_ms}, {age_ms} ago
    [!since_at_ms] the application was paused by {by}
    [!since_at_ms, !by] the application is paused
    the reason for the pause is {reason:quoted}
    [!is_running] the pause is not the only reason why shard {shard} is not read
    fix resume: end the pause when it is no longer needed $ resume

# A job without the right to read ends at its start, so missing rights come before starts.
== kinesis refuses: Blocked, below
    Kinesis refuses reads of the stream
    {error}
    [is_key] no consumer can read the stream until its KMS key can be used
    [!is_key] a job with the same credentials fails with the same error
    first change: {remedy} #right
    [!remedy] first change: give the job's credentials the right to read the stream #right

# A job without the right to write to ZooKeeper ends at its first write.
== zookeeper refuses: Blocked, below
    [!writers] the ACL of {nodes} {nodes:znode|znodes} ({node}) allows nobody to write
    [!writers] the job ends with an error at its first write
    only the identity {writers:names} can write {nodes} {nodes:znode|znodes} ({node})
    [writers] other identities can write the application's other znodes too
    [writers] a job with another identity ends with an error at its first write
    first change: give the job's identity all rights to the {nodes:znode|znodes} again (setAcl in
        zkCli.sh, as {keepers:names}) #access
    [!keepers, !writers] first change: give the job's identity all rights to the
        {nodes:znode|znodes} again (setAcl in zkCli.sh, as ZooKeeper's superuser) #access
    first look: check whether the job has the identity {writers:names} (zookeeperAuth,
        zookeeperUser); if not, give the job's identity all rights to the {nodes:znode|znodes}
        (setAcl in zkCli.sh) #access

# A start does not help a job that ends after each start, so this row comes before `not running`.
== crash loop: Blocked
    [starts] the job ends soon after each start
    [!starts] the job has made no progress since its last run failed
    the job has been started {starts} times since {first_at_ms}, about once every {every_ms}
    [lasted_ms] {silent} of the runs did not report how they ended
    each run lasted about {lasted_ms}
    <how it ended>
    [is_over] the job has not been started since the last run ended
    the job was started again at {restarted_at_ms}
    [has_same_batch] the job is working on the same batch again
    a restart alone does not help
    <correct the error>
    <find the end>
    [is_over] fix start: start the job again

# A suspended process owns the application, or takes it back. Resuming the process is simpler than
# starting another one.
== process halted: Blocked
    [halt=jvm stopped] Spark's JVM (pid {halted:id} on {host}) is suspended, so no batch continues
    [halt=jvm stopped] the job's Python process (pid {pid:id}) is still running and keeps its
        ZooKeeper session
    [halt=stopped] the process (pid {pid:id} on {host}) is suspended
    [halted] the process was suspended by SIGSTOP, or by Ctrl-Z in its terminal
    [halt=stopped, owns] ZooKeeper ends the session of a suspended process after
        {session_timeout_ms}
    [halt=stopped, !owns] the ZooKeeper session of the process has expired
    [halt=gone] the process (pid {pid:id} on {host}) no longer exists
    [halt=gone] ZooKeeper keeps the session of the process until {session_until_at_ms} at the latest
    [halt=cut off] the process (pid {pid:id} on {host}) is running, but has lost its ZooKeeper
        session
    [halt=cut off] ZooKeeper ended the session after {session_timeout_ms} without a heartbeat
    [halt=cut off] either the process is cut off from ZooKeeper, or its spout was not closed
    fix start: resume the process on {host}: kill -CONT {halted:id}
    or start: if the process must not continue, kill it (a suspended process does not react to
        SIGTERM) and start the job again: kill -KILL {halted:id}
    [halt=gone] fix start: start the job again. On {host}, the job takes over immediately. On
        another host, the job waits for the old session to end
    [halt=gone] fix look: find out why the process ended: read its log and dmesg (OOM killer)
    [halt=cut off] fix look: check in the process's log whether the process can reach ZooKeeper. If
        it can, the process continues without a restart
    [halt=cut off] or start: if the process hangs, kill it and start the job again

# Without a process, no later row can be judged.
== not running: Blocked
    [!is_nobody] spout task {task_index} of {total_tasks} (counted from 0) is not running
    [is_nobody] no process is running, so spout task {task_index} of {total_tasks} is missing
    [!task_index] no process is running
    <how it ended>
    [end=never ran] spout task {task_index} has never run
    [!left] the last run read all records that had arrived by {until_at_ms}
    [left] the last run was limited to records that had arrived by {until_at_ms}
    the last run left work for the next run: {left}
    [schedule=due|not known, !left_by] the next run reads the records that have arrived since the
        last run
    the last run was limited to {only_shards:shards}
    shard {shard} is a child of {continued:shards}
    [left_by=shards] a run with the same --shard does not read shard {shard}
    [left_by=limit] the last run left unread records of shard {shard} that had arrived before the
        run started
    [left_by=limit, consumer=spout] the last run was probably limited (--until, --max-records)
    [schedule=overdue] the next run is overdue: earlier runs started at most {interval_ms} apart
    [!starts_with_batch] the job redelivers batch {plan_id} when it starts
    the job redelivered batch {plan_id} at {starts_with_batch} {starts_with_batch:start|starts}, and
        will redeliver it at the next start
    <correct the error>
    [end=failed] fix start: start the job again
    [starts_with_batch] <find the end>
    [end=silent, starts_with_batch] fix start: start the job again
    fix start: start the job again without --shard, or with --shard for {left_shards:shards} too
    [left_by=limit, consumer=spout] fix start: start the job again with a later --until or a higher
        --max-records. The job continues at its checkpoint
    [left_by=limit, consumer=spark] fix start: start the job again. The job continues at its
        checkpoint
    [schedule=not known, !left_by] fix look: check in the job's scheduler when its next run is due
    [schedule=due|not known, !left_by] fix start: start the job again when its next run is due. The
        job continues at its checkpoint
    [schedule=overdue, !left_by] fix start: start the job again. The job continues at its checkpoint
    [schedule=overdue] fix look: find out why the job's scheduler has not started the job
    [end=never ran|unknown|silent|stopped, !starts_with_batch] fix start: start the spout task with
        --task-index {task_index} --total-tasks {total_tasks}
    [end=never ran|unknown|silent|stopped, !starts_with_batch, !task_index] fix start: start the job
    [end=unknown|stopped] or look: if the job is running, check that this command has the job's
        --application, --zookeeper and --zookeeper-root
    [end=never ran] or look: if the spout task was started, read its error message. A task must be
        started with --total-tasks {total_tasks}
    [!starts_with_batch] <find the end>

# From here on, a process is running. A process limited to other shards never reads this shard.
== not assigned: Blocked
    no process reads shard {shard}
    the running job (pid {pid:id} on {host}) is limited to {shards:shards}
    fix change: start the job again without --shard, or with this shard too. To run a second process
        instead, give both processes --task-index and --total-tasks

# The process's own reports are more reliable than the conclusions of later rows.
== reads fail: Blocked
    [!error] Kinesis has not answered the reads of the spout (pid {pid:id} on {host}) since
        {since_at_ms}
    the reads of the spout (pid {pid:id} on {host}) have failed since {since_at_ms} with: {error}
    [explain_too] this command cannot read the stream either
    the spout retries its reads until they succeed
    fix change: {remedy}
    [explain_too] <ask again>
    [!remedy, !explain_too, answers_explain] fix look: find out why Kinesis does not answer the
        spout on {host}, but answers on this machine (endpoint, DNS, proxy, VPC endpoint, security
        groups)
    [!remedy, !explain_too, !answers_explain] fix look: find out why Kinesis does not answer the
        spout on {host} (endpoint, DNS, proxy, VPC endpoint, security groups)

# The program takes no record or gives no outcome, so no limit in a later row matters.
== program waits: Blocked
    [hold=deactivated] the program (pid {pid:id} on {host}) deactivated the spout at {since_at_ms}
    [hold=deactivated] the spout delivers no record until activate() is called
    [hold=not taken] the program (pid {pid:id} on {host}) has taken no record since {since_at_ms}
    [hold=not taken] the spout reads no new record while records are waiting for the program to take
        them
    [hold=full] the spout (pid {pid:id} on {host}) has received neither an ack nor a failure since
        {since_at_ms}
    the program has {max_pending:records} in flight, as many as max_pending allows, so the program
        gets no new records
    [hold=full, !max_pending] the program has as many records in flight as max_pending allows, so
        the program gets no new records
    [hold=deactivated] fix change: make the program call activate()
    [hold=not taken] fix look: find out on {host} what the program is waiting for (py-spy dump --pid
        {pid:id}, or strace). The program may be waiting for its records' outcomes, or for a reader
        of its output #answers
    [hold=not taken] or start: if the program hangs, restart it
    [hold=full] fix look: find out on {host} why the program does not ack or fail its records in
        flight (py-spy dump --pid {pid:id}, or strace). An --exec command is a child process of pid
        {pid:id} #answers
    [hold=full] or change: if the program needs more than max_pending records at a time, raise
        max_pending

# Refused dead letters fill a shard's limit of unresolved records, so this row comes before it.
== letters refused: Blocked
    the job cannot write the dead {letters:letter|letters} for {letters:records}
    the last write of a dead letter failed at {refused_at_ms} with: {error}
    [unresolved] the checkpoint of shard {shard} stays before its first unresolved record
    the job reads no new record once the shard has max_unresolved_per_shard ({max_unresolved})
        unresolved records
    fix change: repair the file or function that dead_letter (--dead-letter) names. The job retries
        the dead letters within 60 s, without a restart
    fix change: correct the cause of {reason:quoted}; otherwise, more records are dead-lettered

# In an outage, neither the records nor their limits are the cause.
== outage: Blocked
    nearly all records of the last batch failed, so the job assumes an outage
    {records:records} failed with {reason:quoted}
    during an outage, failed attempts do not count
    the job reads no new records until a failed record succeeds
    the next attempt of the failed records is due at {until_at_ms}
    fix change: repair the sink or the service that the function uses (the job's log contains all
        failure reasons); do not skip the records
    fix wait: wait until {until_at_ms}

# The batch does not read the shard, because too many of its records are unresolved.
== unresolved limit: Blocked
    the job reads no new record of shard {shard} while {unresolved:records} {unresolved:is|are}
        unresolved
    [is_reached] the shard has reached its limit of unresolved records ({max_unresolved})
    [!is_reached] the shard may have reached its limit of unresolved records ({max_unresolved})
    the shard may have reached its limit of unresolved records ({usual_max} unless set)
    max_pending limits the total of unresolved records in all shards (now {total})
    [fault] fix look: show the record $ peek {shard} {sequence}
    <correct the fault>
    [!fault] fix change: repair the system that these records depend on
    or change: if {option} ({usual_max} unless set) is as low as {unresolved}, raise {option}
    or change: to allow more unresolved records, raise {option} from {max_unresolved}
    <read its log>

# The job is working, and no earlier row has found a cause that blocks it.
== batch under way: Busy
    [last_batch=none] no batch is running
    [last_batch=done] the last batch has finished
    [last_batch=read] the records of batch {plan_id} are read, and the sink has written or is
        writing the records
    the next batch starts at about {due_at_ms}: the trigger fires every {trigger_ms}
    [stage=search] batch {plan_id} ended, but its outcomes were not reported. A record of the batch
        may crash the process that receives the record
    the job delivers at most {delivery_limit:records} at a time until it has found the record that
        crashes the process
    [stage=settling] the outcomes of batch {plan_id} are being stored
    [stage=no answer] batch {plan_id} is waiting, because Kinesis does not answer reads of shard
        {shard}: {error}
    [stage=not begun] batch {plan_id} has read nothing yet
    [stage=not begun, !throttled] either the batch's task is waiting for an executor with a free
        core, or your function has not asked for the rows
    [stage=reading] batch {plan_id} is being read ({rows:records} so far)
    [stage=unanswered] batch {plan_id} was delivered {openings} times, but its outcomes were not
        reported
    [stage=unanswered] each time, the process that ran the batch ended; the last of these processes
        may still be running
    [stage=function] your function is processing batch {plan_id}
    [stage=reported] batch {plan_id} is processed; the job stores its outcomes when Spark asks for
        the next batch
    [stage=not reported] the records of batch {plan_id} are read, but its outcomes are not reported
        yet
    [stage=sink, !is_late] the records of batch {plan_id} are read: the sink is writing them, or
        Spark is waiting for its next trigger
    [stage=sink, is_late] the records of batch {plan_id} are read, but the batch has not ended: the
        function (foreachBatch) has not returned, the sink is still writing, or Spark is waiting for
        a trigger
    [!due_at_ms] the batch was planned {age_ms} ago
    [!due_at_ms] the previous batch took {usual_ms}
    [!due_at_ms] this run has worked on the batch for {run_ms}
    <throttled>
    fix wait: wait until {due_at_ms}
    [stage=trigger] or change: for more frequent batches, give the query a shorter trigger
    [stage=search] fix wait: wait until the job has found the record that crashes the process
    [stage=search] fix look: find out why the executors' Python workers ended #worker
    [stage=no answer, !is_restarting] fix change: {remedy}
    [stage=no answer, !is_restarting, !remedy] fix look: look at the AWS Health Dashboard of the
        stream's region
    [!is_restarting] <other readers>
    [is_long, !is_restarting, !throttled] <look at the batch>
    [!is_restarting, !due_at_ms, !delivery_limit, !is_late] fix wait: wait for the batch to finish
    [!is_long, !is_restarting, !throttled] or <look at the batch>

# No batch is running, and Kinesis does not answer this command either.
== kinesis silent: Blocked
    <throttled>
    [throttled=batch|lately] the job itself is not blocked
    Kinesis does not answer reads of shard {shard}: {error}
    [error] Kinesis does not answer the job either, and the job keeps retrying
    <other readers>
    [throttled] fix wait: wait a minute, and run this command again
    fix change: {remedy}
    [error] <ask again>

# This command has not asked for the shard's newest record, so no row can say what is unread.
== not asked: OK
    shard {shard} was read up to its newest record when the job last stored its state
    [is_refused] this command cannot tell whether shard {shard} has newer records: its credentials
        do not allow reads of the stream
    [!is_refused] this command cannot tell whether shard {shard} has newer records: it did not read
        the shard's newest record
    [is_refused] fix change: allow kinesis:GetRecords for the credentials of this command
    [is_refused] <read its log>
    [!is_refused] fix look: to read the newest record of the shard, explain shard {shard} alone, or
        raise --ask

# This row applies to every state: a process is running, and its stored state shows no cause.
== not visible: Unknown, remark
    [consumer=spark] the job is running, but its stored state does not show what it is waiting for
    [consumer=spout] the spout is running, but its stored state does not show what it is waiting for
    [keeps_up] either the program requests no record because max_pending records are in flight, or a
        retry has just been made and is not stored yet
    [!keeps_up, consumer=spout] the cause may be the network, other consumers of the shard, the
        spout's limits (max_pending, max_unresolved_per_shard, rate), or a program that requests no
        record
    [consumer=spark] the cause may be the network, other consumers of the shard, the interval of the
        trigger, or the job's limits (records per trigger, unresolved records per shard)
    the process (pid {pid:id} on {host}) has an open ZooKeeper session, so it was alive within the
        last {session_timeout_ms}
    [!is_restarting] fix wait: wait a moment, and run this command again
    [!is_restarting] <read its log>
"""

_RULES = {**vars(shard_rules), **vars(process_rules)}
TABLE = rows_of(_TEXT, {kind: _RULES[kind.name.lower()] for kind in Kind})
FIRST_OF_THE_JOB = next(place for place, row in enumerate(TABLE) if row.kind is Kind.PAUSED)
_ROWS = {row.kind: row for row in TABLE}
_READ_ON = frozenset({Kind.BEHIND, Kind.UNREAD})
_BESIDES = (
    (_ROWS[Kind.LETTERS_REFUSED], shard_rules.letters_refused_besides),
    (_ROWS[Kind.UNRESOLVED_RECORD], shard_rules.unresolved_besides),
)


def explain(look: Look, shard_id: str) -> Explanation:
    """Explain any shard, also one that nobody knows. Never fails, and always has a cause."""
    chain: list[Cause] = []
    used: set[tuple[Kind, str]] = set()
    about, first = shard_id, 0
    while True:
        place, row, answer = _answer(look, about, first, used)
        used.add((row.kind, about))
        leads_to = chain[-1].subject if chain else None
        chain.append(row.cause(answer, about, look.now.now_ms, leads_to))
        then = answer.then or row.then
        if answer.shard_id is not None:
            about, first = answer.shard_id, 0
        elif then is Next.END:
            return Explanation(shard_id, tuple(chain), tuple(_remarks(look, chain)))
        else:
            first = place + 1 if then is Next.BELOW else FIRST_OF_THE_JOB


def cause_of(look: Look, kind: Kind, shard_id: str) -> Cause | None:
    """The cause of that kind alone; None where its rule finds nothing."""
    row = _ROWS[kind]
    answer = row.rule(look.of(shard_id))
    return None if answer is None else row.cause(answer, shard_id, look.now.now_ms, None)


def _answer(
    look: Look, about: str, first: int, used: set[tuple[Kind, str]]
) -> tuple[int, Row, Found]:
    """The first row that answers. Parents in a circle, which no service creates, are passed over
    the second time.
    """
    for place, row in enumerate(TABLE[first:], start=first):
        is_new = (row.kind, about) not in used
        if is_new and (answer := row.rule(look.of(about))) is not None:
            return place, row, answer
    raise AssertionError("the last row must apply to every state")


def _remarks(look: Look, chain: list[Cause]) -> Iterator[Cause]:
    """The unresolved records of a shard that has more to read, and so is held by none of them."""
    about = chain[-1].shard_id
    kinds = {one.kind for one in chain if one.shard_id == about}
    is_caught_up = any(one.kind is Kind.CAUGHT_UP and one.role is Role.EFFECT for one in chain)
    if not (kinds & _READ_ON or is_caught_up) or Kind.LETTERS_REFUSED in kinds:
        return
    for row, rule in _BESIDES:
        if row.kind not in kinds and (answer := rule(look.of(about))) is not None:
            yield row.cause(answer, about, look.now.now_ms, None)


@dataclass(frozen=True, slots=True)
class Group:
    """Shards with the same causes and actions. `explanation` is that of the shard that is the
    furthest behind, or has to wait the longest: what is over for it is over for the others.
    """

    explanation: Explanation
    shards: tuple[str, ...]


def grouped(look: Look, among: Iterable[str] | None = None) -> list[Group]:
    """All shards that are not over (of those in `among`, unless it is None), explained, those
    together whose causes and actions differ in numbers, times and shards only; the worst groups
    first. An application without shards or state is one group.
    """
    wanted = look.now.shard_ids if among is None else among
    live = [shard for shard in wanted if look.of(shard).phase not in OVER]
    shards = live or look.now.shard_ids[:1] or [look.now.application]
    if look.now.is_of_another_stream and look.now.is_known:
        return [Group(explain(look, shards[0]), tuple(shards))]  # it is so of all of them
    if not look.now.is_known:
        shards = shards[:1]
    found: dict[tuple[object, ...], list[Explanation]] = {}
    for shard in shards:
        explained = explain(look, shard)
        kinds = tuple(cause.kind for cause in explained.chain)
        actions = tuple((one.kind, one.likeness) for one in explained.actions())
        found.setdefault((look.of(shard).health, kinds, actions), []).append(explained)

    def backlog(one: Explanation) -> tuple[int, int]:
        until_ms = max((each.until_ms or 0 for each in one.actions()), default=0)
        return until_ms, look.of(one.shard_id).lag_ms or 0

    groups = [
        Group(max(members, key=backlog), tuple(one.shard_id for one in members))
        for members in found.values()
    ]
    return sorted(groups, key=lambda group: -SEVERITY[look.of(group.explanation.shard_id).health])
