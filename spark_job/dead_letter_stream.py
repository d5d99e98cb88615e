"""Dead letters to another Kinesis stream, put by the executors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from kinesis_spout.config import AwsConfig, StreamRef, nearest_name
from kinesis_spout.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class StreamSink:
    """The stream, how to reach it, and whether the value is the bare payload."""

    stream: StreamRef
    aws: AwsConfig
    payload_only: bool

    @classmethod
    def of(cls, stream: str, *, payload_only: bool, aws: Mapping[str, Any]) -> StreamSink:
        """Checked; raises `ConfigError`."""
        known = [field.name for field in fields(AwsConfig)]
        for name in aws:
            if name not in known:
                nearest = nearest_name(name, known)
                hint = f"did you mean {nearest}?" if nearest else f"the options are {', '.join(known)}"
                raise ConfigError(f"DeadLetter.to_stream: option {name} is not known; {hint}")
        if not isinstance(stream, str):
            raise ConfigError("DeadLetter.to_stream: the stream is not named; give its name or its ARN")
        ref = StreamRef.parse(arn=stream) if stream.startswith("arn:") else StreamRef.parse(stream)
        config = AwsConfig(**aws)
        ref.region_or(config.region)
        return cls(ref, config, payload_only)

    def __str__(self) -> str:
        return f"stream {self.stream}"

    def write(self, letters: DataFrame, *, plan_id: str) -> None:
        raise NotImplementedError

    def without_secrets(self, text: str) -> str:
        return text  # the client's errors hold none
