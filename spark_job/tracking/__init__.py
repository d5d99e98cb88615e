"""Tracks the outcome of each record: runs the user's function on a batch, and reports failures.

options           the arguments of `KinesisSource.tracked`, checked

In the order of the seven steps of a batch:

foreach_batch     1 to 7: opens each stream's report, runs the function, writes the dead letters,
                  finishes the reports
stream_part       1 to 7: one stream's part of the batch, and the check of its rows in 5
batch_frame       4: the batch's source rows on the driver, read once and persisted
withholding       4: which rows the function does not get: exhausted ones, and blocked ones (pure)
poison_search     4: which records end the process that gets them, and which ones make a batch fail
                  as a whole (pure)
batch_run         4: runs the function on the batch, or on parts of it
tracked_batch     4: `TrackedBatch`, the user's API inside the function; `map_records` on the driver
record_mapping    4: `map_records` on the executors: calls the function for each record
content_check     5: compares the rows of the batch with those that the tasks published (pure)
outcome_rules     6: decides: queued for a retry, dead-lettered, or an outage (pure)
batch_letters     6: the dead letters as a frame, with the records

outcomes          what can be said of a record: `Reject`, `Retry`, `Outcome`, `FailedRecord`
spark_sql         calls of Spark SQL that take more than one line to get right

`docs/concepts/a-records-way.md` has the forms that a failed record takes on its way to its retry.

A module marked as pure does no I/O and reads no clock.
"""
