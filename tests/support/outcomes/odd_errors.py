"""Errors that a library may raise in a user's function, and that no reason is ready for."""

from __future__ import annotations

from scheme.errors import MalformedRecordError


class Unprintable(Exception):  # noqa: N818  # a name for tests
    """Its text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class ExitingText(Exception):  # noqa: N818  # a name for tests
    """Its text ends the program."""

    def __str__(self) -> str:
        raise SystemExit(3)


class OddText(str):
    """A text with methods of its own."""

    __slots__ = ()

    def split(self, *_: object) -> list[str]:
        raise RuntimeError("no words")

    def __getitem__(self, _: object) -> str:
        raise RuntimeError("no characters")

    def __format__(self, _: str) -> str:
        raise RuntimeError("no format")


class OddTextError(Exception):
    """Its text has methods of its own."""

    def __str__(self) -> str:
        return OddText("an odd text")


class LibraryExit(BaseException):  # as such a class is named
    """Of a library that ends its own tasks by it."""


class BareMalformedError(MalformedRecordError):
    """It has no reason, because it does not call the class above it."""

    def __init__(self) -> None:
        Exception.__init__(self, "bare")

    def __str__(self) -> str:
        return "bare"


ODD_ERRORS: tuple[BaseException, ...] = (
    SystemExit(1),
    GeneratorExit("generator"),
    LibraryExit("ended"),
    BaseExceptionGroup("several", [SystemExit(1), ValueError("x")]),
    Unprintable(),
    ExitingText(),
    OddTextError(),
    ValueError("half of a pair \ud83d"),
    RuntimeError("long " * 1_000_000),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    StopIteration(3),
    BareMalformedError(),
)
