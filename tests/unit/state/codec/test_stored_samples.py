"""Upgrade and rollback: what every version has stored is read by this one, and what a newer version
stores is refused or read, as `docs/deploy/upgrade.md` says.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from scripts.reference.words import NODES
from scripts.reference.znodes import members, stored, structs
from spark_job.driver.query_driver import read_offset
from state.errors import StoredDataError
from state.store.history import HistoryMark
from state.znodes.history import marks_in, node_names
from tests.support.state.stored_samples import (
    EXPORT,
    MARK,
    OFFSET,
    PATH,
    decoders,
    read,
    version,
    versions,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Read with a text of their own: a number, or nothing at all.
WITHOUT_STRUCT = {node for node, said in NODES.items() if said.struct is None}
# Written since before formats had numbers, and read by the tools of the Kinesis Storm spout.
WITHOUT_FORMAT = {"shardList", "owner/<i>-of-<n>", "plan"}


def keys_in(value: Any) -> set[str]:
    """All keys of objects in a JSON value, at any depth."""
    if isinstance(value, dict):
        return set(value).union(*map(keys_in, value.values()))
    return set().union(*map(keys_in, value)) if isinstance(value, list) else set()


def as_if(text: str, **changed: object) -> bytes:
    """The stored object with other keys."""
    return json.dumps({**json.loads(text), **changed}).encode()


def first_samples() -> Iterator[tuple[str, str]]:
    for node, texts in read(version()).items():
        if node != OFFSET:
            yield node, texts[0]


def test_this_version_writes_what_its_samples_say() -> None:
    """Another byte may be one that the released version cannot read: raise the version in
    pyproject.toml, and add its samples. The old ones stay.
    """
    assert version() in versions(), "the version has no samples"
    assert read(version()) == written()


def test_every_node_and_every_field_has_a_sample() -> None:
    """A field that no sample has could be renamed, and this suite would not see it."""
    assert set(read(version())) == (set(NODES) - WITHOUT_STRUCT) | {EXPORT, OFFSET}
    seen = set().union(
        *(
            keys_in(json.loads(text))
            for name in versions()
            for texts in read(name).values()
            for text in texts
        )
    )
    wanted = {
        f"{name}.{key}"
        for name, kind in stored().items()
        if issubclass(kind, msgspec.Struct)
        for key, _, _ in members(kind)
    }
    may_be_left_out = {"format"}  # of a format 1
    missing = {key for key in wanted if key.partition(".")[2] not in seen | may_be_left_out}
    # Whole records in the older form of objects: no version wrote it so.
    assert missing - {"UnresolvedRecord.whole"} == set()


@pytest.mark.parametrize("name", versions())
def test_what_any_version_has_stored_is_read(name: str) -> None:
    for node, texts in read(name).items():
        for text in texts if node != OFFSET else ():
            assert decoders()[node](text.encode()) is not None


def test_a_field_is_stored_under_its_own_name() -> None:
    """In camel case. So the samples mean what they meant. Some have another name since before."""
    renamed = {
        (name, field.name, field.encode_name)
        for name, kind in stored().items()
        if issubclass(kind, msgspec.Struct)
        for field in msgspec.structs.fields(kind)
        if re.sub("_([a-z])", lambda found: found[1].upper(), field.name) != field.encode_name
    }
    assert renamed == {
        ("StartPin", "requested", "wish"),
        ("PlanHeader", "outages", "storms"),
        ("PlanReport", "outage", "storm"),
        ("ShardReadResult", "at_shard_end", "shardEnd"),
        ("ShardReadResult", "payload_bytes", "bytes"),
    }
    assert read_offset(json.loads(read("0.1.0")[OFFSET][0])) == {"": "4-0a1b"}


@pytest.mark.parametrize(
    ("node", "text"),
    [pair for pair in first_samples() if pair[0] not in WITHOUT_FORMAT | {"owner"}],
    ids=lambda value: value if "{" not in value else "",
)
def test_an_older_version_refuses_a_newer_format(node: str, text: str) -> None:
    """One sentence: what is there, who wrote it, what this version reads, and what to do."""
    newer = as_if(text, format=9)
    with pytest.raises(
        StoredDataError,
        match=rf"^{PATH} has format 9, written by a newer version of kinesis-spout, but this "
        r"version reads formats up to [12]; upgrade kinesis-spout",
    ):
        decoders()[node](newer)


@pytest.mark.parametrize(
    ("node", "text"), list(first_samples()), ids=lambda value: value if "{" not in value else ""
)
def test_a_key_that_is_not_known_is_passed_over(node: str, text: str) -> None:
    """A newer version may add one under the same format, where losing it loses no record."""
    assert decoders()[node](as_if(text, later={"new": 1})) == decoders()[node](text.encode())


def formats_left_out(kinds: dict[str, type[Any]]) -> set[str]:
    """Structs that leave out a format above 1 when they are written: older versions would take what
    they wrote for format 1.
    """
    return {
        name
        for name, kind in kinds.items()
        if issubclass(kind, msgspec.Struct) and kind.__struct_config__.omit_defaults
        for field in msgspec.structs.fields(kind)
        if field.name == "format" and not field.required and field.default not in {0, 1}
    }


def test_a_format_that_is_left_out_is_format_1() -> None:
    """A default that is raised with the format would never be stored."""
    assert formats_left_out(structs()) == set()


def test_entries_of_the_history_are_found_by_the_names_of_their_nodes() -> None:
    """In the order of their numbers. Other names, and entries of which a part is missing, are told
    apart.
    """
    assert node_names(MARK) == [f"0000000007-{MARK.time_ms}-moved-0-of-1"]
    expected = [
        HistoryMark(number=2, time_ms=9, full=True, moved=False),
        HistoryMark(number=3, time_ms=7, full=False, moved=False, parts=2),
        HistoryMark(number=10**10, time_ms=8, full=True, moved=True),
    ]
    names = [name for mark in expected for name in node_names(mark)]
    half = node_names(HistoryMark(number=4, time_ms=1, full=False, moved=False, parts=2))[:1]
    assert marks_in([*reversed(names), *half, "notes"]) == (expected, [*half, "notes"])
