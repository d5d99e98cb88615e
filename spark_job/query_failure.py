"""The cause of a failed query in one sentence, out of the pages of text that Spark, py4j and the
Python workers wrap around it.

What one stream meets names its plan, shard or application, since a query of one stream needs no
more. In a query of several streams the same text may be of any of them, so the error names its
stream too: on the driver, in the tasks, and where outcomes are reported.
"""

from __future__ import annotations

import logging
import re
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesis_spout.application.run_recorder import error_sentence, reported
from kinesis_spout.errors import MAX_MESSAGE_CHARS, KinesisError, described, text_of
from state.errors import StateError
from state.store.runs import ReportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import SourceSettings

_TRACEBACK = "Traceback (most recent call last):"
_ERROR_CLASS = re.compile(r"^\[[A-Z][A-Z0-9_.]*\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: .*$", re.DOTALL)  # with the position and plan that follow
_RAISED = re.compile(r"^((?:\w+\.)*)(\w+)(?:: (.*))?$", re.DOTALL)
_OURS = ("kinesis_spout.", "state.", "scheme.", "spark_job.")
_CALLED = re.compile(r"^An error occurred while calling .*\n: ")  # py4j, before Java's message
_TASK = re.compile(
    r"^(?:[\w.]+Exception: )?Job aborted due to stage failure: "
    r".*?: Lost task [^(]*\(TID \d+\) \([^)]*\): "
)
_FRAME = re.compile(r"^\s|^\tat |^Caused by: |^=== ")
MAX_LENGTH = 600
MAX_TRACE_CHARS = 200_000
log = logging.getLogger("kinesis_spout")


class FunctionError(KinesisError):
    """The function of a batch raised what Spark cannot take: no Exception, or one whose text cannot
    be sent to Java. The message says what it was, and the log has where.
    """


class StreamError(KinesisError):
    """An error of one of several streams, whose own text does not name it."""


def named_error(label: str, error: BaseException) -> BaseException:
    """The error, with the stream's name in its text. Errors of other packages stay as they are."""
    # The name alone may be part of the application's name.
    names_it = re.search(rf"(?:\bstream '?|/){re.escape(label)}(?![\w.-])", str(error))
    if names_it or not isinstance(error, KinesisError | StateError):
        return error
    named = StreamError(f"stream {label}: {error.message}", error.remedy)
    named.__cause__ = error
    return named


@contextmanager
def naming(settings: SourceSettings) -> Iterator[None]:
    """Our errors in the block name the stream, in a query of several streams."""
    try:
        yield
    except (KinesisError, StateError) as error:
        if not settings.named_in_ids or (named := named_error(settings.label, error)) is error:
            raise
        raise named from error


def failure_sentence(text: str) -> str:
    """The cause of a failed query, from its exception's text.

    It is the last Python traceback's error, which is the outermost Python error. Without a
    traceback it is the first line of Spark or Java.
    """
    before, marker, after = text.rpartition(_TRACEBACK)
    sentence = _raised_in(after) if marker else None
    sentence = sentence or _first_line(before or text)
    return sentence if len(sentence) <= MAX_LENGTH else f"{sentence[:MAX_LENGTH]}..."


def failure_told(error: BaseException) -> ReportedError:
    """The error that fails a batch, as it is stored.

    Ours are sentences, and Spark's text is complete: it may be of a task of any sort. What is left
    is Python's own, or of another package, and was raised by the function of the batch.
    """
    module = f"{type(error).__module__}."
    if module.startswith(_OURS):
        return reported(error)
    if module.startswith(("pyspark.", "py4j.")):
        return ReportedError.of_text(failure_sentence(text_of(error, MAX_MESSAGE_CHARS)))
    said = f"the function given to tracked(...) raised {error_sentence(error)}"
    return ReportedError.of_text(said)


def for_spark(error: BaseException, function: str) -> BaseException:
    """The error of a user's function, as Spark can take it from the function of `foreachBatch`:
    an Exception, whose traceback can be sent to Java. With anything else Spark waits, or says that
    a network connection has failed. `function` names it. An interrupt is left as it is.
    """
    trace = "".join(traceback.format_exception(error))
    # UTF-8 cannot encode half of a surrogate pair, nor Java take a text of a gigabyte.
    can_be_sent = len(trace) <= MAX_TRACE_CHARS and trace == trace.encode(errors="replace").decode()
    if isinstance(error, KeyboardInterrupt) or (isinstance(error, Exception) and can_be_sent):
        return error
    log.error(
        "%s raised an error that Spark cannot pass on\n%s",
        function,
        text_of(trace, MAX_TRACE_CHARS),
    )
    return FunctionError(f"{function} raised {described(error)}")


def _raised_in(after: str) -> str | None:
    """The error after a traceback's first line: the first line that is not part of a stack, with
    the lines that continue it.
    """
    lines = iter(after.splitlines())
    for line in lines:
        if not line.strip() or line.startswith((" ", "\t")):
            continue
        message = [line.strip()]
        for more in lines:
            if not more.strip() or _FRAME.match(more):
                break
            message.append(more.strip())
        return _without_class(" ".join(message))
    return None


def _without_class(raised: str) -> str:
    """`package.module.Error: message` without its class, for our errors; others keep the class's
    name.
    """
    match = _RAISED.match(raised)
    if match is None:
        return raised
    module, name, message = match.groups()
    if not message:
        return name
    message = _SQLSTATE.sub("", _ERROR_CLASS.sub("", message))
    return message if module.startswith(_OURS) else f"{name}: {message}"


def _first_line(text: str) -> str:
    for wrapping in (_CALLED, _TASK):
        match = wrapping.match(text)
        if match is not None:
            return _without_class(_first_line(text[match.end() :]))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "the query failed without saying why"
    return _SQLSTATE.sub("", _ERROR_CLASS.sub("", lines[0]))
