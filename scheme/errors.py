"""Errors of the scheme package.

SchemeError
|-- MalformedRecordError (ValueError)    a record's bytes do not decode; `reason` says why
`-- SchemeDefinitionError (ValueError)   the schema is outside the grammar or not supported
"""

from __future__ import annotations


class SchemeError(Exception):
    """Root of the errors that this package raises."""


class MalformedRecordError(SchemeError, ValueError):
    """A record that does not decode. A retry does not help: the record is for the dead letters.

    `reason` is a fixed sentence. Neither it nor the error has bytes of the payload, which may be
    secret. `message_id` names the emission.
    """

    def __init__(self, reason: str, *, message_id: str) -> None:
        super().__init__(reason, message_id)
        self.reason = reason
        self.message_id = message_id

    def __reduce__(self) -> tuple[object, ...]:
        return _malformed, (self.reason, self.message_id)

    def __str__(self) -> str:
        return f"record {self.message_id}: {self.reason}"


class SchemeDefinitionError(SchemeError, ValueError):
    """A schema that is outside the grammar, or that a scheme does not support."""


def _malformed(reason: str, message_id: str) -> MalformedRecordError:
    return MalformedRecordError(reason, message_id=message_id)
