"""What each version of kinesis-spout has stored, byte for byte: `stored/<version>.json` maps each
kind of node to texts that the version wrote. Every field has something to say in one of them.

    python -m tests.support.state.stored_samples > tests/support/state/stored/<version>.json

writes the newest file as the current version writes what is in it; a new field is added by hand.
The files of earlier versions stay as they are.

`0.0.json` was written by hand, no version wrote it: the Storm ancestor's checkpoints, and forms
from before the first version.
"""

from __future__ import annotations

import json
import sys
import tomllib
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scripts.reference.znodes import structs
from spark_job.driver.query_driver import OF_ONE
from state.codec.exported import decode_export, encode_export
from state.codec.shard_states import decode_shard_state, encode_shard_state
from state.codec.values import decode, encode
from state.plan import PlanPointer, TaskPlan
from state.report import OpenReport
from state.store.history import HistoryMark
from state.store.identity import Pause, StartPin, StreamIdentity
from state.store.ownership import OwnerInfo
from state.store.runs import RunLog
from state.znodes.history import HistoryHead, decode_entry, encode_entry
from state.znodes.plans import PlanHeader, decode_log
from state.znodes.reports import (
    ReportHeader,
    ReportPart,
    decode_header,
    decode_policy,
    decode_report,
    encode_policy,
    encode_report,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[3]
STORED = Path(__file__).with_name("stored")
SHARD = "shardId-000000000000"
PATH = "/root/app/orders/node"
EXPORT, OFFSET = "an export", "an offset of Spark"
HISTORY_ENTRY = "history/<number>-<timeMs>-<kind>-<part>-of-<parts>"
MARK = HistoryMark(number=7, time_ms=1_767_225_600_000, full=True, moved=True)


def version() -> str:
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return found


class Node(NamedTuple):
    """How a kind of node is read, which raises `StoredDataError`, and written."""

    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes] = lambda value: encode(value, PATH)


def _of(kind: type[Any]) -> Node:
    return Node(lambda data: decode(data, kind, PATH))


def _report(header: ReportHeader) -> bytes:
    if header.outcomes is None:
        return encode(header, PATH)
    opened = OpenReport(
        plan_id="4-0a1b",
        token=header.token,
        version=header.opened_version,
        openings=header.openings,
    )
    return encode_report(opened, decode_report(header, [], PATH), PATH)[0]


def nodes() -> dict[str, Node]:
    """By kind of node; and of an export."""
    named = structs()
    return {
        "stream": _of(StreamIdentity),
        "start": _of(StartPin),
        "owner": Node(
            lambda data: decode(data, named["Tasks"] if b"total" in data else OwnerInfo, PATH)
        ),
        "owner/<i>-of-<n>": _of(OwnerInfo),
        "reset": _of(OwnerInfo),
        "epoch/lister": _of(named["Leader"]),
        "shardList": _of(named["StoredShardList"]),
        "<shardId>/state": Node(
            lambda data: decode_shard_state(data, SHARD, PATH),
            lambda state: encode_shard_state(state, PATH)[0],
        ),
        "plan": _of(PlanPointer),
        "tracked": Node(
            lambda data: decode_policy(data, PATH), lambda policy: encode_policy(policy, PATH)
        ),
        "paused": _of(Pause),
        "history": _of(HistoryHead),
        # What is in it: zlib's bytes may be others, and mean the same.
        HISTORY_ENTRY: Node(
            lambda data: decode_entry(MARK, [zlib.compress(data)], PATH),
            lambda entry: zlib.decompress(encode_entry(entry)[0]),
        ),
        "runs/all": _of(RunLog),
        "runs/<i>-of-<n>": _of(RunLog),
        "batches/<planId>": _of(PlanHeader),
        "batches/<planId>/<task>": _of(TaskPlan),
        "batches/<planId>/<task>/end": Node(lambda data: decode_log(data, PATH)),
        "batches/<planId>/report": Node(lambda data: decode_header(data, PATH), _report),
        "batches/<planId>/report/<token>-<version>-<part>": _of(ReportPart),
        EXPORT: Node(lambda data: decode_export(data, PATH), encode_export),
    }


def written() -> dict[str, list[str]]:
    """What this version writes of what its samples, or else the newest ones, say."""
    known = versions()
    samples = read(version() if version() in known else known[-1])
    found = {
        node: [kind.encode(kind.decode(text.encode())).decode() for text in samples.get(node, ())]
        for node, kind in nodes().items()
    }
    return found | {OFFSET: [json.dumps({"format": OF_ONE, "plan": "4-0a1b"})]}


def decoders() -> dict[str, Callable[[bytes], Any]]:
    return {node: kind.decode for node, kind in nodes().items()}


def read(version_name: str) -> dict[str, list[str]]:
    """The file of a version."""
    text = (STORED / f"{version_name}.json").read_text("utf-8")
    return msgspec.json.decode(text, type=dict[str, list[str]])


def versions() -> list[str]:
    return sorted(path.stem for path in STORED.glob("*.json"))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(written(), indent=1) + "\n")
