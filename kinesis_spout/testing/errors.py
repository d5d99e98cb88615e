"""The errors that FakeKinesis raises on purpose.

    FakeKinesisError
    |-- ServiceError        an error response of the service: a code, a message, an HTTP status
    `-- TransportFaultError no response: the connection breaks (only a fault plan causes it)

Error codes and their conditions are those of the API reference (`Errors` of each operation, and
`Common Errors`).
"""

from __future__ import annotations


class FakeKinesisError(Exception):
    """Root of the errors that the fake raises on purpose."""


class ServiceError(FakeKinesisError):
    """An error response of the service.

    `code` is the one of the API reference. `status` is the HTTP status: 400, or 500 and 503 for
    faults of the service itself.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class TransportFaultError(FakeKinesisError):
    """The caller gets no response because the connection breaks.

    `processed`: whether the service carried the request out before the connection broke.
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
    """The error for a request member outside of its documented bounds."""
    return ServiceError(
        "ValidationException",
        f"1 validation error detected: Value {value!r} at '{field}' failed to satisfy constraint: "
        f"{rule}",
    )
