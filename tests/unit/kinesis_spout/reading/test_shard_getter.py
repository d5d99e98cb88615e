"""Iterators, the tip and the end of one shard, with a scripted service and a simulated clock."""

from __future__ import annotations

import json
from collections import deque
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.config import AwsConfig, ReadRate, StreamRef
from kinesis_spout.errors import (
    ExpiredIteratorError,
    KinesisError,
    MalformedResponseError,
    ShardNotFoundError,
    StillThrottledError,
    ThrottledError,
)
from kinesis_spout.reading.pacing import Pacer
from kinesis_spout.reading.page import Page
from kinesis_spout.reading.shard_getter import (
    FetchPostponedError,
    KinesisShardGetter,
)
from kinesis_spout.service.client import KinesisClient
from kinesis_spout.service.get_records_decoder import DecodedPage, decode_get_records
from kinesis_spout.testing import ManualClock
from state.position import SHARD_END, TRIM_HORIZON, Position
from state.sequence_number import SequenceNumber

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SHARD = "shardId-000000000000"


BEGAN_S = 1000.0


class ScriptedClient(KinesisClient):
    """Answers fetches by a script whose last answer is repeated, and numbers the iterators that it
    issues.
    """

    clock: ManualClock
    in_flight: Callable[[], None] | None = None  # called once, during the next fetch

    def __init__(self, *script: DecodedPage | KinesisError) -> None:
        super().__init__(AwsConfig(), StreamRef("flights"))
        self.script = deque(script)
        self.iterators_for: list[Position] = []
        self.fetches: list[tuple[str, int]] = []
        self.clock = ManualClock()
        self.clock.advance(BEGAN_S - self.clock.monotonic_s())

    def shard_iterator(self, shard_id: str, position: Position, *, retry: bool = True) -> str:
        del retry
        assert shard_id == SHARD
        self.iterators_for.append(position)
        return f"fresh-{len(self.iterators_for)}"

    def get_records(
        self, iterator: str, limit: int, *, retry_throttled: bool = True, retry: bool = True
    ) -> DecodedPage:
        del retry_throttled, retry
        self.fetches.append((iterator, limit))
        if (in_flight := self.in_flight) is not None:
            self.in_flight = None
            in_flight()
        answer = self.script.popleft() if len(self.script) > 1 else self.script[0]
        if isinstance(answer, KinesisError):
            raise answer
        return replace(answer, answered_s=self.clock.monotonic_s())


def fetched(
    sequences: Sequence[int] = (),
    *,
    after: str | None = "next",
    behind_ms: int | None = 0,
    **rest: Any,
) -> DecodedPage:
    records = [
        {"SequenceNumber": str(number), "Data": "YQ==", "PartitionKey": "k"} for number in sequences
    ]
    body = {"Records": records, "NextShardIterator": after, "MillisBehindLatest": behind_ms} | rest
    return replace(decode_get_records(json.dumps(body).encode()), service_time_ms=7000)


def getter_of(
    client: ScriptedClient, position: Position = TRIM_HORIZON, **rest: Any
) -> KinesisShardGetter:
    clock = rest.pop("clock", None) or client.clock
    client.clock = clock
    random = Random(3)  # noqa: S311  # the same in every run
    pacer = rest.pop("pacer", None) or Pacer(ReadRate())
    return KinesisShardGetter(
        client, SHARD, position, pacer=pacer, clock=clock, random=random, **rest
    )


def after(sequence: int) -> Position:
    return Position.after(SequenceNumber(sequence))


def test_an_expired_iterator_is_replaced_by_one_after_the_last_record() -> None:
    """At once, as that of a paused consumer has expired for real. No record is read twice, none is
    left out. A hint of the last batch saves a call.
    """
    client = ScriptedClient(fetched([1, 2]), ExpiredIteratorError("old"), fetched([3]))
    getter = getter_of(client, iterator="hint")
    getter.fetch(10)
    assert getter.fetch_unless_throttled(10).first == SequenceNumber(3)
    assert client.iterators_for == [after(2)]
    assert [iterator for iterator, _ in client.fetches] == ["hint", "next", "fresh-1"]
    assert client.clock.monotonic_s() == 1000.0


