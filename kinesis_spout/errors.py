"""Errors of the kinesis_spout package, and what they mean to a caller.

    KinesisError
    |-- ConfigError (ValueError)              an option is unknown, malformed or contradicts another
    |-- CredentialsError                      none found, half found, refused or expired
    |   `-- StaleCredentialsError (retryable) ... after the service has answered: new ones may come
    |-- AccessDeniedError                     valid credentials without permission
    |   `-- KeyAccessError                    ... to use the stream's KMS key, or it cannot be used
    |-- StreamNotFoundError                   no such stream in that region and account
    |-- ShardNotFoundError                    the stream exists, the shard does not (any more)
    |-- ConsumerNotFoundError                 the stream has no such registered consumer
    |-- ExpiredIteratorError                  an iterator, or a page token, is not valid (any more)
    |-- RequestRefusedError                   the service refuses an argument
    |-- ThrottledError  (retryable)           a limit of the shard, the account or KMS was exceeded
    |   |-- KeyThrottledError                 ... of the requests for the stream's KMS key
    |   `-- StillThrottledError               ... for longer than the time allowed
    |-- ServiceUnavailableError  (retryable)  5xx, timeout, dropped connection, stream being created
    |   `-- SubscriptionInUseError            another subscription of the consumer has the shard
    |-- MalformedResponseError                an answer outside the contract, after retries
    |   `-- UnreadableRecordError             ... about one record, which stays so
    |-- DataLossError                         records that were to be read are not in the stream
    |-- MissingExtraError (ImportError)       a package that an extra installs is missing
    |-- InterruptedSleepError                 the spout is closed during a wait for the next attempt
    `-- IllegalAckerEventError                a second outcome, or a root that is not the acker's

A message is one sentence: what is wrong and where (stream, region or endpoint). The remedy says
what to do. Neither holds a secret or a signed header.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from state.errors import RemediedError

if TYPE_CHECKING:
    from scheme.errors import MalformedRecordError

MAX_REASON_CHARS = 1_000
MAX_MESSAGE_CHARS = 1_000_000  # of an error that is searched for its cause, as Spark's pages are
# What ends the program, or a block, from outside: no failure of the record that the block is about.
NO_OUTCOME = (KeyboardInterrupt, SystemExit, GeneratorExit)
_OURS = frozenset({"kinesis_spout", "state", "scheme", "spark_job"})
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


class KinesisError(RemediedError):
    """The root of this package's errors. `retryable`: the fault is transient."""

    retryable = False


class ConfigError(KinesisError, ValueError):
    """An invalid option. The message names the option as the user spells it, its value unless that
    is a secret, and the rule.

    `option`, `problem`: the name with which the message begins, and what it says of that; None and
    empty where it is about no single option.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.option: str | None = None
        self.problem = ""

    @classmethod
    def about(
        cls, option: str, problem: str, remedy: str = "", *, kind: str = "option"
    ) -> ConfigError:
        """The error `option <option><problem>`."""
        found = cls(f"{kind} {option}{problem}", remedy)
        found.option, found.problem = option, problem
        return found

    @classmethod
    def of(cls, option: str, rule: str, value: object = None, *, remedy: str = "") -> ConfigError:
        """The error `option <option>: <value> <rule>`. Leave `value` out for a secret."""
        shown = "" if value is None else f" {value!r}"
        return cls.about(option, f":{shown} {rule}", remedy)

    def respelt(self, option: str, kind: str = "option") -> ConfigError:
        """The same error with the option spelt `option`, for a front end whose users know it by
        another name, or as another `kind` of parameter.
        """
        if self.option is None:
            return self
        return ConfigError.about(option, self.problem, self.remedy, kind=kind)


class CredentialsError(KinesisError):
    """No credentials, half of them, or credentials that the service does not accept."""


class StaleCredentialsError(CredentialsError):
    """The service has accepted the credentials before, and does not any more, or they are not found
    any more. They are looked up again at each attempt.
    """

    retryable = True


class AccessDeniedError(KinesisError):
    """The credentials are valid but lack the permission, or the stream's KMS key cannot be used."""


class KeyAccessError(AccessDeniedError):
    """The stream's KMS key cannot be used, or not with these credentials."""


class StreamNotFoundError(KinesisError):
    """No stream of that name in that region and account."""


class ShardNotFoundError(KinesisError):
    """The stream exists, the shard does not: it has expired, or belongs to another stream."""


class ConsumerNotFoundError(KinesisError):
    """The stream has no registered consumer of that name or ARN."""


class ExpiredIteratorError(KinesisError):
    """The iterator is older than five minutes, or belongs to another stream. Create a new one at
    the same position. The page token of a listing expires as well: list again.
    """


class RequestRefusedError(KinesisError):
    """The service refused an argument, such as a sequence number of another stream or shard, or a
    time in the future.
    """


class ThrottledError(KinesisError):
    """A limit of the shard, the account or KMS was exceeded. Nothing was read; retry later."""

    retryable = True


class KeyThrottledError(ThrottledError):
    """KMS limits the requests for the stream's key, in the whole account. The shard's own limits
    are not used up.
    """


