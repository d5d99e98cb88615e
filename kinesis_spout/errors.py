"""Errors of the kinesis_spout package, and what a caller may do about each.

    KinesisError
    |-- ConfigError (ValueError)                  an option that is unknown, malformed or contradicts another
    |-- CredentialsError                          none found, half found, refused or expired
    |-- AccessDeniedError                         the credentials are good, but may not do this (KMS included)
    |-- StreamNotFoundError                       no such stream in that region and account
    |-- ShardNotFoundError                        the stream is there, the shard is not (any more)
    |-- ExpiredIteratorError                      the iterator is no good (any more): create a new one
    |-- RequestRefusedError                       the service refuses an argument, a sequence number of another stream, say
    |-- ThrottledError  (retryable)               a limit of the shard, the account or KMS was hit
    |   `-- StillThrottledError                   ... and that did not end within the time allowed
    |-- ServiceUnavailableError  (retryable)      5xx, a timeout, a dropped connection, a stream that is being created
    |-- MalformedResponseError                    an answer outside the contract; was asked for again before
    |-- DataLossError                             records that were to be read are not in the stream any more
    |-- MissingExtraError (ImportError)           a package that only an extra brings is not installed
    `-- IllegalAckerEventError                    a tuple that was answered already, a root that is not the acker's

Messages are one sentence: what is wrong, where (stream, region or endpoint), what to do. They hold
no secret and no signed header.
"""

from __future__ import annotations


class KinesisError(Exception):
    """Root of what this package raises. `retryable` tells a transient fault from a final one."""

    retryable = False


class ConfigError(KinesisError, ValueError):
    """A bad option. The message names it as the user spells it, its value unless it is a secret,
    and the rule.

    `option`, where known, is the spelling in the message; `respelt` gives the same error in another
    one.
    """

    def __init__(self, message: str, *, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option

    @classmethod
    def of(cls, option: str, rule: str, value: object = None) -> ConfigError:
        """`option <option>: <value> <rule>`; leave `value` out for a secret."""
        shown = "" if value is None else f" {value!r}"
        return cls(f"option {option}:{shown} {rule}", option=option)

    def respelt(self, option: str) -> ConfigError:
        """The same error with the option named `option`, for a front end whose users know it by
        another name.
        """
        if self.option is None:
            return self
        return ConfigError(
            str(self).replace(f"option {self.option}:", f"option {option}:", 1), option=option
        )

    def __reduce__(self) -> tuple[object, tuple[str, str | None]]:
        return _config_error, (str(self), self.option)


def _config_error(message: str, option: str | None) -> ConfigError:
    return ConfigError(message, option=option)


class CredentialsError(KinesisError):
    """No credentials, half of them, or such as the service does not accept."""


class AccessDeniedError(KinesisError):
    """The credentials are valid, but not allowed to do this; or the stream's KMS key cannot be
    used.
    """


class StreamNotFoundError(KinesisError):
    """No stream of that name in that region and account."""


class ShardNotFoundError(KinesisError):
    """The stream exists, the shard does not: it is past retention, or of another stream."""


class ExpiredIteratorError(KinesisError):
    """The iterator is older than five minutes, or was never one of this stream's. Create a new one
    at the same position.
    """


class RequestRefusedError(KinesisError):
    """The service refused an argument: a sequence number of another stream or shard, a time that is
    to come.
    """


class ThrottledError(KinesisError):
    """A limit of the shard, the account or KMS was hit. Nothing was read; ask again later."""

    retryable = True


class StillThrottledError(ThrottledError):
    """Throttled for so long that waiting is given up: another consumer uses up the
    shard's limits.
    """

    retryable = False


class ServiceUnavailableError(KinesisError):
    """The service did not answer, or with a fault of its own."""

    retryable = True


class MalformedResponseError(KinesisError):
    """A body that is no JSON, or not what the service's contract promises."""


class DataLossError(KinesisError):
    """Records that were to be read are gone: older than the stream's retention, or in a shard that
    vanished.
    """


class MissingExtraError(KinesisError, ImportError):
    """A package that only an extra brings is not installed; the message says how to install it."""


class IllegalAckerEventError(KinesisError):
    """An event that an acker or a tuple tree cannot take: a second answer, a root that it never
    issued. Nothing was changed.
    """
