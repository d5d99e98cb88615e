"""Errors of the state package, and what a caller may do about each.

StateError
|-- InvalidSequenceNumberError (ValueError)   a text that is not a sequence number
|-- InvalidPositionError (ValueError)         a text outside the position grammar
|-- InvalidStoreSettingError (ValueError)     a connect string, a name, or a task of so many, that cannot be used
|-- IllegalTrackerEventError                  an event the tracker's table has no cell for
|-- StoredDataError                           what is stored cannot be read: damaged or of a newer format
|-- StoreUnavailableError  (retryable)        the store did not answer in time
|-- EmbeddedZookeeperError                    the embedded server cannot be started
|-- StateTooLargeError                        a value does not fit into one write
|-- StreamMismatchError                       the state belongs to another stream, or to an earlier one of that name
|-- OwnedByAnotherError                       another live consumer of the application holds the ownership
|-- StaleOwnerError                           ownership has passed on: this process may write nothing any more
|-- NotListerError                            another task writes the list of shards
|-- ConflictError                             a value was changed by somebody else since it was read
|-- CheckpointRegressionError                 a write would move a checkpoint back
`-- PlanClosedError                           the plan is closed or unknown: a late task may publish nothing
"""

from __future__ import annotations


class StateError(Exception):
    """Root of what this package raises. `retryable` tells a transient fault from a final one."""

    retryable = False


class InvalidSequenceNumberError(StateError, ValueError):
    """A text that is not a sequence number."""


class InvalidPositionError(StateError, ValueError):
    """A text that is not in the grammar of positions."""


class InvalidStoreSettingError(StateError, ValueError):
    """A connect string, a name of an application, stream or root, or a task of so many, that cannot
    be used.
    """


class IllegalTrackerEventError(StateError):
    """An event that is not allowed in the tracker's present state. Nothing was changed."""


class StoredDataError(StateError):
    """Stored bytes that are damaged, or written by a newer version."""


class StoreUnavailableError(StateError):
    """The store did not answer within its time limit. Nothing is known of a write that was under
    way.
    """

    retryable = True


class EmbeddedZookeeperError(StateError):
    """The embedded ZooKeeper cannot be started: Java or PySpark is missing, or the server ended.
    The message says which.
    """


class StateTooLargeError(StateError):
    """A value larger than one write may be. Nothing was written."""


class StreamMismatchError(StateError):
    """The stored state is of another stream, or of an earlier stream of the same name."""


class OwnedByAnotherError(StateError):
    """Another live consumer holds this application's ownership of the stream."""


class StaleOwnerError(StateError):
    """A newer owner has taken over. Nothing was written."""


class NotListerError(StateError):
    """Another task has the role of writing the list of shards. Nothing was written; this task still
    owns its share.
    """


class ConflictError(StateError):
    """A value is not in the version that the write was based on. Nothing was written."""


class CheckpointRegressionError(StateError):
    """A write that would move a checkpoint back. Nothing was written."""


class PlanClosedError(StateError):
    """The plan is closed or not known (any more), so no end can be published under it."""
