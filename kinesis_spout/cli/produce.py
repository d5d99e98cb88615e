"""`kinesis-spout produce`: lines from stdin become records of a stream."""

import secrets
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from kinesis_spout.aggregation.packing import Packer, users_of
from kinesis_spout.cli.exit_codes import TYPED_CODES, CliError
from kinesis_spout.cli.line_io import LongLine, line_batches
from kinesis_spout.cli.places import Operation, command
from kinesis_spout.cli.record_lines import LineError, key_of_json, outgoing_of_json
from kinesis_spout.cli.shared_options import note, option, tell, typed_text, wrong_usage
from kinesis_spout.errors import KinesisError, StreamNotFoundError
from kinesis_spout.inspection.wording import are, counted, joined, records
from kinesis_spout.service.record_putter import (
    REQUEST_BYTES,
    REQUEST_RECORDS,
    Accepted,
    OutgoingRecord,
    RecordPutter,
    in_requests,
    put_apart,
)
from kinesis_spout.service.shard_info import ShardInfo

MAX_WARNINGS = 10
MAX_NAMED_LINES = 10
AGGREGATED_LINES = 20 * REQUEST_RECORDS  # that are packed together, if so many have arrived
MAX_KEY_LENGTH = 256  # characters: API reference, PutRecordsRequestEntry
MAX_RECORD_BYTES = 10 * 1024 * 1024  # data and key: API reference, PutRecords
_TOO_LONG = f"a record and its partition key may have at most {MAX_RECORD_BYTES:,} bytes"
# In a JSON text, a byte of data has up to six characters.
MAX_JSON_LINE_BYTES = 6 * MAX_RECORD_BYTES


@dataclass
class LinePutter:
    """Puts lines on a stream as records, and reports the lines that cannot be put.

    `put_records` puts all records that it gets, and passes on each that was put; `split` divides
    the records of a batch of lines into what it gets at a time. `record_of` makes a record of a
    line, and raises `LineError`. Lines are counted from 1. `warn` gets a sentence for each of the
    first lines that are not put. After `put` has raised, `unconfirmed` has the lines in doubt.
    """

    put_records: Callable[[list[OutgoingRecord], Accepted], object]
    record_of: Callable[[bytes], OutgoingRecord]
    warn: Callable[[str], None]
    split: Callable[[Iterable[OutgoingRecord]], Iterable[list[OutgoingRecord]]] = in_requests
    put_count: int = 0
    refused_count: int = 0
    empty_count: int = 0
    unconfirmed: Sequence[int] = ()
    _line: int = 0

    def put(self, lines: Iterable[bytes | LongLine]) -> None:
        """Put the lines. Blocks on the network.

        Records that the service refuses are left out. Raises any other `KinesisError`.
        """
        made: list[tuple[int, OutgoingRecord]] = []
        for line in lines:
            self._line += 1
            if isinstance(line, LongLine):
                self._refuse(self._line, f"the line has {line.size_bytes:,} bytes, but {_TOO_LONG}")
            elif not line.strip():
                self.empty_count += 1
            else:
                try:
                    made.append((self._line, self._record(line)))
                except LineError as exc:
                    self._refuse(self._line, str(exc))
        at = 0
        for request in self.split(record for _, record in made):
            self._put(made[at : at + len(request)])
            at += len(request)

    def _record(self, line: bytes) -> OutgoingRecord:
        """Within the service's limits. Raises `LineError`."""
        record = self.record_of(line)
        if not 0 < len(record.partition_key) <= MAX_KEY_LENGTH:
            raise LineError(
                f"the partition key is empty or longer than {MAX_KEY_LENGTH} characters"
            )
        if record.size_bytes > MAX_RECORD_BYTES:
            raise LineError(f"the record has {record.size_bytes:,} bytes, but {_TOO_LONG}")
        return record

    def _put(self, made: Sequence[tuple[int, OutgoingRecord]]) -> None:
        waiting = {id(record): line for line, record in made}

        def accepted(record: OutgoingRecord, _shard_id: str | None) -> None:
            del waiting[id(record)]
            self.put_count += 1

        try:
            for record, exc in put_apart(
                self.put_records, [record for _, record in made], accepted
            ):
                self._refuse(waiting.pop(id(record)), f"Kinesis refuses the record: {exc}")
        except StreamNotFoundError:
            raise  # no line is on a stream that does not exist
        except KinesisError:
            self.unconfirmed = list(waiting.values())
            raise

    def _refuse(self, line: int, why: str) -> None:
        """The first ones are named, and the others are only counted."""
        self.refused_count += 1
        if self.refused_count <= MAX_WARNINGS:
            self.warn(f"line {line}: {why}")


