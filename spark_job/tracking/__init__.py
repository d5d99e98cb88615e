"""Tracks the outcome of each record: runs the user's function on a batch, and reports failures.

options           the arguments of `KinesisSource.tracked`, checked

In the order of the seven steps of a batch:

foreach_batch     the steps: opens the batch's report, runs the function, finishes the report
stream_part       1 to 3, 5, 7: one stream's part of a batch, with its plan, report and results
batch_frame       4: the batch's source rows on the driver, read once and persisted
withholding       4: which rows the function does not get: exhausted ones, and blocked ones (pure)
poison_search     4: which rows it gets after deliveries that never answered (pure)
batch_run         4: runs the function on the batch, or on parts of it
bisect            4: finds the poison records of a batch that fails as a whole (pure)
tracked_batch     4: `TrackedBatch`, the user's API inside the function
evaluation        4: `map_records` on the driver: one persisted evaluation of the function
record_mapping    4: `map_records` on the executors: calls the function for each record
content_check     5: compares the rows of the batch with those that the tasks published (pure)
outcome_rules     6: decides: queued for a retry, dead-lettered, or an outage (pure)
letters           6: writes the dead letters

outcomes          what can be said of a record: `Reject`, `Retry`, `Outcome`, `FailedRecord`
spark_sql         calls of Spark SQL that take more than one line to get right

A failed record goes from the function to its retry in six forms: what the function raised; a
`FailedRecord`; its note, a row of the evaluation; the `FailedRecord` on the driver; an
`UnresolvedRecord`, which waits for its retry in the report and in the shard state; a `PlannedRetry`
of a later plan. `batch.fail` begins with the `FailedRecord` on the driver.

A module marked as pure does no I/O and reads no clock.
"""
