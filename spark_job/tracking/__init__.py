"""Tracks the outcome of each record: runs the user's function on a batch, and reports failures.

foreach_batch     opens the batch's report, runs the function, writes and finishes the report
options           the arguments of `KinesisSource.tracked`, checked
tracked_batch     `TrackedBatch`, the user's API inside the function
outcomes          what can be said of a record: `Reject`, `Retry`, `Outcome`, `FailedRecord`
outcome_rules     decides: queued for a retry, dead-lettered, or an outage (pure)

batch_frame       the batch's source rows on the driver, read once and persisted
poison_search     which rows the function gets after deliveries that never answered (pure)
withholding       which rows the function does not get: exhausted ones, and blocked ones (pure)
content_check     compares the rows of the batch with the rows that the tasks published (pure)
stream_part       the part of a batch that is of one stream: its plan, its report, its failures
batch_run         runs the function on the batch, or on parts of it
bisect            finds the poison records of a batch that fails as a whole (pure)

evaluation        `map_records` on the driver: one persisted evaluation of the user's function
record_mapping    `map_records` on the executors: calls the function for each record
record_note       the rows that `map_records` adds to its output: failures and summaries
row_output        turns what the function returned into Arrow columns
failing_rows      `fail_where`: which records of a frame meet a condition
letters           writes the dead letters of a batch
spark_sql         calls of Spark SQL that take more than one line to get right

A module marked as pure does no I/O and reads no clock.
"""
