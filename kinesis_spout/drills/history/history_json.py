"""A history as one JSON object, so that a drill can be judged again later. Pure.

Sequence numbers and hash keys are texts, because they have more digits than numbers of JSON. What a
run told is a list of the lines of its file. Of the states of a sample only those are stored that
differ from the sample before.
"""

from __future__ import annotations

import msgspec

from kinesis_spout.drills.history.events import (
    Fault,
    History,
    Put,
    Sample,
    ShardLife,
    Told,
    parse_line,
)
from state.codec.values import decode_hook, encode_hook
from state.errors import InvalidPositionError, InvalidSequenceNumberError
from state.shard_state import ShardState

FORMAT = 1


class _StoredSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`gone`: the shards of the sample before that have no state in this one."""

    began_ns: int
    ended_ns: int
    changed: dict[str, ShardState] = {}
    gone: tuple[str, ...] = ()


class _StoredHistory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`puts`: key, number, shard, sequence number, time, sub-sequence number. `told`: by run.
    `shards`: as `ShardLife`, with hash keys as texts.
    """

    format: int
    puts: list[tuple[str, int, str, str, int, int | None]] = []
    told: dict[str, list[str]] = {}
    faults: list[Fault] = []
    samples: list[_StoredSample] = []
    tasks: dict[str, int] = {}
    shards: list[tuple[str, tuple[str, ...], int, int | None, str, str]] = []
    fates_known: bool = True
    retry_limit: int | None = None


def encode_history(history: History) -> bytes:
    told: dict[str, list[str]] = {}
    for one in history.told:
        told.setdefault(one.run, []).append(one.line().decode())
    stored = _StoredHistory(
        format=FORMAT,
        puts=[
            (put.key, put.number, put.shard_id, str(put.sequence), put.at_ns, put.sub)
            for put in history.puts
        ],
        told=told,
        faults=list(history.faults),
        samples=_stored_samples(history),
        tasks=history.tasks,
        shards=[
            (*life[:4], str(life.hash_start), str(life.hash_end))
            for life in history.shards.values()
        ],
        fates_known=history.fates_known,
        retry_limit=history.retry_limit,
    )
    return msgspec.json.encode(stored, enc_hook=encode_hook)


def decode_history(data: bytes) -> History:
    """Reads what `encode_history` has made. Raises ValueError, which says what is wrong."""
    try:
        stored = msgspec.json.decode(data, type=_StoredHistory, dec_hook=decode_hook)
    except (msgspec.MsgspecError, InvalidPositionError, InvalidSequenceNumberError) as exc:
        raise ValueError(f"this is not the history of a drill: {exc}") from exc
    if stored.format != FORMAT:
        raise ValueError(
            f"the history has format {stored.format}, and this version reads format {FORMAT} only; "
            "use the version of kinesis-spout that wrote it"
        )
    told = [parse_line(line.encode(), run) for run, lines in stored.told.items() for line in lines]
    return History(
        puts=[
            Put(key, number, shard, int(sequence), at_ns, sub)
            for key, number, shard, sequence, at_ns, sub in stored.puts
        ],
        told=sorted(told, key=_at_ns),
        faults=stored.faults,
        samples=_samples(stored),
        tasks=stored.tasks,
        shards={
            shard: ShardLife(shard, parents, created_ns, closed_ns, int(first), int(last))
            for shard, parents, created_ns, closed_ns, first, last in stored.shards
        },
        fates_known=stored.fates_known,
        retry_limit=stored.retry_limit,
    )


def _at_ns(told: Told) -> int:
    return told.at_ns


def _stored_samples(history: History) -> list[_StoredSample]:
    found = []
    known: dict[str, ShardState] = {}
    for sample in history.samples:
        changed = {
            shard: state for shard, state in sample.states.items() if known.get(shard) != state
        }
        gone = tuple(known.keys() - sample.states.keys())
        found.append(
            _StoredSample(
                began_ns=sample.began_ns, ended_ns=sample.ended_ns, changed=changed, gone=gone
            )
        )
        known = sample.states
    return found


def _samples(stored: _StoredHistory) -> list[Sample]:
    found = []
    known: dict[str, ShardState] = {}
    for sample in stored.samples:
        kept = {shard: state for shard, state in known.items() if shard not in sample.gone}
        known = kept | sample.changed
        found.append(Sample(sample.began_ns, sample.ended_ns, known))
    return found