@pytest.mark.parametrize("answer", [fetched([1]), KinesisError("the connection broke")])
def test_a_retry_waits_for_the_call_in_flight_and_then_has_the_next_slot(
    answer: DecodedPage | KinesisError,
) -> None:
    """A spout's threads read new records and retries of one shard. How large the page in flight is
    nobody knows, and the service refuses a call that comes before the page is paid off.
    """
    pages = (fetched([number]) for number in range(2, 6))
    client, pacer = ScriptedClient(answer, *pages), Pacer(ReadRate(bytes_per_second=4))
    new = getter_of(client, pacer=pacer, one_attempt=True)
    retry = getter_of(client, pacer=pacer, clock=client.clock, one_attempt=True, for_retries=True)

    def ask() -> None:
        assert retry.ready_at_s() > client.clock.monotonic_s() + 1
        with pytest.raises(FetchPostponedError):
            retry.fetch_unless_throttled(1)
        with pytest.raises(FetchPostponedError):
            retry.fetch(1, until_s=client.clock.monotonic_s() + 1)

    client.in_flight = ask
    with suppress(KinesisError):
        new.fetch_unless_throttled(10)
    slot_s = retry.ready_at_s()
    assert slot_s <= BEGAN_S + 0.5  # its two bytes
    assert new.ready_at_s() > slot_s
    retry.fetch(1)
    assert new.ready_at_s() == slot_s + 0.5 < retry.ready_at_s()  # the next one is for new records
    retry.fetch(1)
    new.fetch(1)
    assert new.ready_at_s() == client.clock.monotonic_s() + 0.5  # nobody waits any more


OLD, THROTTLED = ExpiredIteratorError("old"), ThrottledError("of the shard's limits")


@pytest.mark.parametrize("errors", [[OLD, OLD], [THROTTLED]])
def test_a_caller_that_does_not_wait_learns_when_to_call_again(errors: list[KinesisError]) -> None:
    """The round robin reads other shards until then, and no call is made too early."""
    client = ScriptedClient(*errors, fetched([1]))
    getter = getter_of(client, iterator="hint")
    with pytest.raises(FetchPostponedError, match=str(errors[0])):
        getter.fetch_unless_throttled(10)
    assert len(client.iterators_for) == len(errors) - 1
    assert getter.ready_at_s() > 1000.2
    assert getter.fetch_unless_throttled(10).count == 1


@pytest.mark.parametrize(
    ("error", "raised", "says"),
    [
        (
            OLD,
            ExpiredIteratorError,
            f"new iterator of shard {SHARD} of stream flights .* for 12",
        ),
        (
            THROTTLED,
            StillThrottledError,
            f"{SHARD} of stream flights .* lower the job's reads",
        ),
    ],
)
def test_what_lasts_for_too_long_ends_in_an_error_that_says_so(
    error: KinesisError, raised: type[Exception], says: str
) -> None:
    """It names the shard and what to do, after the time allowed."""
    client = ScriptedClient(error)
    with pytest.raises(raised, match=says):
        getter_of(client, iterator="hint").fetch(10)
    assert 1120 <= client.clock.monotonic_s() < 1140


def test_calls_that_are_tried_for_a_minute_each_end_in_that_error_too() -> None:
    """The time of a call is no pause between two refusals, however long its own attempts take."""

    class SlowClient(ScriptedClient):
        def shard_iterator(self, shard_id: str, position: Position, *, retry: bool = True) -> str:
            self.clock.advance(61)
            raise THROTTLED

    with pytest.raises(StillThrottledError, match=r"has throttled all reads .* for 1[2-9][0-9] s"):
        getter_of(SlowClient(fetched([1]))).fetch(10)


def test_a_shard_that_the_service_does_not_know_gives_a_page_that_says_so() -> None:
    """Without records, and without an end: the position stays, as nothing says how far the shard
    was read. A hint may belong to a stream that was deleted and created again, so it is replaced.
    """
    gone = ShardNotFoundError("gone")
    client = ScriptedClient(gone, fetched([3], after="b"), gone)
    getter = getter_of(client, iterator="hint")
    assert getter.fetch(10).count == 1
    page = getter.fetch_unless_throttled(10)
    assert page == Page(shard_id=SHARD, gone=True)
    assert (page.ended, page.at_tip, getter.position) == (False, False, after(3))
    client = ScriptedClient(gone)
    assert getter_of(client, iterator="hint").fetch(10).gone
    assert len(client.fetches) == 2, "a fresh iterator is trusted"


