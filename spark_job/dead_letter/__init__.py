"""Dead letters: records that could not be processed. Writes them to a sink, and puts them back."""

from spark_job.dead_letter.dead_letter import DeadLetter, DeadLetterError, LetterSink
from spark_job.dead_letter.letter import LETTER_COLUMNS, LETTER_DDL, Letter

__all__ = ["LETTER_COLUMNS", "LETTER_DDL", "DeadLetter", "DeadLetterError", "Letter", "LetterSink"]
