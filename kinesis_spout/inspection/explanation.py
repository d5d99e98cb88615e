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
    [throttled=now] Kinesis throttles this command's reads of shard {shard}
    [throttled=batch] Kinesis refused {refused_reads} {refused_reads:read|reads} of shard {shard} in
        the current batch
    [throttled=lately] Kinesis refused {refused_reads} {refused_reads:read|reads} of shard {shard}
        since the job started, the last at {refused_at_ms}
    [throttled] the limit of five reads or 2 MB per second, which all consumers of the shard share,
        is used up
    [throttled] the job itself has read {own_mb_per_second} MB per second of the shard

:: how it ended
    [end=stopped] last run: pid {pid:id} on {host}, stopped cleanly at {ended_at_ms}
    [end=done] last run: pid {pid:id} on {host}, finished at {ended_at_ms}
    [end=failed] last run: pid {pid:id} on {host}, failed at {ended_at_ms} with: {error}
    [end=silent] last run: pid {pid:id} on {host}, started at {started_at_ms}, ended without a
        message
    [suspect=refusal] ZooKeeper may have refused to store how the run ended
    [suspect=kill] the process was killed (kill -9, out of memory), or its host failed
    [suspect=worker] the query was stopped, its driver was killed (kill -9, out of memory), or a
        record of the batch crashed a Python worker
    [suspect=stop] the query was stopped, or its driver was killed (kill -9, out of memory)
    [suspect=sink] most likely, the query's sink or foreachBatch function raised an error: Spark
        reports such an error only to a DataFrame made by read_stream
    [suspect=sink] the query may also have been stopped, or its driver killed (kill -9, out of
        memory)

:: find the end
    [suspect=refusal] fix look: read in the log of that run on {host} how it ended
    [suspect=worker] fix look: read the end of the job's log: if a Python worker crashes at each
        start, the cause is a record of the batch, the worker's memory use, or a bug in the function
        #worker
    [suspect=sink] fix look: look for the exception of the sink or function at the end of the job's
        log
    [suspect=kill|stop|worker] fix look: find out on {host} what ended the process: read its log,
        dmesg (OOM killer) and the log of its supervisor
    [suspect=sink] or look: if there is no exception, find out on {host} what ended the process:
        read dmesg (OOM killer), its memory limit and the log of its supervisor

:: look at the batch
    [stage=settling] fix look: read in the driver's log why the outcomes of the batch are not stored
    [stage=not begun, is_first] fix look: check in Spark's UI whether an executor has a free core;
        check in the executor's log whether it reaches Kinesis and ZooKeeper
    [stage=not begun] fix look: check in Spark's UI whether a Spark job of the batch runs: if none
        runs, your function (foreachBatch) hangs before it asks for the rows; a stack dump of the
        driver's Python process shows where
    [stage=not begun, !is_first] fix look: check in Spark's UI whether an executor has a free core;
        check in the executor's log whether it reaches Kinesis and ZooKeeper
    [stage=reading] fix look: read in the executor's log whether the shard is throttled
    [stage=unanswered] fix look: find out how the driver and the Python workers ended: a record of
        the batch may crash these processes
    [stage=function, !is_late] fix look: check in Spark's UI what the sink or function waits for
    [stage=reported] fix look: read in the driver's log why Spark asks for no new batch: the trigger
        is not due, or the query hangs
    [stage=not reported] fix look: check that source.tracked(...) is passed to foreachBatch; check
        in Spark's UI what the query waits for
    [stage=sink, !is_late] fix look: check in Spark's UI which stage of the batch is running
    [is_late] fix look: take a thread dump of the driver (Spark's UI) and a stack dump of its Python
        process: the dumps show what the function or its sink waits for
    [is_late] fix start: if the function or its sink hangs, restart the job: the batch is
        redelivered

:: read faster
    [consumer=spark] fix change: give the job more cores, or make its function faster; if the shard
        is read at 2 MB per second, split it; check maxRecordsPerTrigger and readsPerSecond
    [consumer=spout] fix change: make the program (or the --exec command) faster; raise
        max_pending; share the shards among more processes (total_tasks); if the shard is read at 2
        MB per second, split it

:: other readers
    [throttled, reads_itself] fix look: ask the team that owns the stream whether other consumers
        read shard {shard} too
    [throttled, reads_itself] fix change: if other consumers read the shard, let them read less
        often, or move them to enhanced fan-out; if this job alone reads 2 MB per second, split the
        shard
    [throttled, !reads_itself] fix look: ask the team that owns the stream which other consumers
        read shard {shard}
    [throttled, !reads_itself] fix change: let the other consumers of the shard read less often,
        move them to enhanced fan-out, or split the shard

:: save the records
    [expires_soon] first change: raise the stream's retention (aws kinesis
        increase-stream-retention-period), so that unread records do not expire in the meantime

