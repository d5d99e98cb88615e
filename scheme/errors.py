"""Errors of the scheme package.

SchemeError
|-- MalformedRecordError (ValueError)    a record's bytes do not decode; `reason` says why
|-- PayloadError (ValueError)            the same, as `PayloadScheme.read` raises it
|-- SchemeDefinitionError (ValueError)   the schema is outside the grammar or not supported
`-- SchemeUnavailableError               a registry cannot be reached; a retry may help
"""

from __future__ import annotations

from functools import partial


class SchemeError(Exception):
    """Root of the errors that this package raises. `message`, `remedy`: what is wrong, and what to
    do about it, empty where nothing can be done. Its text is both.
    """

    def __init__(self, message: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class MalformedRecordError(SchemeError, ValueError):
    """A record that does not decode. A retry does not help: the record is for the dead letters.

    `reason` is a fixed sentence. Neither it nor the error has bytes of the payload, which may be
    secret. `message_id` names the emission.
    """

    def __init__(self, reason: str, *, message_id: str) -> None:
        super().__init__(f"record {message_id}: {reason}")
        self.reason = reason
        self.message_id = message_id

    def __reduce__(self) -> tuple[object, ...]:
        return partial(MalformedRecordError, message_id=self.message_id), (self.reason,)


class PayloadError(SchemeError, ValueError):
    """A payload that does not decode, raised by `PayloadScheme.read`. Its caller knows the record,
    and makes a `MalformedRecordError` of it.

    `reason` is a fixed sentence without a byte of the payload.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SchemeDefinitionError(SchemeError, ValueError):
    """A schema that is outside the grammar, or that a scheme does not support."""


class SchemeUnavailableError(SchemeError):
    """Something that a scheme needs beside the record, a schema registry for example, cannot be
    reached. No record is malformed by it. The spout delivers the record again. In a Spark column it
    fails the batch, of which nothing is acked then.
    """