@dataclass
class AggregatingPutter:
    """Puts records packed for the shards of their stream. `put_packed`: `RecordPutter.put`.

    The shards are listed at the first call, and again when an aggregate has come to another shard
    than its own.
    """

    put_packed: Callable[[Sequence[OutgoingRecord], Accepted], object]
    list_shards: Callable[[], Sequence[ShardInfo]]
    _packer: Packer | None = None

    def put(
        self, records: Sequence[OutgoingRecord], accepted: Accepted = lambda _record, _shard: None
    ) -> None:
        """Put all records. Blocks on the network. Raises what `RecordPutter.put` raises, and
        `ValueError` for an explicit hash key that is none. `accepted` gets each of the records that
        was put in its shard, no two of which are one object.
        """

        def on_put(record: OutgoingRecord, shard_id: str | None, left: Container[int] = ()) -> None:
            for user in users_of(record):
                if id(user) not in left:
                    accepted(user, shard_id)

        if self._packer is None:
            self._packer = Packer(self.list_shards())
        packer = self._packer
        packed = [one for record in records for one in packer.add(record)] + packer.flush()
        misplaced: list[tuple[OutgoingRecord, str | None]] = []

        def on_packed(record: OutgoingRecord, shard_id: str | None) -> None:
            if packer.strays(record, shard_id):
                misplaced.append((record, shard_id))
            else:
                on_put(record, shard_id)

        self.put_packed(packed, on_packed)
        if misplaced:
            packer.on_shards(self.list_shards())
            strays: list[OutgoingRecord] = []
            for record, shard_id in misplaced:
                again = packer.strays(record, shard_id)
                left = {id(user) for one in again for user in users_of(one)}
                on_put(record, shard_id, left)
                strays += again
            self.put_packed(strays, on_put)


@command("none", stream_is_argument=True, only_typed="stream", codes=TYPED_CODES)
def produce(
    op: Operation,
    *,
    key: str | None = option(
        "Partition key of all records (default: a random key for each record).",
        metavar="TEXT",
        callback=typed_text,
    ),
    key_from: str | None = option(
        "Read each line as a JSON object and use this field as the partition key.",
        metavar="FIELD",
        callback=typed_text,
    ),
    as_json: bool = option(
        "Read lines of JSON from consume or consume --dead-letter, and put each line's data and "
        "partition key.",
        "--json",
    ),
    aggregate: bool = option(
        "Pack lines that arrive together into aggregates of the Kinesis Producer Library. "
        "Consumers must unpack the aggregates."
    ),
) -> None:
    """Put each line of stdin on a stream as one record, as soon as the line arrives.

    The order of records may change. If the response to a put is lost, the record
    is put again, so the stream may contain it twice. Empty lines are skipped.
    """
    if key is not None and not 0 < len(key) <= MAX_KEY_LENGTH:
        raise wrong_usage("--key", f"a partition key must have 1 to {MAX_KEY_LENGTH} characters")
    if sum((key is not None, key_from is not None, as_json)) > 1:
        raise wrong_usage(
            "--key, --key-from, --json", "use only one of --key, --key-from and --json"
        )
    stop, client = op.signals, op.client
    op.stack.enter_context(stop.deferred())
    put_records: Callable[[Sequence[OutgoingRecord], Accepted], object]
    put_records = RecordPutter(client).put
    if aggregate:
        if client.describe().ignores_keys:
            raise CliError(
                "--aggregate loses records on a stream with record distribution AUTO: consumers "
                "discard a user record that is not on the shard of its partition key",
                "omit --aggregate",
            )
        put_records = AggregatingPutter(put_records, client.list_shards).put

    def random_key() -> str:
        return secrets.token_hex(8)

    def record_of(line: bytes) -> OutgoingRecord:
        if as_json:
            return outgoing_of_json(line, random_key)
        if key_from is not None:
            return OutgoingRecord(key_of_json(line, key_from), line)
        return OutgoingRecord(random_key() if key is None else key, line)

    batches = line_batches(
        sys.stdin.fileno(),
        lambda: stop.stopping,
        max_lines=AGGREGATED_LINES if aggregate else REQUEST_RECORDS,
        max_bytes=REQUEST_BYTES,
        max_line_bytes=MAX_JSON_LINE_BYTES if key_from is not None or as_json else MAX_RECORD_BYTES,
    )
    split = (lambda records: [list(records)]) if aggregate else in_requests
    lines = LinePutter(put_records, record_of, note, split)
    try:
        for batch in batches:
            with op.patience():
                lines.put(batch)
    except KinesisError as exc:
        put = f"{records(lines.put_count)} {are(lines.put_count, 'was', 'were')} put"
        rest = "The other lines were not put"
        if doubted := lines.unconfirmed:
            rest = f"Kinesis may have accepted {_named(doubted)}. Later lines were not put"
        raise CliError(
            f"{exc.message}. {put}. {rest}",
            exc.remedy or "put these lines and the later lines again",
        ) from exc
    finally:
        empty = lines.empty_count
        skipped = f"; {counted(empty, 'empty line')} {are(empty, 'was', 'were')} skipped"
        put = f"put {records(lines.put_count)} on stream {client.stream.name}"
        tell(f"{put}{skipped if empty else ''}")
    if refused := lines.refused_count:
        raise CliError(
            f"{counted(refused, 'line')} {are(refused, 'was', 'were')} not put",
            "correct the lines that the notes name, and put the corrected lines again",
        )


def _named(lines: Sequence[int]) -> str:
    """As `line 14`, `lines 3 to 20`, `lines 3, 7 and 14`; many with gaps are counted."""
    first, last = lines[0], lines[-1]
    if first == last:
        return f"line {last}"
    if last - first == len(lines) - 1:
        return f"lines {first} to {last}"
    if len(lines) <= MAX_NAMED_LINES:
        return f"lines {joined(lines)}"
    return f"{len(lines):,} lines from {first} to {last}"
