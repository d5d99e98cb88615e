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
    """Base class of this package's errors. `message` says what is wrong; `remedy` says what to do,
    or is empty if nothing can be done. The error's text contains both.
    """

    def __init__(self, message: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class MalformedRecordError(SchemeError, ValueError):
    """A record that cannot be decoded. A retry does not help: the record is to be dead-lettered.

    `reason` is a fixed sentence. Neither the reason nor the error contains bytes of the payload,
    which may be secret. `message_id` names the emission.
    """

    def __init__(self, reason: str, *, message_id: str) -> None:
        super().__init__(f"record {message_id}: {reason}")
        self.reason = reason
        self.message_id = message_id

    def __reduce__(self) -> tuple[object, ...]:
        return partial(MalformedRecordError, message_id=self.message_id), (self.reason,)


class PayloadError(SchemeError, ValueError):
    """A payload that cannot be decoded, raised by `PayloadScheme.read`. The caller, which knows the
    record, turns it into a `MalformedRecordError`.

    `reason` is a fixed sentence without a byte of the payload.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SchemeDefinitionError(SchemeError, ValueError):
    """A schema that does not fit the grammar, or that a scheme does not support."""


class SchemeUnavailableError(SchemeError):
    """Something that a scheme needs besides the record, such as a schema registry, cannot be
    reached. This makes no record malformed. The spout redelivers the record. In a Spark column, the
    error fails the batch, and none of its records are acked.
    """
