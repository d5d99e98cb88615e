"""An error of one of several streams of a query, which names its stream.

What one stream meets names its plan, shard or application, since a query of one stream needs no
more. In a query of several streams the same text may be of any of them. Used on the driver, in the
tasks, and where outcomes are reported.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kinesis_spout.errors import KinesisError
from state.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_job.settings import SourceSettings


class StreamError(KinesisError):
    """An error of one of several streams, whose own text does not name it."""


def named_error(label: str, error: BaseException) -> BaseException:
    """The error, with the stream's name in its text. Errors of other packages stay as they are."""
    # The name alone may be part of the application's name.
    names_it = re.search(rf"(?:\bstream '?|/){re.escape(label)}(?![\w.-])", str(error))
    if names_it or not isinstance(error, KinesisError | StateError):
        return error
    named = StreamError(f"stream {label}: {error}")
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
