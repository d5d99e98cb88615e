"""What a tracked query's failure is told as, for `kinesis-spout explain`. Pure."""

from __future__ import annotations

from kinesis_spout.shards.run_recorder import error_sentence
from spark_job.query_failure import failure_sentence

_SPARK = ("pyspark.", "py4j.")
_OURS = ("kinesis_spout.", "state.", "scheme.", "spark_job.")


def failure_told(error: BaseException) -> str:
    """The error that fails a batch, as a sentence.

    Ours are sentences, and Spark's text is complete: it may be of a task of any sort. What is left
    is Python's own, or of another package, and was raised by the function of the batch.
    """
    module = f"{type(error).__module__}."
    if module.startswith(_OURS):
        return error_sentence(error)
    if module.startswith(_SPARK):
        return failure_sentence(str(error))
    return f"the function given to tracked(...) raised {error_sentence(error)}"
