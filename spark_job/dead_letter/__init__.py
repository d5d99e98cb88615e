"""Dead letters: records that could not be processed. Writes them to a sink."""

from kinesis_spout.dead_letter.letter import LETTER_COLUMNS, LETTER_DDL, Letter
from spark_job.dead_letter.dead_letter import DeadLetter, DeadLetterError, LetterSink

__all__ = ["LETTER_COLUMNS", "LETTER_DDL", "DeadLetter", "DeadLetterError", "Letter", "LetterSink"]