class StillThrottledError(ThrottledError):
    """Throttled for so long that waiting has no end in sight: another consumer uses up the shard's
    limits.
    """

    retryable = False


class ServiceUnavailableError(KinesisError):
    """The service did not answer, or answered with a fault of its own."""

    retryable = True


class SubscriptionInUseError(ServiceUnavailableError):
    """The consumer has another subscription to the shard, had one within five seconds, or has got
    one that replaced this one.
    """


class MalformedResponseError(KinesisError):
    """A body that is not JSON, or violates the service's contract."""


class UnreadableRecordError(MalformedResponseError):
    """A record that nobody can take as it is. No waiting repairs it.

    `what`: the answer that it is in. `index`: how many records of the answer are before it.
    `number`: its sequence number. `fault`: what is wrong with it. `place`: its shard, the stream
    and the endpoint, as far as they are known.
    """

    def __init__(self, what: str, index: int, number: str, fault: str, place: str = "") -> None:
        super().__init__(
            f"{what}: record {number}{f' of {place}' if place else ''} {fault}, so neither this "
            "record nor a later record can be read",
            "repair the endpoint that serves the stream, or skip the record with kinesis-spout "
            f"checkpoint set --to AFTER:{number} --shard SHARD --allow-skip",
        )
        self.what, self.index, self.number, self.fault = what, index, number, fault
        self.shard_id: str | None = None

    def at(self, where: str, shard_id: str | None = None) -> UnreadableRecordError:
        """The same error, with the stream and the endpoint, and the shard where it is known."""
        place = where if shard_id is None else f"shard {shard_id} of {where}"
        found = UnreadableRecordError(self.what, self.index, self.number, self.fault, place)
        found.shard_id = shard_id
        return found

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return MalformedResponseError, (str(self),)


class DataLossError(KinesisError):
    """Records that were to be read are gone: older than the stream's retention, or in a shard that
    is not listed any more.
    """


class MissingExtraError(KinesisError, ImportError):
    """A package that an extra installs is missing. The message says how to install it."""


class IllegalAckerEventError(KinesisError):
    """An event that an acker, a tuple tree or a `with emission:` block refuses: a second outcome,
    or a root that it never issued. Nothing was changed.
    """


class InterruptedSleepError(KinesisError):
    """The spout is being closed, so no further attempt is made. Its users never see it."""


class FailRecordError(Exception):
    """Raise this error in a `with emission:` block to fail the record and continue the loop.
    Without `retry`, the record is dead-lettered.
    """

    def __init__(self, reason: str = "", *, retry: bool = True) -> None:
        super().__init__(reason)
        self.retry = retry


# what an error says ---------------------------------------------------------------------------
# A user's code may raise anything: no `Exception`, an error whose `__str__` raises, a message of a
# gigabyte, half of a surrogate pair (which UTF-8 cannot encode), a NUL byte (which databases and
# terminals refuse). None of it may cost its record the outcome, or the program its life.
def text_of(value: object, max_chars: int = MAX_REASON_CHARS) -> str:
    """`str(value)`, cut to `max_chars`. Half of a surrogate pair, and control characters but tabs
    and line ends, are written as escapes. Raises nothing but KeyboardInterrupt.
    """
    try:
        # Not `str(value)[:n]`: the text may be of a subclass, with methods of its own.
        text = str.__getitem__(str(value), slice(max_chars + 1))
    except KeyboardInterrupt:
        raise
    except BaseException as exc:  # noqa: BLE001  # a user's `__str__` may raise anything
        text = f"the error's message cannot be formatted: {type(exc).__name__}"
    if not (text.isascii() and text.isprintable()):
        text = text.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)
    return text if len(text) <= max_chars else f"{text[: max_chars - 3]}..."


def reason_text(reason: object) -> str | None:
    """The reason that a user gave; None stays None."""
    return None if reason is None else text_of(reason)


def malformed_reason(error: MalformedRecordError) -> str:
    """Its reason; its text where a subclass, of the user, has none that can be read."""
    try:
        reason: object = error.reason
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # a user's property may raise anything
        reason = error
    return text_of(reason)


def described(error: BaseException, max_chars: int = MAX_REASON_CHARS) -> str:
    """`Class: message` of an error of another package, or its class alone."""
    name, message = type(error).__name__, text_of(error, max_chars)
    return text_of(f"{name}: {message}" if message else name, max_chars)


def failure_of(error: BaseException) -> tuple[str | None, bool]:
    """Why a record failed whose processing raised this, and whether the record is retried."""
    if not isinstance(error, FailRecordError):
        return described(error), True
    try:
        retry = bool(error.retry)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # a subclass, of the user, may have no such field, or a property that raises anything
        retry = True
    return text_of(error) or None, retry


def error_sentence(error: BaseException) -> str:
    """The first paragraph of an error as one line. Errors of other packages are named by class."""
    text = " ".join(text_of(error, MAX_MESSAGE_CHARS).strip().split("\n\n")[0].split())
    text = text or type(error).__name__
    is_ours = type(error).__module__.split(".")[0] in _OURS
    return text if is_ours else f"{type(error).__name__}: {text}"
