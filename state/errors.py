"""Errors of the state package. A caller may repeat a call that raised a `retryable` one."""

from __future__ import annotations


class RemediedError(Exception):
    """An error that says what is wrong and where (`message`), and what to do about it, with the
    command (`remedy`; empty where nothing can be done, or the message says it). Its text is both.
    """

    def __init__(self, message: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class StateError(RemediedError):
    """Root of the errors that this package raises. `retryable`: the fault is transient."""

    retryable = False


class InvalidSequenceNumberError(StateError, ValueError):
    """A text that is not a sequence number."""


class InvalidPositionError(StateError, ValueError):
    """A text outside the grammar of positions."""


class InvalidStoreSettingError(StateError, ValueError):
    """A connect string, a name of an application, stream or root, or a task share, not valid."""


class IllegalTrackerEventError(StateError):
    """An event that the tracker's table does not allow in the node's state. Nothing was changed."""


class StoredDataError(StateError):
    """Stored bytes that are damaged, or were written by a newer version."""


class StoreUnavailableError(StateError):
    """No answer within the time limit. A write that was under way may have been applied or not."""

    retryable = True


class StoreAccessError(StateError):
    """The store lets this client in nowhere, or not at a node. The message names the option."""


class EmbeddedZookeeperError(StateError):
    """The embedded ZooKeeper cannot be started: Java or PySpark is missing, or it ended."""


class StateTooLargeError(StateError):
    """A value, or a transaction, above the size limit of one write. Nothing was written."""


class StreamMismatchError(StateError):
    """The stored state belongs to another stream, or to an earlier stream with the same name."""


class UnfinishedImportError(StateError):
    """An import into the application was stopped: only some of its shards were moved."""


class OwnedByAnotherError(StateError):
    """Another live consumer holds this application's ownership of the stream."""


class StaleOwnerError(StateError):
    """A newer owner has taken over. Nothing more was stored."""


class NotListerError(StateError):
    """Another task leads and writes the shard list. Nothing was written; the share is kept."""


class ConflictError(StateError):
    """A value no longer has the version that the write was based on. Nothing was written."""


class CheckpointRegressionError(StateError):
    """A write would move a checkpoint back. Nothing was written."""


class PlanMismatchError(StateError):
    """A plan's reads or report do not fit the shard's state; its records are redelivered."""


class TaskLogError(StateError):
    """A log that does not continue what was handed over, or was removed. Nothing was appended."""


class PlanClosedError(StateError):
    """The plan is closed, removed or was never created, so nothing can be published under it."""
