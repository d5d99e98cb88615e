"""How FakeKinesis says no: as the service does, or as a network does.

    FakeKinesisError
    |-- ServiceError        an answer of the service: an error code, a message, an HTTP status
    `-- TransportFaultError no answer: the connection is dropped (only a fault plan causes it)

The codes and when each comes are those of the API reference (`Errors` of each operation, and
`Common Errors`).
"""

from __future__ import annotations


class FakeKinesisError(Exception):
    """Root of what the fake raises on purpose."""


class ServiceError(FakeKinesisError):
    """An error answer: `code` as in the API reference, HTTP `status` 400 or, of the service's own
    faults, 500 and 503.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class TransportFaultError(FakeKinesisError):
    """The caller gets no answer. `processed` tells whether the service has done what was asked
    before the line went dead.
    """

    def __init__(self, *, processed: bool) -> None:
        super().__init__(
            f"connection dropped {'after' if processed else 'before'} the request was processed"
        )
        self.processed = processed


def invalid_argument(message: str) -> ServiceError:
    return ServiceError("InvalidArgumentException", message)


def not_found(message: str) -> ServiceError:
    return ServiceError("ResourceNotFoundException", message)


def in_use(message: str) -> ServiceError:
    return ServiceError("ResourceInUseException", message)


def limit_exceeded(message: str) -> ServiceError:
    return ServiceError("LimitExceededException", message)


def throughput_exceeded(message: str) -> ServiceError:
    return ServiceError("ProvisionedThroughputExceededException", message)


def validation(field: str, value: object, rule: str) -> ServiceError:
    """What the service says of a member outside its documented bounds."""
    return ServiceError(
        "ValidationException",
        f"1 validation error detected: Value {value!r} at '{field}' failed to satisfy constraint: "
        f"{rule}",
    )
