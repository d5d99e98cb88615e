"""The status of an application: its order, its sentences, its JSON, and its screen."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from kinesis_spout.cli.inspection.status_screen import status_screen
from kinesis_spout.inspection.health import Health, Look
from kinesis_spout.inspection.status import (
    owners_sentence,
    plan_sentence,
    status_of,
    verdict_sentence,
)
from kinesis_spout.inspection.wording import moment
from state.plan import PlanStatus
from state.position import SHARD_END, TRIM_HORIZON
from state.report import OnFailure, OutcomePolicy, ReportStatus
from state.task_log import TaskLog
from tests.support.inspection.looks import (
    AT_TIP,
    HOUR_MS,
    NOW_MS,
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
    spout_task,
    state,
    task,
)

if TYPE_CHECKING:
    from kinesis_spout.service.shard_info import ShardInfo
    from state.shard_state import ShardState

LONG = 49671348173948173948173948173948173948173948173940001234
PARTS = (
    listed(0, closed=True),
    listed(1),
    listed(2),
    listed(3, 0),
    state(0, SHARD_END, unresolved=(failed(3, attempts=2), failed(4))),
    state(1, after(LONG)),
    state(2, after(LONG), verified_until_ms=NOW_MS - 4 * HOUR_MS),
    state(3, TRIM_HORIZON, 0, verified_until_ms=NOW_MS - 1_000),
)
SEEN = look(*PARTS, tips={1: AT_TIP, 2: behind(4 * HOUR_MS)})


def printed(seen: Look, *, width: int, most: int | None = 20) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(status_screen(status_of(seen), width=width, most=most), highlight=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_worst_shards_come_first() -> None:
    found = status_of(SEEN)
    assert [(one.shard_id, one.health.value) for one in found.shards] == [
        (shard(2), "stalled"),
        (shard(3), "ok"),
        (shard(0), "ok"),
        (shard(1), "ok"),
    ]
    assert found.verdict is Health.STALLED
    assert verdict_sentence(found) == (
        "1 of 4 shards stands still, though there is something to read or to retry"
    )


def test_the_screen_fits_eighty_columns_and_shows_more_in_wider_ones() -> None:
    narrow, wide = printed(SEEN, width=80), printed(SEEN, width=120)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "20 h" in narrow
    assert ".." in narrow
    assert shard(2) in wide
    assert f"..{str(LONG)[-12:]}" in wide
    assert max(len(line.rstrip()) for line in wide.splitlines()) <= 120


def test_ten_thousand_shards_are_a_summary_and_the_worst() -> None:
    count = 10_000
    parts: list[ShardInfo | ShardState] = [
        *map(listed, range(count)),
        *(state(index, after(5)) for index in range(count)),
    ]
    text = printed(look(*parts, tips={7: behind(HOUR_MS), 8: AT_TIP}), width=80)
    assert len(text.splitlines()) < 32
    assert text.splitlines()[8].split()[:2] == ["7", "stalled"]
    assert text.splitlines()[-1] == "9,979 more are unknown; 1 more is ok (--all shows them)"
    assert "10,000 readable" in text


def test_the_json_has_every_shard_and_no_text_for_people() -> None:
    found = json.loads(json.dumps(status_of(SEEN).as_json()))
    assert found["verdict"] == "stalled"
    assert found["health"] == {"stalled": 1, "ok": 3}
    assert found["windowMs"] == 10_000
    by_id = {one["shardId"]: one for one in found["shards"]}
    assert by_id[shard(0)] | {"readPosition": None} == {
        "shardId": shard(0),
        "health": "ok",
        "state": "drained",
        "readPosition": None,
        "checkpoint": None,
        "waitsFor": [],
        "lagMs": None,
        "lagMeasured": False,
        "lostInMs": None,
        "unresolved": 2,
        "oldestMs": 120_000,
        "attempts": 2,
        "speed": None,
    }
    assert by_id[shard(2)]["lostInMs"] == 20 * HOUR_MS


def test_shards_that_were_not_asked_do_not_spoil_the_verdict() -> None:
    """They are counted beside it."""
    found = status_of(look(*PARTS, tips={1: AT_TIP}))
    assert (found.verdict, found.not_asked) == (Health.OK, 1)
    assert verdict_sentence(found).endswith("1 of 4 shards was not asked")


def test_nothing_is_ok_of_which_nothing_is_known() -> None:
    """Why is said; a stream that was created again is no place for the state that is stored."""
    seen = look(listed(1), state(1, after(5)))
    for one, why in (
        (seen, "none told its tip"),
        (replace(seen, refused="no right"), "the service refused to tell their tips"),
    ):
        found = status_of(one)
        assert found.verdict is Health.UNKNOWN
        assert verdict_sentence(found) == f"nothing is known of 1 shard: {why}"
    other = RECREATED
    found = status_of(look(listed(1), state(1, after(5)), tips={1: AT_TIP}, identity=other))
    assert found.verdict is Health.UNKNOWN
    assert verdict_sentence(found) == "its state belongs to a stream that had this name before"


def test_an_application_that_keeps_up_and_does_not_run_is_said_not_to_run() -> None:
    found = status_of(look(listed(1), state(1, after(5)), tips={1: AT_TIP}, owners=()))
    assert verdict_sentence(found).endswith("; no process runs it now")


def test_owners_are_said_with_what_is_missing() -> None:
    assert owners_sentence(look()) == "process 42 on host-a, since 07:00:00 (60 min)"
    assert owners_sentence(look(owners=())) == "none: no process runs the application now"
    tasks = look(owners=(spout_task(0, 3), spout_task(2, 3)), total_tasks=3)
    assert owners_sentence(tasks) == (
        "2 of 3 spout tasks, on host-a, the oldest since 07:00:00 (60 min); task 1 missing"
    )


def test_the_plan_is_said_with_its_tasks_and_its_report() -> None:
    one = state(1, after(5))
    sealed = task(slice_of(one), log=TaskLog(entries=(read_of(1, 9),), sealed=True))
    made = plan(sealed, task(number=1), report=ReportStatus.OPEN)
    assert plan_sentence(look(plan=made)) == (
        "7-ab open, made 5.0 s ago: 1 of 2 tasks have published all (9 records so far)"
    )
    settled = plan(status=PlanStatus.SETTLED)
    assert plan_sentence(look(plan=settled)) == "7-ab settled, made 5.0 s ago"
    assert plan_sentence(look(plan=settled, owners=(spout_task(0, 1),), total_tasks=1)) is None


def test_a_lag_is_an_upper_bound_unless_the_service_was_asked() -> None:
    """A shard that was at its tip at the time of the look lags by nothing."""
    parts = (
        listed(1),
        listed(2),
        listed(3),
        state(1, after(5), verified_until_ms=NOW_MS),
        state(2, after(5), verified_until_ms=NOW_MS - 5_000),
        state(3, after(5)),
    )
    lines = printed(look(*parts, tips={3: behind(5_000)}), width=80).splitlines()
    lags = {line.split()[0]: line.split()[4:6] for line in lines[-3:]}
    assert lags == {"1": ["tip", "-"], "2": ["<5.0", "s"], "3": ["5.0", "s"]}
    assert "every record that was read is acked" in "".join(lines)


def test_a_paused_application_is_said_to_be_paused() -> None:
    said = printed(look(*PARTS, paused=True), width=120)
    assert "paused       yes by ann on host-a, since " in said
    words = " ".join(said.split())
    assert "(60 min), because of 'deploy': it reads nothing; end it with kinesis-spout" in words
    (told,) = [status_of(look(*PARTS, paused=True)).as_json()["pause"]]
    assert told == {"by": "ann on host-a", "sinceMs": PAUSE.since_ms, "reason": "deploy"}
    assert "paused" not in printed(SEEN, width=120)


def test_an_error_of_the_service_is_text_and_not_markup() -> None:
    """It may quote anything."""
    console = Console(file=io.StringIO(), width=120)
    refused = replace(SEEN, refused="[red]not[/] yours")
    console.print(status_screen(status_of(refused), width=120, most=None))
    assert isinstance(console.file, io.StringIO)
    assert "not asked    [red]not[/] yours" in console.file.getvalue()


def test_three_thousand_generations_are_judged_without_recursion() -> None:
    """Each shard is as healthy as its parents."""
    count = 3_000
    parts: list[ShardInfo | ShardState] = [
        *(listed(index, *([index - 1] if index else []), closed=True) for index in range(count)),
        *(state(index, after(5), *([index - 1] if index else [])) for index in range(count)),
    ]
    seen = look(*parts, tips={0: behind(HOUR_MS)})
    assert {one.health for one in status_of(seen).shards} == {Health.STALLED}


def test_nothing_is_known_of_the_shards_of_an_unknown_application() -> None:
    """They are not ok: nobody reads them. Asking them would not help."""
    found = status_of(look(listed(0), listed(1), pin=None))
    assert [one.health for one in found.shards] == [Health.UNKNOWN] * 2
    assert (found.verdict, found.not_asked) == (Health.UNKNOWN, 0)
    assert "unknown: it has no state" in printed(look(listed(0), pin=None), width=80)


def test_an_idle_shard_with_a_retry_has_no_speed() -> None:
    """It has read nothing because there was nothing, however its time of verification moved."""
    was = state(1, after(5), verified_until_ms=NOW_MS - 12_000)
    now = state(1, after(5), verified_until_ms=NOW_MS - 1_000, unresolved=(failed(3),))
    (idle,) = status_of(look(listed(1), now, before=(was,))).shards
    assert (idle.health, idle.lag_ms, idle.speed) == (Health.OK, 1_000, None)
    behind_now = look(listed(1), now, before=(was,), tips={1: behind(HOUR_MS)})
    (stands,) = status_of(behind_now).shards
    assert stands.speed is not None


# the headline names what holds up ----------------------------------------------------------------
def headline(seen: Look) -> str:
    return verdict_sentence(status_of(seen))


FAMILY = (listed(0, closed=True), listed(1, 0), listed(2, 0), state(1, after(0), 0))


def test_children_that_wait_are_not_said_to_be_behind() -> None:
    """Their parent is."""
    now, before = state(0, after(9)), state(0, after(5))
    seen = look(*FAMILY, now, before=(before,), tips={0: behind(60_000)})
    assert seen.verdict is Health.LAGGING
    assert headline(seen) == "1 of 3 shards is 60 s behind; 2 others wait for it"
    stands = look(*FAMILY, now, tips={0: behind(60_000)})
    assert headline(stands) == (
        "1 of 3 shards stands still, though there is something to read or to retry; 2 others wait "
        "for it"
    )


def test_a_parent_whose_end_alone_is_not_read_is_not_said_to_be_behind() -> None:
    parts = (*FAMILY, state(0, after(9)))
    seen = look(*parts, before=(state(0, after(5)),), tips={0: AT_TIP})
    assert seen.verdict is Health.LAGGING
    assert headline(seen) == (
        "1 of 3 shards is closed, and its end is not read yet; 2 others wait for it"
    )


def test_a_new_shard_that_nobody_tracks_is_not_said_to_be_behind() -> None:
    seen = look(listed(0), listed(1), state(0, after(1)), tips={0: AT_TIP})
    assert seen.verdict is Health.LAGGING
    assert headline(seen) == "1 of 2 shards is listed, and has no state yet"


def test_a_shard_that_is_held_by_failed_records_of_another_names_it() -> None:
    seen = look(
        listed(0, closed=True),
        listed(1, 0),
        state(0, SHARD_END, unresolved=(failed(3),)),
        state(1, after(5), 0),
        policy=OutcomePolicy(on_failure=OnFailure.BLOCK_SHARD),
        tips={1: behind(60_000)},
    )
    assert headline(seen) == (
        "1 of 2 shards stands still, though there is something to read or to retry, and waits for "
        "shard 0 to have its failed records resolved"
    )


def test_the_headline_says_that_a_position_stands_still_on_purpose() -> None:
    paused = look(listed(1), state(1, after(5)), tips={1: behind(60_000)}, paused=True)
    assert verdict_sentence(status_of(paused)) == "it is paused: 1 of 1 shard is 60 s behind"
    trigger = look(
        listed(1),
        state(1, after(5)),
        tips={1: behind(60_000)},
        log=run_log(HOUR_MS, trigger_ms=6 * HOUR_MS),
    )
    due = moment(NOW_MS // (6 * HOUR_MS) * 6 * HOUR_MS + 6 * HOUR_MS, NOW_MS)
    assert verdict_sentence(status_of(trigger)) == (
        f"the next batch is due about {due}, by its trigger: 1 of 1 shard is 60 s behind"
    )


def test_the_headline_says_that_unread_records_expire_soon() -> None:
    """Where less time is left than has passed since they came."""
    seen = look(listed(1), state(1, after(5)), tips={1: behind(23 * HOUR_MS)}, owners=())
    assert verdict_sentence(status_of(seen)).endswith("; unread records expire in 60 min")
    young = look(listed(1), state(1, after(5)), tips={1: behind(HOUR_MS)}, owners=())
    assert "expire" not in verdict_sentence(status_of(young))
