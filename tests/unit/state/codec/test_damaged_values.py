"""Stored bytes that are no value: an error that names the node, and never a default. What the
contract suites put into a store is not repeated here.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from state.codec.exported import decode_export
from state.codec.shard_states import decode_shard_state
from state.codec.values import MAX_VALUE_BYTES, decode, encode
from state.errors import StateTooLargeError, StoredDataError
from state.plan import PlanPointer
from state.store.identity import StreamIdentity
from state.znodes.history import decode_entry
from state.znodes.plans import decode_log
from tests.support.state.stored_samples import EXPORT, HISTORY_ENTRY, MARK, read

if TYPE_CHECKING:
    from collections.abc import Callable

PATH = "/root/app/stream/node"
STATE = '{"format":1,"readPosition":"AFTER:20",%s}'
SAMPLES = read("0.1.0")
EXPORTED: dict[str, Any] = json.loads(SAMPLES[EXPORT][0])


def state(data: bytes) -> object:
    return decode_shard_state(data, "shardId-0", PATH)


def export(**changes: object) -> bytes:
    return json.dumps(EXPORTED | changes).encode()


DAMAGED: list[tuple[Callable[[bytes], object], str, list[bytes | str]]] = [
    (
        state,
        "restore the znode from a backup, or reset the application$",
        [
            '"7"',
            '{"checkpoint":"1e5","format":1,"readPosition":"AT:1"}',
            '{"format":1,"checkpoint":"7"}',
            '{"format":1,"readPosition":"SHARD_END","checkpoint":"SHARD_END"}',
            '{"format":1,"readPosition":"SHARD_END","checkpoint":"5","lifecycle":"finished"}',
            STATE % '"unresolved":[{"first":"1","last":"1","attempts":1,"dueMs":0,"new":1}]',
            *(
                STATE % f'"unresolved":[{row}]'
                for row in (
                    '["1",1,0,null,null,-1]',
                    '[["1","x",2],1,0]',
                    "[1,1,0]",
                    '["13",1,9,8,8,"r",null,false,false,true,7]',
                )
            ),
        ],
    ),
    (
        lambda data: decode_log(data, PATH),
        "contains b.*; restore the znode",
        [
            b"\xff",
            '{"shards":[{"shardId":"s","position":"SOMEWHERE"}]}',
            '{"entries":[],"sealed":true}',
            '{"entries":[],"sealed":"yes","format":2}',
        ],
    ),
    (
        lambda data: decode_entry(MARK, [data], PATH),
        "not an? (entry of the checkpoint history|history entry)",
        [zlib.compress(SAMPLES[HISTORY_ENTRY][0].encode())[:-8], zlib.compress(b"{")],
    ),
    (
        lambda data: decode_export(data, PATH),
        "contains|format [09]",
        [export(format=0), export(start={}), export(states={"s": {"format": 9}})],
    ),
    (lambda data: decode(data, PlanPointer, PATH), "", ['{"id":"1-a","status":"half"}']),
]


@pytest.mark.parametrize(
    ("decoded", "said", "data"),
    [(how, said, one) for how, said, several in DAMAGED for one in several],
)
def test_damaged_bytes_are_an_error_that_names_the_path_and_what_to_do(
    decoded: Callable[[bytes], object], said: str, data: bytes | str
) -> None:
    """In one line, which names no class of this project."""
    with pytest.raises(StoredDataError, match=f"{PATH}.*{said}") as damaged:
        decoded(data.encode() if isinstance(data, str) else data)
    assert "\n" not in str(damaged.value)
    assert "Stored" not in str(damaged.value)


def test_any_part_of_a_log_is_damaged() -> None:
    """A node that was cut off, in either format."""
    format_1 = b'{"token":"0f3a","shards":[{"shardId":"shardId-0","first":"10","count":4}]}'
    for whole in (format_1, SAMPLES["batches/<planId>/<task>/end"][0].encode()):
        for length in range(len(whole)):
            with pytest.raises(StoredDataError):
                decode_log(whole[:length], PATH)


def test_a_value_above_the_limit_is_refused() -> None:
    """The limit is half of what ZooKeeper accepts in one request."""
    identity = StreamIdentity(arn="a" * MAX_VALUE_BYTES, name="n", created_ms=1)
    with pytest.raises(StateTooLargeError, match=PATH):
        encode(identity, PATH)