:: correct the error
    [topic=command] fix look: read what the --exec command wrote to stderr: it is in the job's log
        on {host}
    [end=failed, !remedy, topic=access|loss|network|other|right] fix look: read the log of that run
        and the log of its supervisor (systemd, Kubernetes, cron)
    [end=failed] fix change: {remedy} #{topic}
    [end=failed, !remedy] fix change: correct the cause of the error that ended the run #{topic}

:: correct the fault
    [fault=program] first change: check that the program (or the --exec command) acks or fails each
        record within --message-timeout (message_timeout_s; 30 s unless set); if the program hangs,
        restart it; if it is slow, raise the timeout #answers
    [fault=worker] fix look: find out whether the record crashes the process that receives it,
        because of its memory use or a bug in the program #worker
    [fault=reason] fix change: correct the cause of {reason:quoted}

:: read its log
    fix look: if this lasts, read in the job's log what the job does

:: ask again
    [!remedy] fix wait: wait until Kinesis answers
    [!remedy] fix look: if Kinesis does not answer for long, read the AWS Health Dashboard of the
        stream's region

# Without a state of this very stream, nothing below is about this stream.
== other stream: Blocked
    [is_earlier] the application's state belongs to an earlier stream of this name
    that earlier stream was created at {state_created_at_ms}
    the current stream was created at {stream_created_at_ms}
    [is_earlier] a job refuses to read the current stream with the state of the earlier one
    the application's state belongs to {state_arn}
    this command looks at {stream_arn}, for which the application has no state
    [is_earlier] fix run: stop all processes of the application and remove its old state $ reset
    [is_earlier] or change: to keep the old state, give the job another application name, or correct
        the job's region, account and endpoint
    [is_earlier] fix start: start the job from TRIM_HORIZON (startingPosition, --from): from the
        default, LATEST, it skips the records that the new stream already contains
    fix look: look at the stream to which the state belongs: pass its region, account and endpoint
        (--region {region})
    [!region, !is_earlier] fix look: look at the stream to which the state belongs: pass its region,
        account and endpoint
    [!is_earlier] or change: to have the job read this stream, give it another application name

# Nothing is stored, so nothing below can be judged.
== no application: Unknown
    application {application} does not exist on stream {stream}
    possible reasons: the application has never read the stream; its state was removed or lost;
        its job uses another application name, stream, ZooKeeper or --zookeeper-root
    other applications on this stream: {applications:names} and {more_applications} more
    [!more_applications] other applications on this stream: {applications:names}
    ZooKeeper has state of this application on {streams:names}
    fix look: compare --application, --stream, --zookeeper and --zookeeper-root with the options of
        the job
    fix look: to look at an existing application, pass --application {likely_application}
    fix look: to look at a stream that the application reads, pass --stream {likely_stream}
    or run: if the application's state is lost, stop the job, restore ZooKeeper's data or import the
        last export (PATH), and start the job again $ checkpoint import PATH
    or start: if the application has never run, start the job

# It is known, and no shard has a state yet. Of one that ended so, the job says why.
== not begun: Blocked
    [stage=starting] the application has just started and has not stored its starting position yet
    [stage=ended] the application ended before its first read
    the application's state was removed at {removed_at_ms} (kinesis-spout reset)
    process {pid:id} on {host} removed the state
    [stage=removed] the application was not started after that
    [stage=starting] fix wait: wait until the application has listed the stream's shards
    [stage=starting] <read its log>
    [stage=removed] fix start: start the job: it reads from its starting position; give a Spark
        query a new checkpointLocation

# Without a state of the shard there is nothing more to say of it.
== not tracked: Waiting
    [is_unknown] shard {shard} does not exist
    [is_unknown] the stream does not list the shard
    [is_unknown] the application has no state for the shard
    [!is_unknown] the application does not know shard {shard} yet
    [is_to_be_listed] the job finds the shard when it lists the shards again
    [is_unknown] fix look: list the shards of the stream $ shards
    fix wait: wait until the job lists the shards again ({option})
    [is_to_be_listed] fix look: if the job does not find the shard, check whether it is limited to
        some shards (shards, --shard)

