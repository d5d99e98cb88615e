"""`kinesis-spout produce`: lines from stdin become records of a stream."""

import secrets
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from kinesis_spout.cli.exit_codes import CliError, StopSignals, one_sentence
from kinesis_spout.cli.line_io import LineReader, LongLine
from kinesis_spout.cli.patience import patience, services
from kinesis_spout.cli.places import note
from kinesis_spout.cli.record_lines import LineError, key_of_json, outgoing_of_json
from kinesis_spout.cli.shared_options import connection_of, errors, flag, root_options, typed_text
from kinesis_spout.config import StreamRef
from kinesis_spout.errors import KinesisError, RequestRefusedError
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.record_putter import (
    REQUEST_BYTES,
    REQUEST_RECORDS,
    OutgoingRecord,
    RecordPutter,
    in_requests,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console

    from kinesis_spout.service.record_putter import Accepted

RETRY_FOR_S = 15.0  # short, because a user may be waiting at a terminal
MAX_WARNINGS = 10
MAX_NAMED_LINES = 10
AGGREGATED_LINES = 20 * REQUEST_RECORDS  # that are packed together, if so many have arrived
MAX_KEY_LENGTH = 256  # characters: API reference, PutRecordsRequestEntry
MAX_RECORD_BYTES = 10 * 1024 * 1024  # data and key: API reference, PutRecords
# In a JSON text, a byte of data has up to six characters.
MAX_JSON_LINE_BYTES = 6 * MAX_RECORD_BYTES


def produce(
    ctx: typer.Context,
    stream: Annotated[
        str, typer.Argument(metavar="STREAM", help="Name or ARN of the stream.", show_default=False)
    ],
    *,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Partition key of all records (default: a random key for each).",
            callback=typed_text,
        ),
    ] = None,
    key_from: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Read each line as a JSON object and take the partition key from this field.",
            callback=typed_text,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help=(
                "Read each line as JSON in the form that consume and its --dead-letter write. "
                "The record gets the data and the partition key of that JSON."
            ),
        ),
    ] = False,
    aggregate: Annotated[
        bool,
        typer.Option(
            "--aggregate",
            help=(
                "Pack lines that arrive at the same time into aggregates of the Kinesis Producer "
                "Library. Readers must unpack them."
            ),
        ),
    ] = False,
    region: Annotated[str | None, flag("region")] = None,
    endpoint_url: Annotated[str | None, flag("endpoint_url")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Any other connection option, e.g. profile=work. Repeatable."
        ),
    ] = None,
) -> None:
    """Put each line of stdin on a stream as one record, as it arrives.

    The order of records may change. A record whose response is lost is put again,
    so the stream may get it twice. Empty lines are skipped.
    """
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        raise typer.BadParameter(
            f"a partition key has 1 to {MAX_KEY_LENGTH} characters", param_hint="--key"
        )
    if sum((key is not None, key_from is not None, as_json)) > 1:
        raise typer.BadParameter(
            ("use only one of the three"), param_hint="--key, --key-from, --json"
        )
    console = errors()
    with (
        StopSignals() as stop,
        one_sentence(console, ctx=ctx, debug=root_options(ctx).debug),
        stop.deferred(),
    ):
        ref = StreamRef.of(stream)
        aws = connection_of({"region": region, "endpoint_url": endpoint_url}, option or ())
        with closing(KinesisClient(aws, ref, retry_for_s=RETRY_FOR_S)) as client:
            putter = RecordPutter(client)
            lines = LinePutter(
                _aggregating(putter, client) if aggregate else putter.put,
                _record_maker(key, key_from, as_json=as_json),
                note,
                (lambda records: [list(records)]) if aggregate else in_requests,
            )
            reader = LineReader(
                sys.stdin.fileno(),
                lambda: stop.stopping,
                max_lines=AGGREGATED_LINES if aggregate else REQUEST_RECORDS,
                max_bytes=REQUEST_BYTES,
                max_line_bytes=MAX_RECORD_BYTES
                if key_from is None and not as_json
                else MAX_JSON_LINE_BYTES,
            )
            _put_all(reader, lines, ref.name, console, services(aws, ref.name))


def _put_all(
    reader: LineReader, lines: "LinePutter", stream: str, console: "Console", trying: str
) -> None:
    try:
        for batch in reader.batches():
            with patience(note, trying):
                lines.put(batch)
    except KinesisError as exc:
        put = _counted(lines.put_count, "record was", "records were")
        raise CliError(
            f"{exc}; {put} put, {_named(lines.unconfirmed)} may have been put, and later lines "
            "were not put"
        ) from exc
    finally:
        put, empty = _counted(lines.put_count, "record", "records"), lines.empty_count
        skipped = f"; {_counted(empty, 'empty line was', 'empty lines were')} skipped"
        console.print(
            f"put {put} on stream {escape(stream)}{skipped if empty else ''}",
            highlight=False,
            soft_wrap=True,
        )
    if lines.refused_count:
        refused = _counted(lines.refused_count, "line was", "lines were")
        raise CliError(f"{refused} not put")


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


