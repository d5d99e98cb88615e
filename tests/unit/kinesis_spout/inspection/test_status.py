"""The status of an application: its verdict and headline, its order, its figures, its JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.errors import KinesisError
from kinesis_spout.inspection.health import Health
from kinesis_spout.inspection.status import (
    holes_of,
    owners_sentence,
    shards_json,
    shards_of_stream,
    status_of,
    stored_shard,
    unresolved_sentence,
    unrest,
    verdict_sentence,
)
from kinesis_spout.service.shard_info import HASH_KEYS, HashRange
from state.plan import PlanStatus
from state.position import SHARD_END, TRIM_HORIZON
from state.report import OnFailure, OutcomePolicy, PlanReport, ReportStatus
from state.store.ownership import ProcessState, TaskShare
from state.store.runs import DONE, FAILED, NoAnswers, ReadTrouble, RefusedLetters, RunEnd
from state.store.view import StoredApplication
from state.task_log import TaskLog
from tests.support.inspection.looks import (
    AT_TIP,
    HOUR_MS,
    NOW_MS,
    OWNER,
    PAUSE,
    RECREATED,
    after,
    behind,
    failed,
    listed,
    look,
    plan,
    read_of,
    run_log,
    shard,
    slice_of,
    snapshot,
    spout_task,
    state,
    task,
)
from tests.support.shell.pages import ROOT

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look, TipAnswer
    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState

PARTS = (
    listed(0, closed=True),
    listed(1),
    listed(2),
    listed(3, 0),
    state(0, SHARD_END, unresolved=(failed(3, attempts=2), failed(4))),
    state(1, after(5)),
    state(2, after(5), verified_until_ms=NOW_MS - 4 * HOUR_MS),
    state(3, TRIM_HORIZON, 0, verified_until_ms=NOW_MS - 1_000),
)
SEEN = look(*PARTS, tips={1: AT_TIP, 2: behind(4 * HOUR_MS)})
ONE, HERE = listed(1), state(1, after(5))
FAMILY = (listed(0, closed=True), listed(1, 0), listed(2, 0), state(1, after(0), 0))
MOVED: dict[str, Any] = {"before": (state(0, after(5)),)}
SPOUT: dict[str, Any] = {"owners": (spout_task(0, 1),), "total_tasks": 1}
HALF: dict[str, Any] = {"owners": (spout_task(0, 2),), "total_tasks": 2}
TWO = {1: behind(60_000), 2: behind(90_000)}
DIED = RunEnd(time_ms=NOW_MS - 1_000, kind=FAILED, says="the disk is full; free some of it")
SILENT = run_log(HOUR_MS, kind="spout", no_answers=NoAnswers(since_ms=NOW_MS, count=3))
REFUSED = RefusedLetters(count=2, last_ms=NOW_MS - 1_000, says="PermissionError: letters")
READ = task(slice_of(HERE), log=TaskLog(entries=(read_of(1, 9),), sealed=True))
PAUSED = (
    "paused: the application was paused by ann on host-a at 07:00:00, 60 min ago; the reason for "
    "the pause is 'deploy'; "
)
NOT_SEEN = "the job is running, but its stored state does not show what it is waiting for"


def one(tip_ms: int | None = None, **stored: Any) -> Look:
    """A shard so long behind, or at its tip."""
    return look(ONE, HERE, **({"tips": {1: behind(tip_ms) if tip_ms else AT_TIP}} | stored))


def three(**seen: Any) -> Look:
    parts: list[ShardInfo | ShardState] = [
        *map(listed, (1, 2, 3)),
        *(state(index, after(5)) for index in (1, 2, 3)),
    ]
    return replace(look(*parts, tips=seen.pop("tips", {1: AT_TIP})), **seen)


def over(*ages_ms: int, says: str | None = None, **fields: Any) -> dict[str, Any]:
    """Runs that began so long ago, and each of which ended in order 10 s later."""
    ends = tuple(
        RunEnd(time_ms=NOW_MS - age_ms + 10_000, kind=DONE, says=says) for age_ms in ages_ms
    )
    return {"owners": (), "log": run_log(*ages_ms, ends=ends, **fields)}


def spout(*held: Any) -> Look:
    """A spout whose dead letters are refused."""
    log = run_log(HOUR_MS, kind="spout", max_attempts=4, refused_letters=REFUSED)
    parts = (ONE, state(1, after(5), unresolved=held))
    return look(*parts, tips={1: AT_TIP}, runs={TaskShare(0, 1): log}, **SPOUT)


def no_reads(*, error: str, tips: dict[int, TipAnswer], says: str = "no") -> Look:
    """A spout whose reads have failed for an hour."""
    fails = ReadTrouble(since_ms=NOW_MS - HOUR_MS, says=says, error=error)
    log = run_log(HOUR_MS, kind="spout", failing_reads=fails)
    return look(ONE, HERE, tips=tips, runs={TaskShare(0, 1): log}, **SPOUT)


# A look, and the verdict with its headline: how it begins, and how it ends where that matters.
VERDICTS: list[tuple[Look, str]] = [
    (SEEN, f"stalled: {NOT_SEEN}; 1 shard is waiting"),
    (
        look(
            *(ONE, listed(2), HERE, state(2, after(5))),
            before=(state(1, after(1)), state(2, after(1))),
            tips={1: behind(60_000), 2: behind(HOUR_MS)},
        ),
        "lagging: 2 of 2 shards are up to 60 min behind",
    ),
    (
        look(ONE, state(1, after(5), unresolved=(failed(3, due_ms=1),)), tips={1: AT_TIP}),
        "lagging: 1 of 1 shard has records whose retries are overdue",
    ),
    # a verdict that is fine names the records that have failed again at a retry
    (
        look(ONE, state(1, after(5), unresolved=(failed(3),)), tips={1: AT_TIP}),
        "ok: 1 shard is read up to the newest record; 1 record is unresolved",
    ),
    (
        look(ONE, state(1, after(5), unresolved=(failed(3, attempts=5),)), tips={1: AT_TIP}),
        "ok: 1 shard is read up to the newest record; 1 record is unresolved after 5 attempts",
    ),
    (
        look(
            *(ONE, state(1, after(5), unresolved=(failed(3, attempts=2), failed(4, attempts=3)))),
            tips={1: behind(60_000)},
            paused=True,
        ),
        (
            "paused: the application was paused by ann on host-a at 07:00:00, 60 min ago; the "
            "reason for the pause is 'deploy'; 1 of 1 shard is 60 s behind; 2 records are "
            "unresolved after up to 3 attempts"
        ),
    ),
    # nothing is ok of which nothing is known
    # not asked, beside others
    (
        look(*PARTS, tips={1: AT_TIP}),
        (
            "ok: ...the newest record was not read for 1 of 4 shards; 2 records are "
            "unresolved after up to 2 attempts"
        ),
    ),
    (
        one(tips={}),
        "unknown: the lag of 1 shard is not known; no newest record was read",
    ),
    (
        one(identity=RECREATED),
        "unknown: the application's state belongs to an earlier stream with the same name",
    ),
    (
        look(listed(0), listed(1), pin=None, owners=()),
        "unknown: application etl does not exist on stream orders",
    ),
    (
        three(throttled={shard(2)}),
        (
            "unknown: Kinesis is throttling this command's reads of shard 2; the newest record is "
            "not known for 1"
        ),
    ),
    (
        three(unanswered={shard(2): KinesisError("GetRecords failed (InternalFailure)")}),
        "unknown: Kinesis does not answer reads of shard 2: GetRecords failed (InternalFailure)",
    ),
    # a spout reports that it gets no records: that is known without a right to read
    (
        no_reads(error="ThrottledError", tips={}),
        "stalled: the reads of the spout (pid 42 on host-a) have failed since 07:00:00 with: no; 1",
    ),
    (
        no_reads(error="ThrottledError", tips={1: AT_TIP}),
        "ok: 1 shard is read up to the newest record",
    ),
    (
        no_reads(error="StaleCredentialsError", tips={1: AT_TIP}),
        "stalled: the reads of the spout (pid 42 on host-a) have failed since 07:00:00 with: no; 1",
    ),
    # who holds up whom
    (
        look(*FAMILY, state(0, after(9)), tips={0: behind(60_000)}, **MOVED),
        "lagging: 1 of 3 shards is 60 s behind; 2 other shards are waiting for lagging shards",
    ),
    (
        look(
            *(listed(0, closed=True), listed(1, 0)),
            *(state(0, SHARD_END, unresolved=(failed(3),)), state(1, after(5), 0)),
            policy=OutcomePolicy(on_failure=OnFailure.BLOCK_SHARD),
            tips={1: behind(60_000)},
        ),
        "stalled: 1 record of shard 0 is unresolved; 2 shards are waiting",
    ),
    # on purpose
    (
        one(HOUR_MS, paused=True, **HALF),
        (
            f"{PAUSED}...; spout task 1 of 2 (counted from 0) is not running; 1 of 1 shard is 60 "
            "min behind"
        ),
    ),
    (
        one(HOUR_MS, paused=True, owners=(), log=run_log(60_000, 40_000, 20_000)),
        f"{PAUSED}...; the job ends soon after each start; 1 of 1 shard is 60 min behind",
    ),
    (
        one(paused=True, owners=()),
        f"{PAUSED}...; no process is running; all records are read",
    ),
    # a cause that is known is named before one that is not
    (
        look(*map(listed, (1, 2)), state(1, after(5)), state(2, after(5)), tips=TWO, **HALF),
        "stalled: spout task 1 of 2 (counted from 0) is not running; 2 shards are waiting; there",
    ),
    # no process: a run that ended in order is no failure, one that died is
    # keeps up, and does not run
    (one(owners=()), "not running: no process is running; all records are read"),
    (
        one(HOUR_MS, **over(2 * HOUR_MS)),
        (
            "not running: no process is running; the last run (pid 42 on host-a) finished "
            "at 06:00:10; ...1 of 1 shard is waiting for the next run"
        ),
    ),
    (
        one(HOUR_MS, **over(2 * HOUR_MS, shards=(shard(0),))),
        "not running: ...; the last run left unread records of 1 of 1 shard",
    ),
    (
        look(ONE, listed(2), HERE, state(2, after(5)), tips={1: AT_TIP}, **over(HOUR_MS)),
        "not running: ...; the newest record was not read for 1 of 2 shards",
    ),
    # records expire soon where less time is left than has passed since they came
    (one(HOUR_MS, owners=()), "stalled: ...no process is running; 1 shard is waiting"),
    (one(23 * HOUR_MS, owners=()), "stalled: ...; unread records expire in 60 min"),
    # a run that should have come again
    (one(HOUR_MS, **over(4 * HOUR_MS, 3 * HOUR_MS, 2 * HOUR_MS)), "stalled: "),
    # a run was killed
    (one(HOUR_MS, owners=(), log=run_log(HOUR_MS)), "stalled: "),
    # a run died, though all that came was read
    (
        one(owners=(), log=run_log(60_000, ends=(DIED,))),
        (
            "stalled: no process is running; 1 shard is waiting; all records of the shard are "
            "read; the last run (pid 42 on host-a) failed at 07:59:59 with: the disk is full; free "
            "some of it"
        ),
    ),
    # the lag is 0, and the batch hangs
    (
        one(plan=plan(READ, created_ms=NOW_MS - 60_000, previous_ms=NOW_MS - 65_000)),
        "stalled: ...; all records of the shard are read, but their outcomes are not stored",
    ),
    # of a long error, the first sentence
    (
        no_reads(error="AccessDeniedError", tips={}, says=f"not allowed to read. {'arn ' * 99}"),
        "stalled: ... have failed since 07:00:00 with: not allowed to read; 1 shard is waiting",
    ),
    (
        no_reads(error="AccessDeniedError", tips={}, says="arn " * 99),
        "stalled: ... ...; 1 shard is waiting",
    ),
    # a run died, and another one goes on
    (one(log=run_log(90_000, HOUR_MS, ends=(DIED, None))), "ok: "),
    # records without an answer
    (
        one(log=SILENT),
        "stalled: the spout (pid 42 on host-a) has received neither an ack nor a failure since",
    ),
    (
        spout(failed(3, attempts=4)),
        "stalled: the job cannot write the dead letters for 2 records",
    ),
]


@pytest.mark.parametrize(("seen", "told"), VERDICTS)
def test_the_verdict_and_its_headline(seen: Look, told: str) -> None:
    begin, _, end = told.partition("...")
    found = status_of(seen)
    said = f"{found.verdict.value}: {verdict_sentence(found)}"
    assert (said.startswith(begin), said.endswith(end)) == (True, True), said
    assert (not found.causes) == (found.verdict is Health.OK)


@pytest.mark.parametrize(
    ("process", "says"),
    [
        (
            ProcessState.STOPPED,
            "no process owns the application: the process of the last run (pid 42 on host-a) is",
        ),
        (
            ProcessState.RUNS,
            "no process owns the application: the process of the last run (pid 42 on host-a) has",
        ),
        (ProcessState.GONE, "no process is running; the last run did not report how it ended"),
    ],
)
def test_a_process_that_has_lost_its_session_has_not_ended(
    *, process: ProcessState, says: str
) -> None:
    seen = one(HOUR_MS, owners=(), log=run_log(HOUR_MS), process=process)
    assert owners_sentence(seen).startswith(says)


def test_the_json_has_every_shard_and_names_the_cause() -> None:
    found = json.loads(json.dumps(status_of(SEEN).as_json()))
    assert found["verdict"] == "stalled"
    assert (found["cause"]["kind"], found["cause"]["subject"]["name"]) == ("not visible", "etl")
    assert found["health"] == {"stalled": 1, "ok": 3}
    assert found["windowMs"] == 10_000
    by_id = {one["shardId"]: one for one in found["shards"]}
    assert by_id[shard(0)] | {"readPosition": None} == {
        "shardId": shard(0),
        "health": "ok",
        "state": "drained",
        "readPosition": None,
        "checkpoint": None,
        "parents": [],
        "waitsFor": [],
        "hashKeys": ["0", str(HASH_KEYS - 1)],
        "hashPercent": 100.0,
        "verifiedUntil": "2027-01-15T07:59:00.000Z",
        "lagMs": None,
        "lagMeasured": False,
        "expiresInMs": None,
        "unresolved": 2,
        "oldestMs": 120_000,
        "attempts": 2,
        "speed": None,
    }
    assert by_id[shard(2)]["expiresInMs"] == 20 * HOUR_MS
    paused = status_of(look(*PARTS, paused=True)).as_json()["pause"]
    assert paused == {"by": "ann on host-a", "sinceMs": PAUSE.since_ms, "reason": "deploy"}
    assert status_of(three(throttled={shard(2)})).as_json()["throttled"] == 1
    assert status_of(three(unanswered={shard(2): KinesisError("-")})).as_json()["notAnswered"] == 1


def test_the_reference_page_defines_every_member() -> None:
    """Of the application, its plan, its outcomes and its shards."""
    done = PlanReport(failed=2, dead_lettered=1, done_ms=NOW_MS - 4_000)
    found = status_of(one(plan=plan(READ, report=ReportStatus.DONE, outcomes=done))).as_json()
    page = (ROOT / "docs/reference/status-json.md").read_text()
    parts = (found, found["plan"], found["plan"]["outcomes"], found["shards"][0], *found["owners"])
    assert [name for part in parts for name in part if f"`{name}`" not in page] == []
    assert found["plan"]["outcomes"] == {"acked": 7, "failed": 2, "deadLettered": 1}
    assert found["plan"]["perSecond"] == {"acked": 7.0, "failed": 2.0, "deadLettered": 1.0}


def test_holes_and_shards_without_an_application_have_the_same_members() -> None:
    """A hole of an active stream is what no open shard covers. A parent may be listed no more."""
    seen = snapshot(listed(1, 0), listed(2, closed=True))
    half = replace(
        seen,
        listing=[
            replace(seen.listing[0], hash_key_range=HashRange(1, HASH_KEYS - 1)),
            seen.listing[1],
        ],
    )
    found = shards_json([*shards_of_stream(half), *holes_of(half)])
    assert [one["state"] for one in found] == ["past", "open", "closed", "hole"]
    assert (found[-1]["shardId"], found[-1]["hashKeys"]) == (None, ("0", "0"))
    (child,) = (one for one in status_of(look(listed(1, 0), HERE)).shards if one.position)
    assert child.parents == (shard(0),), "the listing names them, though the state does not"
    (stored,) = shards_json([stored_shard(state(1, after(5)), NOW_MS)])
    assert (stored["state"], stored["readPosition"]) == ("active", "AFTER:5")
    assert {tuple(one) for one in (*found, stored)} == {
        tuple(status_of(SEEN).as_json()["shards"][0])
    }


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (one(**SPOUT), "no record has been acked yet"),
        (
            one(HOUR_MS, **SPOUT),
            "no record has failed; the number of records in flight is not known",
        ),
        (
            look(ONE, HERE, plan=plan(READ)),
            "no record has failed; 9 records of the current batch have no stored outcome",
        ),
        (look(ONE, owners=(), pin=None), "not known: the application has no state"),
    ],
)
def test_it_is_not_said_that_all_is_acked_while_records_are_out(seen: Look, says: str) -> None:
    """A spout stores nothing of those that its program has; a batch is settled at its end."""
    assert unresolved_sentence(status_of(seen)).startswith(says)


def stored(*records: object, **given: object) -> StoredApplication:
    states = {shard(0): state(0, after(9), unresolved=tuple(records))}
    return StoredApplication(**({"states": states} | given))  # type: ignore[arg-type]  # of the test


JOB: dict[str, Any] = {"owners": (OWNER,)}
SPOUTS: dict[str, Any] = {"owners": (spout_task(0, 2), spout_task(1, 2)), "total_tasks": 2}
SETTLED = plan(status=PlanStatus.SETTLED)
PENDING = failed(3, first_failure_ms=None, due_ms=0, attempts=0)
UNSETTLED, STORED = (
    "the outcomes of batch 7-ab are not stored yet",
    "outcomes of records were stored a moment ago",
)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        *(
            (None, stored(plan=plan(status=status), **JOB), UNSETTLED)
            for status in (PlanStatus.OPEN, PlanStatus.CLOSED)
        ),
        # A job whose last plan is settled rests, also with records that wait for their retry; and
        # one that has made no plan.
        (None, stored(failed(3), plan=SETTLED, **JOB), None),
        (None, stored(**JOB), None),
        # What changes does not: a driver that was about to plan, or a spout that commits.
        (stored(**JOB), stored(plan=SETTLED, **JOB), STORED),
        (stored(failed(3), **SPOUTS), stored(**SPOUTS), STORED),
        # A plan that Spark has left is none of a spout's business.
        (
            None,
            stored(PENDING, plan=plan(), **SPOUTS),
            "the spout's program has not acked or failed 1 record yet",
        ),
        (None, stored(failed(3), plan=plan(), **SPOUTS), None),
        # Without an owner all rests.
        (stored(), stored(plan=plan()), None),
    ],
)
def test_what_keeps_a_paused_application_from_its_rest(
    before: StoredApplication | None, now: StoredApplication, told: str | None
) -> None:
    assert unrest(before or now, now) == told
