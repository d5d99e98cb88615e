"""How these commands print: plain lines, which a terminal cannot take for commands."""

from rich.console import Console

from kinesis_spout.checkpoints.located import Counted


def say(line: str) -> None:
    """Print a line on stdout as it is."""
    Console().print(line, highlight=False, markup=False, emoji=False, soft_wrap=True)


def printable(text: str) -> str:
    """The text with control characters, which a producer may have put in, as escapes."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def reason_text(reason: str | None) -> str:
    """Why a record failed."""
    return "none was given" if reason is None else printable(reason)


def records_of(count: Counted | int, kind: str = "record") -> str:
    """As `1 record`, `12 records` or `more than 10000 records`."""
    return f"{count} {kind}{'' if str(count) == '1' else 's'}"