def _named(lines: "Sequence[int]") -> str:
    """As `line 14`, `lines 3 to 20`, `lines 3, 7 and 14`; many with gaps are counted."""
    if not lines:
        return "none"
    first, last = lines[0], lines[-1]
    if first == last:
        return f"line {last}"
    if last - first == len(lines) - 1:
        return f"lines {first} to {last}"
    if len(lines) <= MAX_NAMED_LINES:
        return f"lines {', '.join(map(str, lines[:-1]))} and {last}"
    return f"{len(lines):,} lines from {first} to {last}"


def _record_maker(
    key: str | None, key_from: str | None, *, as_json: bool
) -> "Callable[[bytes], OutgoingRecord]":
    def random_key() -> str:
        return secrets.token_hex(8)

    if as_json:
        return lambda line: outgoing_of_json(line, random_key)
    if key_from is not None:
        return lambda line: OutgoingRecord(key_of_json(line, key_from), line)
    return lambda line: OutgoingRecord(random_key() if key is None else key, line)


def _aggregating(
    putter: RecordPutter, client: KinesisClient
) -> "Callable[[Sequence[OutgoingRecord], Accepted], int]":
    from kinesis_spout.cli.aggregating_putter import (  # noqa: PLC0415  # protobuf, for one option
        AggregatingPutter,
    )

    if client.describe().ignores_keys:
        raise CliError(
            "the stream spreads records over its shards by itself (record distribution AUTO), so "
            "readers would leave out the user records that belong to other shards",
            "leave --aggregate out",
        )
    return AggregatingPutter(putter, client.list_shards).put


class LinePutter:
    """Puts lines on a stream as records, and reports the lines that cannot be put.

    `put_records` puts all records that it gets, and passes on each that was put; `split` divides
    the records of a batch of lines into what it gets at a time. `record_of` makes a record of a
    line, and raises `LineError`. Lines are counted from 1. `warn` gets a sentence for each of the
    first lines that are not put. After `put` has raised, `unconfirmed` has the lines in doubt.
    """

    def __init__(
        self,
        put_records: "Callable[[list[OutgoingRecord], Accepted], object]",
        record_of: "Callable[[bytes], OutgoingRecord]",
        warn: "Callable[[str], None]",
        split: "Callable[[Iterable[OutgoingRecord]], Iterable[list[OutgoingRecord]]]" = in_requests,
    ) -> None:
        self.put_count = 0
        self.refused_count = 0
        self.empty_count = 0
        self.unconfirmed: list[int] = []
        self._put_records = put_records
        self._record_of = record_of
        self._warn = warn
        self._split = split
        self._line = 0

    def put(self, lines: "Iterable[bytes | LongLine]") -> None:
        """Put the lines. Blocks on the network.

        When the service refuses a request, it is halved until only the records at fault are left
        out. Raises any other `KinesisError`.
        """
        made = [one for line in lines for one in self._records(line)]
        at = 0
        for request in self._split(record for _, record in made):
            self._put(made[at : at + len(request)])
            at += len(request)

    def _records(self, line: bytes | LongLine) -> "Iterator[tuple[int, OutgoingRecord]]":
        """The record of a line with the line's number, if it has one."""
        self._line += 1
        if isinstance(line, bytes) and not line.strip():
            self.empty_count += 1
            return
        try:
            yield self._line, self._checked(line)
        except LineError as exc:
            self._refuse(self._line, str(exc))

    def _checked(self, line: bytes | LongLine) -> OutgoingRecord:
        """The record of a line, within the service's limits. Raises `LineError`."""
        if isinstance(line, LongLine):
            raise LineError(_too_long(line.size_bytes))
        record = self._record_of(line)
        if not 0 < len(record.partition_key) <= MAX_KEY_LENGTH:
            raise LineError(
                f"has a partition key that is empty or longer than {MAX_KEY_LENGTH} characters"
            )
        if record.size_bytes > MAX_RECORD_BYTES:
            raise LineError(_too_long(record.size_bytes))
        return record

    def _put(self, made: "Sequence[tuple[int, OutgoingRecord]]") -> None:
        waiting = {id(record): (line, record) for line, record in made}

        def accepted(record: OutgoingRecord, _shard_id: str | None) -> None:
            del waiting[id(record)]
            self.put_count += 1

        try:
            self._put_records([record for _, record in made], accepted)
        except RequestRefusedError as exc:
            rest = list(waiting.values())
            if len(rest) == 1:
                self._refuse(rest[0][0], f"is refused: {exc}")
            elif rest:
                half = len(rest) // 2
                self._put(rest[:half])
                self._put(rest[half:])
        except KinesisError:
            self.unconfirmed = [line for line, _ in waiting.values()]
            raise

    def _refuse(self, line: int, why: str) -> None:
        """The first ones are named, and the others are only counted."""
        self.refused_count += 1
        if self.refused_count <= MAX_WARNINGS:
            self._warn(f"line {line} {why}")


def _too_long(size_bytes: int) -> str:
    return (
        f"has {size_bytes:,} bytes, but a record has at most {MAX_RECORD_BYTES:,} bytes with its "
        "key"
    )