@pytest.mark.parametrize(
    ("sequences", "behind_ms", "at_tip"),
    [
        ([1], 0, True),
        ([], 0, True),
        ([1, 2], 0, False),
        ([1], 5, False),
        ([], 5, False),
        ([1], None, False),
    ],
)
def test_a_page_is_at_the_tip_if_it_is_not_behind_and_not_full(
    sequences: list[int], behind_ms: int | None, *, at_tip: bool
) -> None:
    """An emulator reports no lag although more records follow. An empty page with a lag is in the
    middle of the shard.
    """
    page = getter_of(ScriptedClient(fetched(sequences, behind_ms=behind_ms))).fetch(2)
    assert page.at_tip is at_tip
    assert page.millis_behind_latest == (behind_ms or 0)
    assert page.service_time_ms == 7000


@pytest.mark.parametrize("behind_ms", [0, None, 90_000])
def test_a_missing_iterator_is_the_end_only_if_new_iterators_give_the_same_answer(
    behind_ms: int | None,
) -> None:
    """It may be a malformed answer of an open shard; or of an emulator that names no children and
    lists a number that no record reaches. Some say how long ago the shard was closed.
    """
    end = fetched([], after=None, behind_ms=behind_ms)
    client = ScriptedClient(fetched([4, 5], after=None, behind_ms=behind_ms), end)
    getter = getter_of(client, ending_sequence=SequenceNumber(2**63 - 1))
    pages = [getter.fetch(10) for _ in range(4)]
    assert [page.ended for page in pages] == [False, False, False, True]
    assert not any(page.at_tip for page in pages[:3])
    assert getter.position == SHARD_END
    assert client.iterators_for == [TRIM_HORIZON, *[after(5)] * 3]


END, EMPTY = fetched([], after=None), fetched([], behind_ms=5)
ALIEN = {"ShardId": "c", "ParentShards": ["another"], "HashKeyRange": {}}


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        # another answer between them: those before it were malformed, and so count for nothing
        *(
            ([END, END, between, END, END, END], [False] * 5 + [True])
            for between in (
                fetched([6]),
                fetched([6], after=None),
                fetched([]),
                fetched([], behind_ms=None),
            )
        ),
        # empty pages are behind the tip, so they do not say that the shard is open
        ([EMPTY, END, EMPTY, EMPTY, END, EMPTY, END], [False] * 6 + [True]),
        # children of another shard are no evidence
        ([fetched([4], after=None, ChildShards=[ALIEN]), fetched([5])], [False, False]),
    ],
)
def test_an_end_without_children_is_proved_by_three_new_iterators_in_a_row(
    script: list[DecodedPage], ended: list[bool]
) -> None:
    getter = getter_of(ScriptedClient(*script))
    assert [getter.fetch(10).ended for _ in ended] == ended


@pytest.mark.parametrize(
    ("ending", "ended"), [(5, True), (4, True), (6, False), (2**63 - 1, False), (None, False)]
)
def test_reading_up_to_the_listed_end_is_the_end_too(ending: int | None, *, ended: bool) -> None:
    """One emulator never ends a closed shard, another lists an end that no record reaches. So the
    number can add an end but not prevent one.
    """
    listed = None if ending is None else SequenceNumber(ending)
    for following in ("next", None):
        client = ScriptedClient(fetched([4, 5], after=following))
        getter = getter_of(client, ending_sequence=listed)
        assert getter.fetch(10).ended is ended
        assert getter.position == (SHARD_END if ended else after(5))
    client = ScriptedClient(fetched([9]))
    if ended:
        restarted = getter_of(client, after(5), ending_sequence=listed)
        assert restarted.fetch(10).ended
        assert client.fetches == []


@pytest.mark.parametrize("sequences", [[7, 6], [5, 8], [3]])
def test_a_page_that_runs_backwards_or_before_the_position_is_refused(sequences: list[int]) -> None:
    """Once published, it could never be settled. The position stays where it was."""
    getter = getter_of(ScriptedClient(fetched(sequences)), after(5))
    with pytest.raises(MalformedResponseError, match="out of order"):
        getter.fetch(10)
    assert getter.position == after(5)
