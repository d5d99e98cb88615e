"""Why a record failed, as a text that can be stored, sent and shown, whatever a user's code says.

That code may raise anything: no `Exception`, an error whose `__str__` raises, a message of a
gigabyte, half of a surrogate pair (which UTF-8 cannot encode), a NUL byte (which databases and
terminals refuse). None of it may cost the record its outcome, or the program its life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheme.errors import MalformedRecordError

MAX_REASON_CHARS = 1_000
MAX_MESSAGE_CHARS = 1_000_000  # of an error that is searched for its cause, as Spark's pages are
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


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
        text = f"its text cannot be made: {type(exc).__name__}"
    if not (text.isascii() and text.isprintable()):
        text = text.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS)
    return text if len(text) <= max_chars else f"{text[: max_chars - 3]}..."


def reason_text(reason: object) -> str | None:
    """The reason that a user gave; None stays None."""
    return None if reason is None else text_of(reason)


def malformed_reason(error: MalformedRecordError) -> str:
    """Its reason; its text where a subclass, of the user, has none."""
    return text_of(getattr(error, "reason", error))


def described(error: BaseException, max_chars: int = MAX_REASON_CHARS) -> str:
    """`Class: message` of an error of another package, or its class alone."""
    name, message = type(error).__name__, text_of(error, max_chars)
    return text_of(f"{name}: {message}" if message else name, max_chars)
