"""What `kinesis-spout redrive` makes of its options."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from kinesis_spout.cli.shared_options import CONNECTION_OPTIONS, aws_config
from kinesis_spout.config import AwsConfig, StreamRef
from kinesis_spout.errors import ConfigError
from spark_job.dead_letter.redrive import Selection
from spark_job.options import OPTIONS
from spark_job.settings import texts_from_options
from state.errors import InvalidPositionError
from state.position import PositionKind, StartingPosition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TIMES = "an ISO time like 2026-01-31T12:00:00Z, or a time ago like -2h (s, m, h or d)"


def connection_of(named: Mapping[str, str | None], options: Mapping[str, str]) -> AwsConfig:
    """The connection from the command's own options (by field) and from `--option`, which win.
    Raises `ConfigError`.
    """
    texts = {name: text for name, text in named.items() if text is not None} | texts_from_options(
        options
    )
    for name in texts:
        if name not in CONNECTION_OPTIONS.values():
            known = ", ".join(CONNECTION_OPTIONS)
            raise ConfigError(
                f"option {OPTIONS[name].name} is for reading; those for putting are {known}"
            )
    return aws_config(texts)


def selection_of(
    *,
    reasons: Sequence[str],
    since: str | None,
    until: str | None,
    stream: str | None,
    region: str | None,
    now_ms: int,
) -> Selection:
    """The selection, times ago counted from `now_ms`. Raises typer's usage error, or
    `ConfigError`.
    """
    if not all(text.strip() for text in reasons):
        raise typer.BadParameter("give a part of the reason's text", param_hint="--reason")
    target = None
    if stream is not None:
        target = (
            StreamRef.parse(arn=stream) if stream.startswith("arn:") else StreamRef.parse(stream)
        )
        target.region_or(region)
    times = _time("--since", since, now_ms), _time("--until", until, now_ms)
    if times[0] is not None and times[1] is not None and times[0] >= times[1]:
        raise typer.BadParameter(
            "it is not after --since, so nothing is between them", param_hint="--until"
        )
    return Selection(reasons=tuple(reasons), since=times[0], until=times[1], target=target)


def _time(option: str, text: str | None, now_ms: int) -> datetime | None:
    if text is None:
        return None
    try:
        wish = StartingPosition.parse(text)
    except InvalidPositionError:
        wish = None
    if wish is None or (
        wish.ago_ms is None
        and (wish.position is None or wish.position.kind is not PositionKind.AT_TIMESTAMP)
    ):
        raise typer.BadParameter(f"{text!r} is no time; give {_TIMES}", param_hint=option)
    timestamp_ms = wish.pin(now_ms).timestamp_ms
    return None if timestamp_ms is None else datetime.fromtimestamp(timestamp_ms / 1_000, UTC)