# What is lost is lost whatever else holds the shard, and the rest is to be saved first.
== records expired: Lost, below
    [is_gone] the stream no longer lists shard {shard}, which was not read to its end
    [!is_gone] records of shard {shard} may have expired unread
    the unread records arrived from {from_at_ms} to {to_at_ms}
    [is_gone] right after a split or merge, the stream's list of shards may be out of date
    [!is_gone] the shard was last read completely {age_ms} ago
    [!is_gone] the stream keeps records for {retention_ms}
    [!is_gone] first change: raise the stream's retention before more unread records expire
    [is_gone] first look: look again in a minute: if the stream still does not list the shard, its
        unread records are lost
    [consumer=spark] first change: to continue with the remaining records, set failOnDataLoss to
        false: otherwise the job stops with an error #loss
    [consumer=spout] first change: stop all processes and set the shard to its oldest remaining
        record: otherwise the spout stops with an error, unless fail_on_data_loss is False (consume:
        --no-fail-on-data-loss) #loss $ checkpoint set {lost_shards} --to TRIM_HORIZON --allow-skip

# Not even a job that runs may read a child before its parents.
== waits for parents: Waiting, effect
    shard {shard} waits until its {parents:parent is|parents are} read to the end: {parents:shards}

# Polling may read the shard meanwhile, so a shard that keeps up has this cause, too.
== not subscribed: Slow, below
    shard {shard} has had no subscription (enhanced fan-out) since {since_at_ms}: {error}
    the shard is polled instead, within the limit of five reads and 2 MB per second that all its
        pollers share
    the job subscribes again by itself
    first change: {remedy}
    [!remedy] first change: check that the job's registered consumer exists (kinesis-spout consumers
        list)
    [is_missing] first or change: if the registered consumer was removed for good, name another one
        (consumerName, --consumer-name)

# A shard that is read, but never acked, looks like one that keeps up.
== no answers: Blocked
    [!has_ended] the spout (pid {pid:id} on {host}) has received no ack or failure since
        {since_at_ms}
    [has_ended] the spout (pid {pid:id} on {host}) received no ack or failure from {since_at_ms} to
        its end
    {timed_out:records} timed out after {timeout_ms} (message_timeout_s)
    [!timeout_ms] {timed_out:records} timed out (message_timeout_s)
    each record that timed out is redelivered
    after its last attempt, a record is dead-lettered, even if the program has processed it
    first change: make the program ack or fail each record; the --exec command must flush each line
        that it writes (print(..., flush=True), stdbuf -oL) #answers
    [!has_ended] first or start: if the program (or the --exec command) hangs, restart it

# Nothing is unread: no row below is about a shard whose records are all read and acked.
== caught up: OK, remark
    [progress=past] shard {shard} expired before the application began
    [progress=finished] shard {shard} is read to its end
    [progress=finished] all records of shard {shard} are acked
    [progress=not settled] shard {shard} is read up to its newest record; the outcomes of batch
        {plan_id} are not stored yet
    [progress=idle|not read] shard {shard} is read up to its newest record
    [leaves_next] new records of shard {shard} are not read
    [progress=reading] shard {shard} is read as fast as records arrive
    no process is running: the last run finished at {ended_at_ms}
    [has_no_owner, !ended_at_ms] no process is running
    <throttled>
    <other readers>
    [ended_at_ms] fix nothing: nothing to do until the job's next run is due
    [has_no_owner, !ended_at_ms] fix nothing: no record waits; start the job to read new records
    [!has_no_owner, !throttled, progress=finished|idle|past|reading] fix nothing: nothing to do

# It explains an old lag, whatever is found below.
== set back: Waiting, remark, below
    an operator moved shard {shard} back at {moved_at_ms} (kinesis-spout checkpoint {command})
    the shard is read again on purpose
    [is_read] fix wait: wait until the shard has caught up

# Failed records hold the shard, even where its position has just moved.
== held by order: Blocked, effect, below
    [held=new records] no new record of shard {shard} is read until the failed records of its
        ancestor, shard {holder:shard}, are resolved
    [held=new records, !holder] no new record of shard {shard} is read until its failed records are
        resolved
    [held=retries] {unresolved:records} of shard {shard} {unresolved:waits|wait} for earlier records
        of shard {holder:shard} to be resolved
    the job delivers records in order ({order})

