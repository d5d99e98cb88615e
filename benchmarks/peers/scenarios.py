"""What is compared, and the bars: data only."""

from __future__ import annotations

from dataclasses import dataclass

AWSLABS, KCL, ASYNC_KINESIS = "awslabs' connector", "KCL 3.5.1", "async-kinesis 3.0.1"

# Both sides without a limit of their own, as far as they can be told so.
OURS_BEST = (
    "readsPerSecond=1000",
    "readBytesPerSecond=1GiB",
    "maxRecordsPerShard=100000000",
    # More than a task has: a backlog is one batch, as awslabs' is with the number below (four
    # batches at 100 bytes).
    "maxBytesPerTask=4GiB",
    # Neither source tracks records here. Said so, the first batch has no limit for tracked ones.
    "wholeBatchAck=true",
)
# The columns that awslabs' connector has; ours has four more, unless a query selects.
SAME_COLUMNS = (
    "data BINARY, streamName STRING, partitionKey STRING, sequenceNumber STRING, "
    "approximateArrivalTimestamp TIMESTAMP"
)
AWSLABS_BEST = (
    # A shard's records are this or a multiple: a task with less waits 10 s at the tip, and calls.
    "kinesis.maxFetchRecordsPerShard=500000",
    "kinesis.getRecords.fetchIntervalMs=0",
    "kinesis.internal.dataQueueCapacity=20000",
)
OURS_TIP_BEST = ("probeInterval=200ms",)
# awslabs' task ends after so many records, or after 10 s without any. The number has to know the
# load: two seconds of it leave time for what a batch costs besides.
AWSLABS_TIP_BEST = (
    "kinesis.maxFetchRecordsPerShard=40",
    "kinesis.getRecords.fetchIntervalMs=200",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream of the replay server. `records`: of all shards; `per_second`: of each, if live."""

    records: int
    record_bytes: int
    shards: int = 8
    per_second: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A reader in a scenario. `program`: see `commands`. `options`: those of its source. `schema`:
    the columns that it selects; all by default.
    """

    key: str
    title: str
    program: str
    task: str = "backlog"
    options: tuple[str, ...] = ()
    schema: str | None = None
    stream: str = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A bound for a metric of ours: divided by the metric of `theirs`, or as it is."""

    metric: str
    ours: str
    theirs: str | None = None
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Runs that alternate. `metrics`: the columns of its table."""

    name: str
    title: str
    runs: tuple[Run, ...]
    metrics: tuple[str, ...]
    streams: dict[str, Stream]
    bars: tuple[Bar, ...] = ()
    limits: bool = False


def _ours(key: str, title: str, wire_format: str, schema: str | None = None) -> Run:
    options = (*OURS_BEST, f"wireFormat={wire_format}")
    return Run(key=key, title=title, program="ours", options=options, schema=schema)


# The start of a query, the workers' and the JVM's, counts: the Spark readers read for 15 s or more,
# so that it does not decide.
BACKLOG = (
    _ours("ours", "this source, JSON", "json", SAME_COLUMNS),
    _ours("ours-cbor", "this source, CBOR", "cbor", SAME_COLUMNS),
    _ours("ours-cbor-all", "the same, nine columns", "cbor"),
    Run(key="awslabs", title=f"{AWSLABS}, CBOR", program="awslabs", options=AWSLABS_BEST),
    Run(key="floor", title="a source in Python that reads nothing", program="floor"),
    Run(key="spout", title="our standalone spout", program="spout", stream="fewer"),
    Run(key="kcl", title=KCL, program="kcl", stream="fewer"),
)


SCENARIOS = (
    Scenario(
        name="backlog-100",
        title="A backlog of 100-byte records, 8 shards, best settings of each",
        streams={
            "warm": Stream(records=400_000, record_bytes=100),
            "measured": Stream(records=16_000_000, record_bytes=100),
            "fewer": Stream(records=4_000_000, record_bytes=100),
            "part": Stream(records=400_000, record_bytes=100),
            "few": Stream(records=40_000, record_bytes=100),
        },
        runs=(
            *BACKLOG,
            Run(key="boto3", title="boto3 loop", program="boto3", stream="part"),
            Run(key="async-kinesis", title=ASYNC_KINESIS, program="async-kinesis", stream="part"),
        ),
        metrics=("rate", "others", "cpu", "memory"),
        bars=(
            Bar(metric="rate", ours="ours", theirs="awslabs", at_least=1.5),
            Bar(metric="rate", ours="ours-cbor", theirs="awslabs", at_least=1),
            Bar(metric="cpu", ours="ours", theirs="awslabs", at_most=0.7),
            Bar(metric="cpu", ours="ours-cbor", theirs="awslabs", at_most=1),
            Bar(metric="memory", ours="ours", theirs="awslabs", at_most=1),
            Bar(metric="memory", ours="ours-cbor", theirs="awslabs", at_most=1.1),
            Bar(metric="cpu", ours="spout", theirs="kcl", at_most=0.8),
            Bar(metric="cpu", ours="spout", at_most=4.5),
            Bar(metric="rate", ours="ours", theirs="boto3", at_least=8),
        ),
    ),
    Scenario(
        name="backlog-1k",
        title="A backlog of 1,000-byte records, 8 shards, best settings of each",
        streams={
            "warm": Stream(records=160_000, record_bytes=1000),
            "measured": Stream(records=4_000_000, record_bytes=1000),
            "fewer": Stream(records=1_600_000, record_bytes=1000),
        },
        runs=BACKLOG,
        metrics=("rate", "others", "cpu", "memory"),
        bars=(
            Bar(metric="rate", ours="ours", theirs="awslabs", at_least=1.3),
            Bar(metric="rate", ours="ours-cbor", theirs="awslabs", at_least=1),
            Bar(metric="cpu", ours="ours", theirs="awslabs", at_most=0.8),
            Bar(metric="cpu", ours="ours-cbor", theirs="awslabs", at_most=1),
            Bar(metric="memory", ours="ours", theirs="awslabs", at_most=1),
            Bar(metric="memory", ours="ours-cbor", theirs="awslabs", at_most=1.1),
            Bar(metric="cpu", ours="spout", at_most=7),
        ),
    ),
    Scenario(
        name="limits",
        title="The service's limits on, 1,000-byte records, 8 shards, defaults",
        streams={
            "warm": Stream(records=800, record_bytes=1000),
            "measured": Stream(records=640_000, record_bytes=1000),
        },
        limits=True,
        runs=(
            Run(key="ours", title="this source", program="ours"),
            Run(key="awslabs", title=AWSLABS, program="awslabs"),
        ),
        metrics=("rate", "others", "share", "cpu"),
        bars=(
            Bar(metric="rate", ours="ours", theirs="awslabs", at_least=2),
            Bar(metric="share", ours="ours", at_least=0.95),
        ),
    ),
    Scenario(
        name="latency",
        title="From a record's arrival to its visible batch, 20 records a second, one shard",
        streams={
            "warm": Stream(records=8, record_bytes=100, shards=1),
            "measured": Stream(records=20_000, record_bytes=100, shards=1, per_second=20),
        },
        runs=(
            Run(key="ours", title="this source, defaults", program="ours", task="tip"),
            Run(key="awslabs", title=f"{AWSLABS}, defaults", program="awslabs", task="tip"),
            Run(
                key="ours-best",
                title="this source, probeInterval=200ms",
                program="ours",
                task="tip",
                options=OURS_TIP_BEST,
            ),
            Run(
                key="awslabs-best",
                title=f"{AWSLABS}, best settings",
                program="awslabs",
                task="tip",
                options=AWSLABS_TIP_BEST,
            ),
        ),
        metrics=("p50", "p99"),
        bars=(
            Bar(metric="p50", ours="ours", at_most=1000),
            Bar(metric="p50", ours="ours-best", at_most=500),
        ),
    ),
    Scenario(
        name="idle",
        title="An idle stream of 8 shards, defaults",
        streams={
            "warm": Stream(records=800, record_bytes=100),
            "measured": Stream(records=8, record_bytes=100),
        },
        runs=(
            Run(key="ours", title="this source", program="ours", task="idle"),
            Run(key="awslabs", title=AWSLABS, program="awslabs", task="idle"),
        ),
        metrics=("calls", "cores", "memory"),
    ),
    Scenario(
        name="tracked",
        title="Each record tracked: map_records beside mapInArrow",
        streams={},
        runs=(
            Run(key="plain", title="mapInArrow, whole batches acked", program="outcomes"),
            Run(key="tracked", title="map_records, each record tracked", program="outcomes"),
        ),
        metrics=("rate", "others"),
        bars=(Bar(metric="time", ours="tracked", theirs="plain", at_most=1.1),),
    ),
)


def stream_arguments(streams: dict[str, Stream]) -> list[str]:
    """The replay server's NAME:SHARDS:RECORDS:BYTES[:PER_SECOND]."""
    return [
        ":".join(
            str(part)
            for part in (name, one.shards, one.records, one.record_bytes, one.per_second)
            if part is not None
        )
        for name, one in streams.items()
    ]
