"""Readers of option texts. Each takes an option's name and text, and raises `ConfigError` with the
name, the text and the rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from kinesis_spout.config import (
    is_consumer_name,
    parse_bool,
    parse_duration_ms,
    parse_size_bytes,
    stream_of_consumer,
)
from kinesis_spout.errors import ConfigError
from kinesis_spout.shards.start_position import RequestedStart
from state.errors import InvalidPositionError, InvalidStoreSettingError
from state.position import StartingPosition
from state.znodes.paths import valid_name
from state.zookeeper.connect_string import ConnectString
from state.zookeeper.embedded import embedded_directory

Reader = Callable[[str, str], Any]
_JSON_START = '{"default": "LATEST"}'
_WHOLE = re.compile(r"\s*([0-9]{1,18})\s*", re.ASCII)


def read_text(_option: str, text: str) -> str:
    return text


def read_name(option: str, text: str) -> str:
    """The name of a znode. Without this check a bad name would fail only when the query runs."""
    try:
        return valid_name(f"option {option}", text)
    except InvalidStoreSettingError as exc:
        raise ConfigError(str(exc)) from exc


def read_address(option: str, text: str) -> str:
    try:
        if embedded_directory(text) is None:
            ConnectString.parse(text)
    except InvalidStoreSettingError as exc:
        raise ConfigError(f"option {option}: {exc}") from exc
    return text


def read_consumer_name(option: str, text: str) -> str:
    if is_consumer_name(text):
        return text
    raise ConfigError(
        f"option {option} is {text[:140]!r}; give 1 to 128 letters, digits, dots, dashes or "
        "underscores"
    )


def read_consumer_arn(option: str, text: str) -> str:
    if stream_of_consumer(text) is not None:
        return text
    raise ConfigError(
        f"option {option} is {text[:200]!r}; give the ARN of a consumer, like "
        "arn:aws:kinesis:<region>:<account>:stream/<name>/consumer/<name>:<number>"
    )


def whole_number(minimum: int) -> Reader:
    def read(option: str, text: str) -> int:
        match = _WHOLE.fullmatch(text)
        if match is not None and int(match[1]) >= minimum:
            return int(match[1])
        raise ConfigError(
            f"option {option} is {text[:40]!r}; give a whole number of at least {minimum} and at "
            "most 18 digits"
        )

    return read


def read_rate(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0.1 <= value <= 1000:
        return value
    raise ConfigError(f"option {option} is {text!r}; give calls a second, from 0.1 to 1000")


def duration(minimum_ms: int = 0, maximum_ms: int = 86_400_000) -> Reader:
    def read(option: str, text: str) -> int:
        value = parse_duration_ms(text, option=option)
        if minimum_ms <= value <= maximum_ms:
            return value
        raise ConfigError(
            f"option {option} is {text!r}; give a duration from {minimum_ms} ms to {maximum_ms} ms"
        )

    return read


def size(minimum: int) -> Reader:
    def read(option: str, text: str) -> int:
        value = parse_size_bytes(text, option=option)
        if value >= minimum:
            return value
        raise ConfigError(f"option {option} is {text!r}; give a size of at least {minimum} bytes")

    return read


def read_boolean(option: str, text: str) -> bool:
    return parse_bool(text, option=option)


def choice(*allowed: str) -> Reader:
    def read(option: str, text: str) -> str:
        if text in allowed:
            return text
        raise ConfigError(f"option {option} is {text!r}; give one of {', '.join(allowed)}")

    return read


def read_positions(missing_default: str) -> Reader:
    """A position for all shards, or JSON that maps shard ids and "default" to positions. Without
    "default", the other shards are at `missing_default`.
    """

    def read(option: str, text: str) -> RequestedStart:
        try:
            if not text.lstrip().startswith("{"):
                return RequestedStart(default=StartingPosition.parse(text))
            positions = json.loads(text)
            if not isinstance(positions, dict) or not all(
                isinstance(position, str) for position in positions.values()
            ):
                raise ConfigError(
                    f"option {option} is {text!r}; give a JSON object that maps shard ids and "
                    f'"default" to positions, as in {_JSON_START}'
                )
            default = StartingPosition.parse(positions.pop("default", missing_default))
            return RequestedStart(
                default=default,
                shards=tuple(
                    (shard, StartingPosition.parse(position))
                    for shard, position in sorted(positions.items())
                ),
            )
        except json.JSONDecodeError as exc:
            raise ConfigError(
                f"option {option} is {text!r}, which is not JSON: {exc}; write it as in "
                f"{_JSON_START}"
            ) from exc
        except InvalidPositionError as exc:
            raise ConfigError(f"option {option}: {exc}") from exc

    return read
