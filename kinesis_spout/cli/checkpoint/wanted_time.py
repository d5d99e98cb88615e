"""A time in the past that a user names."""

import typer

from kinesis_spout.checkpoints.wanted_position import WantedPosition
from kinesis_spout.cli.shared_options import usage_errors


def wanted_time(text: str, option: str) -> WantedPosition:
    """Raises typer's usage error, which names `option`."""
    with usage_errors(option):
        wanted = WantedPosition.parse(text)
    if not wanted.is_time:
        raise typer.BadParameter(
            f"{text} is not a time; use -2h, 14:00, or an ISO time like 2026-01-31T12:00:00Z",
            param_hint=option,
        )
    return wanted