# It is read, so nothing holds it. A process that ends again and again is explained below.
== behind: Behind
    [pace=catching up] shard {shard} is {lag_ms} behind but catches up
    [pace=not known] shard {shard} is {lag_ms} behind
    [pace=not known, !lag_ms] shard {shard} is read
    [pace=not known] the reading speed of the shard is not known yet
    [is_in_loop] shard {shard} is read only between two crashes of its process
    [pace=interrupted, !is_in_loop] shard {shard} was read until just now
    [pace=interrupted] the shard is {lag_ms} behind
    [pace=falling behind] shard {shard} is {lag_ms} behind
    [pace=falling behind] the lag of the shard grows
    [pace=falling behind, !lag_ms] the lag of shard {shard} grows
    in the last {window_ms} the job read records that had arrived within {read_ms}
    [is_after_burst] most likely, many records arrived in the shard at once
    each batch contains as many records of the shard as its limit allows ({batch_limit})
    the job is limited to {reads_per_second} reads of the shard per second
    the job is limited to {mb_per_second} MB of the shard per second
    at this pace unread records expire in {expires_in_ms}
    [pace=falling behind] at this pace unread records expire in more than {retention_ms}
    <throttled>
    fix wait: wait: at this pace the shard is caught up at {tip_at_ms}
    <other readers>
    [pace=not known] fix wait: wait a minute and look again
    <save the records>
    [reads_per_second] fix change: raise the job's limit of reads per second (readsPerSecond, or a
        spout's rate)
    [mb_per_second] fix change: raise the job's limit of bytes per second (readBytesPerSecond, or a
        spout's rate)
    [batch_limit] fix change: raise the number of records per batch: maxRecordsPerTrigger for all
        shards together, or maxRecordsPerShard
    [is_after_burst] fix wait: wait some minutes and look again
    [pace=falling behind, !has_reason] <read faster>
    [has_reason] or <read faster>

