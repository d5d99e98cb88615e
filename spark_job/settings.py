"""The source's checked settings: frozen, hashable, and picklable for the way to the executors.

`spark_job.options` is the table of options. `spark_job.kinesis_source.KinesisSource` is the form
that users write.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from kinesis_spout.config import ReadRate, StreamRef, did_you_mean
from kinesis_spout.errors import ConfigError
from kinesis_spout.options import check_consumer, connection_of, security_of
from spark_job.options import ENDS_REPORTED, OPTIONS, RETIRED, translated, warn_retired
from state.errors import InvalidStoreSettingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kinesis_spout.config import AwsConfig
    from kinesis_spout.options import Option
    from kinesis_spout.shards.start_position import RequestedStart
    from scheme.record_scheme import RecordScheme
    from state.zookeeper.security import ZookeeperSecurity


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The checked settings of one source. Durations are in milliseconds, sizes in bytes.

    Secrets are only in `aws` and `zookeeper_security`, whose reprs mask them.
    - `read_mode`: `polling` or `efo`, which has one of `consumer_name` and `consumer_arn`.
    - `start_is_default`: the user gave no `startingPosition`.
    - `scheme`: that of the column `parsed`; None without the column.
    - `ends_reported`: the process that starts the query reports how it ends.
    - `named_in_ids`: the stream's label in a query of several streams (`QuerySettings`); empty in a
      query of one.
    """

    aws: AwsConfig
    stream: StreamRef
    application: str
    zookeeper: str
    zookeeper_root: str
    zookeeper_session_timeout_ms: int
    zookeeper_security: ZookeeperSecurity
    starting_position: RequestedStart
    read_mode: str
    consumer_name: str | None
    consumer_arn: str | None
    max_records_per_trigger: int | None
    max_records_per_trigger_total: int | None
    max_records_per_shard: int
    max_bytes_per_task: int
    max_fetch_time_ms: int
    max_search_time_ms: int
    max_tasks: int
    rate: ReadRate
    fail_on_data_loss: bool
    aggregated_records: str
    max_unresolved_per_shard: int
    whole_batch_ack: bool
    available_now_retry_wait_ms: int | None
    idle_wait_ms: int
    probe_interval_ms: int
    shard_refresh_interval_ms: int
    owner_wait_ms: int
    start_is_default: bool = field(default=False, compare=False)
    # A user's class need not be equal to its copy, and settings find the connections of a process.
    scheme: RecordScheme | None = field(default=None, compare=False)
    named_in_ids: str = ""
    ends_reported: bool = field(default=False, compare=False)

    @property
    def label(self) -> str:
        """The stream as rows, dead letters and reports name it."""
        return self.named_in_ids or self.stream.name

    @property
    def id_prefix(self) -> str:
        """What stands before the shard id in message ids. Empty in a query of one stream."""
        return f"{self.named_in_ids}/" if self.named_in_ids else ""

    @property
    def state_name(self) -> str:
        """The place of the stream's state below the root. It names it in offsets too."""
        return f"{self.application}/{self.stream.name}"

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> SourceSettings:
        """Settings from texts by field name.

        Raises `ConfigError` with the option, the value (unless it is a secret) and the rule.
        """
        values = values_of(texts, OPTIONS)
        if values["stream"] is None and values["stream_arn"] is None:
            remedy = "set streamName to the name of the stream, or streamArn to its ARN"
            raise ConfigError.about("streamName", " is missing", remedy)
        for name, option in OPTIONS.items():
            if option.required and not values[name]:
                raise ConfigError.about(
                    option.name, " is missing", f"set option {option.name} to the {option.meaning}"
                )
        stream = StreamRef.parse(name=values.pop("stream"), arn=values.pop("stream_arn"))
        check_consumer(values, stream, lambda name: OPTIONS[name].name)
        aws, security = connection_of(values, stream), security_of(values)
        rate = ReadRate(
            reads_per_second=values.pop("reads_per_second"),
            bytes_per_second=values.pop("read_bytes_per_second"),
        )
        known = {f.name for f in fields(cls)}
        named = {name if name in known else f"{name}_ms": value for name, value in values.items()}
        return cls(
            aws=aws,
            stream=stream,
            rate=rate,
            zookeeper_security=security,
            start_is_default="starting_position" not in texts,
            ends_reported="ends_reported" in texts,
            **named,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """The checked settings of all streams of a query, in the order in which they were given.

    `max_records`: of a batch, over all streams; None for no limit.

    In a query of several streams, each has a label, which rows, message ids and dead letters name:
    the stream's name, or its ARN where two streams have the same name.
    """

    streams: tuple[SourceSettings, ...]
    max_records: int | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> QuerySettings:
        """Settings from reader options, in upper or lower case.

        `streamName` may list several names and ARNs, with commas between. `stream.2.roleArn` is the
        option `roleArn` of the second one alone. Raises `ConfigError`; for an unknown option, with
        the nearest known name.
        """
        shared, own = _split(options)
        known = {key: text for key, text in shared.items() if key.lower() != ENDS_REPORTED.lower()}
        texts = texts_from_options(known)
        if len(known) < len(shared):
            texts["ends_reported"] = "true"
        refs = _refs(texts)
        if len(refs) < 2:
            if own:
                raise ConfigError(
                    f"option stream.{min(own)}.{next(iter(own[min(own)]))} applies only to a "
                    "query of several streams",
                    f"list the streams in streamName, or omit the prefix stream.{min(own)}",
                )
            return cls.of([SourceSettings.from_texts(texts)])
        if wrong := sorted(number for number in own if not 1 <= number <= len(refs)):
            raise ConfigError(
                f"option stream.{wrong[0]}.{next(iter(own[wrong[0]]))} belongs to stream "
                f"{wrong[0]}, but streamName lists {len(refs)} streams",
                f"use the prefixes stream.1 to stream.{len(refs)}, in the same order as in "
                "streamName",
            )
        streams = [
            SourceSettings.from_texts(
                _texts_of_one(texts, ref, texts_from_options(own.get(number, {})))
            )
            for number, ref in enumerate(refs, start=1)
        ]
        return cls.of(streams)

    @classmethod
    def of(cls, streams: Sequence[SourceSettings]) -> QuerySettings:
        """The query of these streams; several have labels. Raises `ConfigError` for two that are
        the same, or that would have the same place in ZooKeeper.
        """
        limits = [stream.max_records_per_trigger_total for stream in streams]
        if len(streams) == 1:
            limits.append(streams[0].max_records_per_trigger)
            labels = [""]
        else:
            labels = _labels(streams)
        return cls(
            streams=tuple(
                replace(stream, named_in_ids=label)
                for stream, label in zip(streams, labels, strict=True)
            ),
            max_records=min((limit for limit in limits if limit is not None), default=None),
        )

    @property
    def is_of_one(self) -> bool:
        return len(self.streams) == 1

    @property
    def scheme(self) -> RecordScheme | None:
        """That of all streams, since their rows are in one frame."""
        return self.streams[0].scheme

    def with_passwords(self) -> QuerySettings:
        """The same, with ZooKeeper's passwords in them instead of where they are, as executors need
        it. Reads the files of passwords, or the environment. Raises `ConfigError`.
        """
        try:
            streams = [
                replace(stream, zookeeper_security=stream.zookeeper_security.loaded())
                for stream in self.streams
            ]
        except InvalidStoreSettingError as exc:
            raise ConfigError(str(exc)) from exc
        return replace(self, streams=tuple(streams))


POLLING, EFO = "polling", "efo"
UNPACK, FAIL, RAW = "unpack", "fail", "raw"  # aggregates
_CONSUMER = ("consumer_name", "consumer_arn")
_OWN_OPTION = re.compile(r"stream\.([0-9]{1,4})\.(.+)", re.IGNORECASE | re.ASCII)


def _split(options: Mapping[str, str]) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """The options of all streams, and those of single ones by the stream's number."""
    shared: dict[str, str] = {}
    own: dict[int, dict[str, str]] = {}
    for key, value in options.items():
        match = _OWN_OPTION.fullmatch(key)
        if match is None:
            shared[key] = value
        else:
            own.setdefault(int(match[1]), {})[match[2]] = value
    return shared, own


def _refs(texts: Mapping[str, str]) -> list[str]:
    listed = texts.get("stream") or texts.get("stream_arn") or ""
    refs = [part.strip() for part in listed.split(",")]
    if "," in listed and not all(refs):
        raise ConfigError(
            f"option streamName is {listed!r}, a list with an empty entry",
            "set streamName to names or ARNs, separated by single commas",
        )
    return refs


def _texts_of_one(shared: Mapping[str, str], ref: str, own: Mapping[str, str]) -> dict[str, str]:
    if named := sorted({"stream", "stream_arn"} & own.keys()):
        raise ConfigError(
            f"option stream.<number>.{OPTIONS[named[0]].name} is not known",
            "list the streams in streamName",
        )
    if "scheme" in own:
        raise ConfigError(
            "option scheme differs between the streams of a query, but the rows of all "
            "streams are in one frame",
            "set the same scheme for all streams, or call batch.parsed(...) for the rows of "
            "each stream",
        )
    is_arn = ref.startswith("arn:")
    texts = {name: text for name, text in shared.items() if name not in ("stream", "stream_arn")}
    if is_arn:  # it names its region itself; the shared one is for those that are given by name
        texts.pop("region", None)
    if {"consumer_name", "consumer_arn"} & own.keys() or own.get("read_mode") == POLLING:
        # The consumer of all streams is not that of this one.
        texts = {name: text for name, text in texts.items() if name not in _CONSUMER}
    return {**texts, "stream_arn" if is_arn else "stream": ref, **own}


def _labels(streams: Sequence[SourceSettings]) -> list[str]:
    names = Counter(settings.stream.name for settings in streams)
    labels: list[str] = []
    for settings in streams:
        name, arn = settings.stream.name, settings.stream.arn
        if names[name] > 1 and arn is None:
            raise ConfigError(
                f"streamName contains two streams with the name {name}",
                "list each stream once; if streams of different accounts or regions have the "
                "same name, list their ARNs",
            )
        labels.append(name if names[name] == 1 or arn is None else arn)
    for label, count in Counter(labels).items():
        if count > 1:
            raise ConfigError(
                f"streamName contains stream {label} twice", "list each stream once in streamName"
            )
    for place, count in Counter(settings.state_name for settings in streams).items():
        if count > 1:
            application, name = place.split("/")
            raise ConfigError(
                f"two streams have the name {name}, so application {application} would store "
                "their checkpoints in the same znodes",
                "set a different applicationName for each of the two streams",
            )
    return labels


def texts_from_options(
    options: Mapping[str, str], table: Mapping[str, Option] = OPTIONS
) -> dict[str, str]:
    """Options by field name, also those of other sources that mean the same. Raises `ConfigError`
    for one that the table does not have, and for one that is given twice.
    """
    names = {option.name.lower(): name for name, option in table.items()}
    retired = {name.lower(): name for name in RETIRED}
    texts: dict[str, str] = {}
    for given, text in options.items():
        key, value = given, text
        if key.lower() in retired:
            warn_retired(retired[key.lower()])
            continue
        if key.lower() not in names:
            key, value = translated(key, text) or (key, text)
        name = names.get(key.lower())
        if name in texts:
            raise ConfigError(
                f"options {given} and {key} have the same meaning, but both are set",
                f"set only one of the options {given} and {key}",
            )
        if name is None and key != given:
            raise ConfigError(
                f"option {given} means the same as option {key}, which does not apply here",
                "omit the option",
            )
        if name is None:
            known = sorted(option.name for option in table.values())
            by_field = {
                spelt: option.name
                for field, option in table.items()
                for spelt in (field, field.replace("_", ""))
            }
            meant = by_field.get(key.lower(), key)
            hint = did_you_mean(meant, known, f"the options are {', '.join(known)}")
            raise ConfigError(f"option {key} is not known", hint)
        texts[name] = value
    return texts


def values_of(texts: Mapping[str, str], table: Mapping[str, Option]) -> dict[str, Any]:
    """Every option's value by field name, with the defaults; None for one that is not set. Raises
    `ConfigError`.
    """
    return {
        name: option.read(texts[name]) if name in texts else option.value
        for name, option in table.items()
    }