# All is read, or nothing more is read for their sake: what is left are unresolved records.
== unresolved record: Waiting
    {unresolved:records} of shard {shard} {unresolved:is|are} unresolved
    [is_at_end] the shard is read to its end
    [keeps_end] the children of shard {shard} are read once all these records are acked or
        dead-lettered
    {failed:records} failed
    {waiting:records} {waiting:waits|wait} for the failed {failed:record|records}
    [is_out] record {record:position} was delivered
    [is_out] the program has neither acked nor failed the record yet
    the record has been in flight since {out_since_at_ms} or earlier (at least {out_ms})
    the next attempt of record {record:position} is {attempt} of {attempts_max}
    [!attempts_max] the next attempt of record {record:position} is attempt {attempt}
    record {record:position} failed {failures} {failures:time|times}
    [is_rejected] record {record:position} was rejected, so it is not retried
    the next attempt is due at {due_at_ms}
    [is_due] the next attempt is due now
    [fault=reason|worker] the record fails with {reason:quoted}
    [!fault] the record failed with {reason:quoted}
    [fault=program] the program did not answer within the record's timeout (message_timeout_s)
    the shard's checkpoint did not move in {still_ms}
    [is_blocked] an earlier record blocks the record
    [becomes_letter, !letter_is_far] after its last attempt, the record is dead-lettered
    [is_expired] the record first failed so long ago that the stream no longer contains it
    [stage=delivered] the current batch delivers the record
    [stage=letter refused] the record's dead letter cannot be written
    [stage=dead letter] the record is about to be dead-lettered
    {other_failures} of these records failed, one with {other_reason:quoted}
    [stage=due|waits] fix look: show the record $ peek {shard} {sequence}
    [stage=besides|delivered, fault] fix look: show the record $ peek {shard} {sequence}
    <correct the fault>
    [stage=with the program, out_since_at_ms] fix look: find out why the program (or the --exec
        command) does not ack or fail the record: it may hang #answers
    [stage=with the program] fix wait: wait for the record's ack or failure: it times out after
        {timeout_ms} (--message-timeout, message_timeout_s)
    [stage=with the program, !timeout_ms, !has_no_timeout] fix wait: wait for the record's ack or
        failure: it times out after --message-timeout (message_timeout_s; 30 s unless set)
    [has_no_timeout] fix wait: wait for the record's ack or failure: it never times out, because
        message_timeout_s is not set
    [stage=with the program, !out_since_at_ms] fix look: find out why the program (or the --exec
        command) does not ack or fail the record: it may hang #answers
    fix change: correct the cause of {other_reason:quoted}
    [stage=dead letter] fix wait: wait until the record's dead letter is written
    [stage=dead letter] fix look: if this lasts, read in the log why the dead letter cannot be
        written: the record is acked only after that
    [stage=waits, !fault] fix wait: wait until {due_at_ms}, when the record is retried
    [stage=waits, fault] or wait: if the cause is already corrected, wait until {due_at_ms}, when
        the record is retried
    [stage=due|waits, consumer=spark, !letter_is_far] or run: if the record is dead-lettered after
        its last attempt, put it on the stream again (PATH: the path of the job's DeadLetter) $
        redrive PATH
    [stage=due|waits] or run: if the record is not needed, stop the job and skip the record $
        checkpoint skip --shard {shard} {record}

# Nothing of the shard itself holds it.
== unread: Blocked, effect, job
    [left=settling] the current batch has read shard {shard} to its end
    [left=end] the children of shard {shard} wait, because the job has not yet read that the shard
        has ended
    [left=end] all records of shard {shard} are read
    [left=records] shard {shard} has unread records
    [left=records] the oldest unread record arrived {lag_ms} ago
    [left=not known] shard {shard} may have unread records
    [left=not known, !is_never_read] all records of shard {shard} that arrived more than {lag_ms}
        ago are read
    [left=not known, is_never_read] shard {shard} was never read up to its newest record
    [left=records] the oldest unread record expires in {expires_in_ms}
    <save the records>
    [was_skipped] first look: before you start the job, find out whether records of the shard were
        skipped on purpose $ checkpoint history

# While it is paused, nothing else helps. Where no process runs besides, the rows below say so.
== paused: Paused, below
    the application was paused by {by} at {since_at_ms}, {age_ms} ago
    [!by] the application was paused at {since_at_ms}, {age_ms} ago
    [!since_at_ms] the application was paused by {by}
    [!since_at_ms, !by] the application is paused
    the reason of the pause is {reason:quoted}
    [!is_running] the command resume alone is not enough to have shard {shard} read
    fix resume: end the pause once its reason no longer applies $ resume

# Whoever starts a job without the right to read has it end at once: rights come before starts.
== kinesis refuses: Blocked, below
    Kinesis refuses reads of shard {shard}
    {error}
    [is_key] no consumer can read the stream until its KMS key can be used
    [!is_key] a job with the same credentials fails with the same error
    first change: {remedy} #right
    [!remedy] first change: give the job's credentials the right to read the stream #right

# The same in ZooKeeper: an owner ends with its first write.
== zookeeper refuses: Blocked, below
    [!writers] the ACL of {nodes} {nodes:znode|znodes} ({node}) lets nobody write
    [!writers] the job ends with an error at its first write
    only the identity {writers:names} may write {nodes} {nodes:znode|znodes} ({node})
    [writers] other identities may write the application's other znodes
    [writers] a job with another identity ends with an error at its first write
    first change: give the job's identity all rights to the {nodes:znode|znodes} again (setAcl in
        zkCli.sh, as {keepers:names}) #access
    [!keepers, !writers] first change: give the job's identity all rights to the
        {nodes:znode|znodes} again (setAcl in zkCli.sh, as ZooKeeper's superuser) #access
    first look: check whether the job has the identity {writers:names} (zookeeperAuth,
        zookeeperUser); if not, give the job's identity all rights to the {nodes:znode|znodes}
        (setAcl in zkCli.sh) #access

# A start does not help what ends after each start, so this comes before what asks for a start.
== crash loop: Blocked
    [starts] the job ends soon after each start
    [!starts] the job has made no progress since its last run failed
    the job was started {starts} times since {first_at_ms}, about every {every_ms}
    [lasted_ms] {silent} of these runs ended without a message
    each run lasted about {lasted_ms}
    <how it ended>
    [is_over] the job was not started again since then
    the job was started again at {restarted_at_ms}
    [has_same_batch] the job works on the same batch again
    one more start alone does not help
    <correct the error>
    <find the end>
    [is_over] fix start: start the job again

# A process that is halted still owns the application, or will own it again: to wake it is less than
# to start another one.
== process halted: Blocked
    [halt=jvm stopped] Spark's JVM (pid {halted:id} on {host}) is suspended, so no batch continues
    [halt=jvm stopped] the job's Python process (pid {pid:id}) still runs and keeps the session with
        ZooKeeper
    [halt=stopped] the process (pid {pid:id} on {host}) is suspended
    [halted] SIGSTOP, or Ctrl-Z in the process's terminal, has suspended it
    [halt=stopped, owns] ZooKeeper ends the session of a suspended process after
        {session_timeout_ms}
    [halt=stopped, !owns] the ZooKeeper session of the process has expired
    [halt=gone] the process (pid {pid:id} on {host}) is gone
    [halt=gone] ZooKeeper keeps the session of that process until {session_until_at_ms} at the
        latest
    [halt=cut off] the process (pid {pid:id} on {host}) runs, but has lost its session
    [halt=cut off] ZooKeeper ended the session after {session_timeout_ms} without a heartbeat
    [halt=cut off] either the process is cut off from ZooKeeper, or its spout was not closed
    fix start: continue the process: kill -CONT {halted:id} (on {host})
    or start: if the process must not continue, end it with kill -KILL {halted:id} (a suspended
        process does not react to TERM) and start the job again
    [halt=gone] fix start: start the job again: on {host} it takes over at once; on another host it
        waits for the old session to end
    [halt=gone] fix look: find out what ended the process: read its log and dmesg (OOM killer)
    [halt=cut off] fix look: read in the log of the process whether the process reaches ZooKeeper:
        then the process continues by itself
    [halt=cut off] or start: if the process hangs, end it and start the job again

# Nothing below can be judged of a process that does not run.
== not running: Blocked
    [!is_nobody] spout task {task_index} of {total_tasks} (counted from 0) is not running
    [is_nobody] no process is running, so spout task {task_index} of {total_tasks} is missing
    [!task_index] no process is running
    <how it ended>
    [end=never ran] that task has never run
    [!left] that run read all records up to {until_at_ms}
    [left] that run was to read all records up to {until_at_ms}
    the run left work for the next one: {left}
    [schedule=due|not known, !left_by] the next run reads the records that have arrived meanwhile
    that run was limited to {only_shards:shards}
    shard {shard} continues {continued:shards}
    [left_by=shards] a run with the same --shard does not read shard {shard}
    [left_by=limit] that run left records of shard {shard} that had arrived before the run started
    [left_by=limit, consumer=spout] that run was probably limited (--until, --max-records)
    [schedule=overdue] the next run is overdue: the earlier runs started within {interval_ms} of
        each other
    [!starts_with_batch] batch {plan_id} is redelivered when the job starts
    batch {plan_id} was redelivered at {starts_with_batch} {starts_with_batch:start|starts} and is
        redelivered when the job starts again
    <correct the error>
    [end=failed] fix start: start the job again
    [starts_with_batch] <find the end>
    [end=silent, starts_with_batch] fix start: start the job again
    fix start: start the job again without --shard, or with --shard for {left_shards:shards} too
    [left_by=limit, consumer=spout] fix start: start the job again with a later --until or a higher
        --max-records: the job continues at its checkpoint
    [left_by=limit, consumer=spark] fix start: start the job again: the job continues at its
        checkpoint
    [schedule=not known, !left_by] fix look: check in the job's scheduler when its next run is due
    [schedule=due|not known, !left_by] fix start: start the job again when its next run is due: the
        job continues at its checkpoint
    [schedule=overdue, !left_by] fix start: start the job again: the job continues at its checkpoint
    [schedule=overdue] fix look: find out why the job's scheduler has not started it
    [end=never ran|unknown|silent|stopped, !starts_with_batch] fix start: start the spout task with
        --task-index {task_index} --total-tasks {total_tasks}
    [end=never ran|unknown|silent|stopped, !starts_with_batch, !task_index] fix start: start the job
    [end=unknown|stopped] or look: if somebody has started the job since, compare its --application,
        --zookeeper and --zookeeper-root with those of this command
    [!starts_with_batch] <find the end>

# From here on a process runs. One that is limited to other shards never reads this one.
== not assigned: Blocked
    no process reads shard {shard}
    the running job (pid {pid:id} on {host}) is limited to {shards:shards}
    fix change: start the job again without --shard, or with this shard too; to run a second
        process, give both --task-index and --total-tasks

# What the process itself reports is nearer to the truth than what is concluded below.
== reads fail: Blocked
    [!error] the reads of the spout (pid {pid:id} on {host}) have had no response since
        {since_at_ms}
    the reads of the spout (pid {pid:id} on {host}) have failed since {since_at_ms} with: {error}
    [explain_too] this command cannot read the stream either
    the spout tries again by itself
    fix change: {remedy}
    [explain_too] <ask again>
    [!remedy, !explain_too, answers_explain] fix look: find out why Kinesis does not answer the
        spout on {host} (endpoint, DNS, proxy, VPC endpoint, security groups): it answers on this
        machine
    [!remedy, !explain_too, !answers_explain] fix look: find out why Kinesis does not answer the
        spout on {host} (endpoint, DNS, proxy, VPC endpoint, security groups)

# The program asks for nothing, or answers nothing: then no limit below counts.
== program waits: Blocked
    [hold=deactivated] the program (pid {pid:id} on {host}) deactivated the spout at {since_at_ms}
    [hold=deactivated] the spout delivers no record until activate() is called
    [hold=not taken] the program (pid {pid:id} on {host}) has taken no record since {since_at_ms}
    [hold=not taken] no new record is read while records wait for the program to take them
    [hold=full] the spout (pid {pid:id} on {host}) has received no ack or failure since
        {since_at_ms}
    the program has {max_pending:records} in flight, as many as max_pending allows, so it gets no
        new records
    [hold=full, !max_pending] the program has as many records in flight as max_pending allows, so it
        gets no new records
    [hold=deactivated] fix change: make the program call activate()
    [hold=not taken] fix look: find out on {host} what the program waits for (py-spy dump --pid
        {pid:id}, or strace): for an outcome of its records, or for a reader of its output #answers
    [hold=not taken] or start: if the program hangs, restart it
    [hold=full] fix look: find out on {host} what the program, or the --exec command, waits for
        (py-spy dump --pid {pid:id}, or strace): it must ack or fail its records in flight #answers
    [hold=full] or change: if the program needs more records at a time, raise max_pending

# Records that cannot leave fill the room of the shard: before the limits, which they reach.
== letters refused: Blocked
    the dead {letters:letter|letters} for {letters:records} cannot be written
    the last write of a dead letter failed at {refused_at_ms} with: {error}
    [unresolved] the checkpoint of shard {shard} stays before its first unresolved record
    no new record is read once the shard has max_unresolved_per_shard ({max_unresolved}) unresolved
        records
    fix change: make the file or function in dead_letter (--dead-letter) writable again: the job
        retries the dead letters within 60 s, without a restart
    fix change: correct the cause of {reason:quoted}: otherwise more records are dead-lettered

# In an outage nothing is wrong with the records, or the limits that they reach.
== outage: Blocked
    nearly all records of the last batch failed, so the job assumes an outage
    {records:records} failed with {reason:quoted}
    during an outage, failed attempts do not count
    no new records are read until a failed record succeeds
    the next attempt for the failed records is due at {until_at_ms}
    fix change: repair the sink to which the function writes, or the service that it calls; the log
        contains all reasons; do not skip the records
    fix wait: wait until {until_at_ms}

# A batch that does not read the shard at all, as too much of it is unresolved.
== unresolved limit: Blocked
    no new record of shard {shard} is read while {unresolved:records} {unresolved:is|are} unresolved
    [is_reached] the shard has reached its limit of unresolved records ({max_unresolved})
    [!is_reached] the shard may have reached its limit of unresolved records ({max_unresolved})
    the shard may have reached its limit of unresolved records ({usual_max} unless set), which a
        Spark job does not store
    max_pending limits the unresolved records of all shards together ({total} now)
    [fault] fix look: show the record $ peek {shard} {sequence}
    <correct the fault>
    [!fault] fix change: repair the system that these records depend on
    or change: if {option} is set as low as {unresolved} ({usual_max} unless set), raise it
    or change: to allow more unresolved records, raise {option} from {max_unresolved}
    <read its log>

# The job is at work. It is the answer where nothing above has found it hindered.
== batch under way: Busy
    [last_batch=none] no batch is running
    [last_batch=done] the last batch has finished
    [last_batch=read] the records of batch {plan_id} are read; the sink has written them or is
        writing them
    the next batch starts at about {due_at_ms}: the trigger fires every {trigger_ms}
    [stage=search] batch {plan_id} ended without reporting outcomes: one of its records may crash
        the process that receives it
    the job delivers at most {delivery_limit:records} at a time until it has found the record that
        crashes the process
    [stage=settling] the outcomes of batch {plan_id} are being stored
    [stage=no answer] batch {plan_id} waits for Kinesis, which does not answer for the shard:
        {error}
    [stage=not begun] batch {plan_id} has read nothing yet
    [stage=not begun, !throttled] either the batch's task waits for an executor with a free core, or
        your function has not asked for the rows
    [stage=reading] batch {plan_id} is being read ({rows:records} so far)
    [stage=unanswered] batch {plan_id} was delivered {openings} times without reporting outcomes
    [stage=unanswered] each time, the process that ran the batch ended; the last one may still be
        running
    [stage=function] your function is processing batch {plan_id}
    [stage=reported] batch {plan_id} is processed: its outcomes are stored when Spark asks for the
        next batch
    [stage=not reported] the records of batch {plan_id} are read, but its outcomes are not reported
        yet
    [stage=sink, !is_late] the records of batch {plan_id} are read: the sink is writing them, or
        Spark waits for its next trigger
    [stage=sink, is_late] the records of batch {plan_id} are read, but the batch has not ended: the
        function (foreachBatch) has not returned, the sink is still writing, or Spark waits for a
        trigger
    [!due_at_ms] the batch was planned {age_ms} ago
    [!due_at_ms] the previous batch took {usual_ms}
    [!due_at_ms] this run has worked on the batch for {run_ms}
    <throttled>
    fix wait: wait until {due_at_ms}
    [stage=trigger] or change: for more frequent batches, give the query a shorter trigger
    [stage=search] fix wait: wait until the job has found the record that crashes the process
    [stage=search] fix look: find out how the executors' Python workers ended #worker
    [stage=no answer, !is_restarting] fix change: {remedy}
    [stage=no answer, !is_restarting, !remedy] fix look: read the AWS Health Dashboard of the
        stream's region
    [!is_restarting] <other readers>
    [is_long, !is_restarting, !throttled] <look at the batch>
    [!is_restarting, !due_at_ms, !delivery_limit, !is_late] fix wait: wait for the batch to finish
    [!is_long, !is_restarting, !throttled] or <look at the batch>

# Without a batch: what the service answers to whoever asks now.
== kinesis silent: Blocked
    <throttled>
    [throttled=batch|lately] nothing in the job itself is blocked
    Kinesis does not answer for shard {shard}: {error}
    [error] the job gets no answer from Kinesis either, and tries again by itself
    <other readers>
    [throttled] fix wait: wait a minute and look again
    fix change: {remedy}
    [error] <ask again>

# Nobody asked the service for the tip, so it may be that all is well.
== not asked: OK
    shard {shard} was read up to its newest record when the job last stored its state
    [is_refused] it is not known whether shard {shard} has newer records: this command's user may
        not read the stream
    [!is_refused] it is not known whether shard {shard} has newer records: this command did not read
        the shard's newest record
    [is_refused] fix change: give this command's user the right to read (kinesis:GetRecords)
    [is_refused] <read its log>
    [!is_refused] fix look: explain this shard alone, or raise --ask, to read its newest record

# It answers every state: a process runs, and nothing that is stored says what it waits for.
== not visible: Unknown, remark
    [consumer=spark] the job runs, but its stored state does not show what it waits for
    [consumer=spout] the spout runs, but its stored state does not show what it waits for
    [keeps_up] either the program requests no record because max_pending records are in flight, or a
        retry has just been made and is not stored yet
    [!keeps_up, consumer=spout] the cause may be other consumers that use up the shard's limits, the
        spout's limits (max_pending, max_unresolved_per_shard, rate), a program that requests no
        record, or the network
    [consumer=spark] the cause may be other consumers that use up the shard's limits, the interval
        of the trigger, the job's limits (records per trigger, unresolved records per shard), or the
        network
    the session with ZooKeeper is open, so the process (pid {pid:id} on {host}) was alive within the
        last {session_timeout_ms}
    [!is_restarting] fix wait: wait a moment and look again
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
    answer = row.rule(look, shard_id)
    return None if answer is None else row.cause(answer, shard_id, look.now.now_ms, None)


def _answer(
    look: Look, about: str, first: int, used: set[tuple[Kind, str]]
) -> tuple[int, Row, Found]:
    """The first row that answers. Parents in a circle, which no service creates, are passed over
    the second time.
    """
    for place, row in enumerate(TABLE[first:], start=first):
        is_new = (row.kind, about) not in used
        if is_new and (answer := row.rule(look, about)) is not None:
            return place, row, answer
    raise AssertionError("the last row answers always")


def _remarks(look: Look, chain: list[Cause]) -> Iterator[Cause]:
    """The unresolved records of a shard that has more to read, and so is held by none of them."""
    about = chain[-1].shard_id
    kinds = {one.kind for one in chain if one.shard_id == about}
    is_caught_up = any(one.kind is Kind.CAUGHT_UP and one.role is Role.EFFECT for one in chain)
    if not (kinds & _READ_ON or is_caught_up) or Kind.LETTERS_REFUSED in kinds:
        return
    for row, rule in _BESIDES:
        if row.kind not in kinds and (answer := rule(look, about)) is not None:
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
    live = [shard for shard in wanted if look.phase(shard) not in OVER]
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
        found.setdefault((look.health(shard), kinds, actions), []).append(explained)

    def backlog(one: Explanation) -> tuple[int, int]:
        until_ms = max((each.until_ms or 0 for each in one.actions()), default=0)
        return until_ms, look.lag_ms(one.shard_id) or 0

    groups = [
        Group(max(members, key=backlog), tuple(one.shard_id for one in members))
        for members in found.values()
    ]
    return sorted(groups, key=lambda group: -SEVERITY[look.health(group.explanation.shard_id)])
