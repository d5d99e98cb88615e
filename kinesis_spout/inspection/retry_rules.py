"""The rules about unresolved records: what they wait for, and what waits for them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.config import duration
from kinesis_spout.inspection.cause import (
    THE_JOB,
    THE_NEXT_RULE,
    Act,
    Advice,
    Cause,
    has_reader,
    is_at_end,
)
from kinesis_spout.inspection.health import READ_PHASES
from kinesis_spout.inspection.outage import outage_until_ms
from kinesis_spout.inspection.owner_rules import (
    CORRECT_SINK,
    is_exhausted,
    refusal_told,
    retry_policy,
    run_of,
)
from kinesis_spout.inspection.run_rules import ANSWERS, WORKER
from kinesis_spout.inspection.wording import moment, quoted, records, short_shard, shortened
from state.report import OnFailure
from state.shard_state import TIMED_OUT
from state.tracker.inflight_record_tracker import UNANSWERED

if TYPE_CHECKING:
    from kinesis_spout.inspection.health import Look
    from state.shard_state import ShardState, UnresolvedRecord


ANSWER_IN_TIME = Advice(
    Act.CHANGE,
    "see what the program, or the command of --exec, does with a record that it has: restart it if "
    "it hangs, make it ack or fail each record, and, where it answers later than "
    "--message-timeout (message_timeout_s; 30 s unless set), make it faster or raise that",
    mends=ANSWERS,
    is_urgent=True,
)
ENDS_ITS_PROCESS = Advice(
    Act.LOOK,
    "see whether the record ends the process that gets it, by its memory or a fault of the program",
    mends=WORKER,
)


def held_by_order(look: Look, shard_id: str) -> Cause | None:
    """A failed record, of the shard or of an ancestor, blocks the shard: no new one is read."""
    policy, state = look.now.stored.policy, look.now.states.get(shard_id)
    if (
        policy is None
        or policy.on_failure is OnFailure.CONTINUE
        or state is None
        or look.phase(shard_id) not in READ_PHASES
        or not has_reader(look, shard_id)
    ):
        return None
    blocks_shard = policy.on_failure is OnFailure.BLOCK_SHARD
    ancestor = look.now.held_by.get(shard_id)
    if ancestor is not None:
        return Cause(
            kind="held by an ancestor",
            about=shard_id,
            says=f"no new record is read while records of shard {short_shard(ancestor)}, which it "
            f"continues, wait: the job keeps their order ({policy.on_failure.value})",
            leads_to=ancestor,
        )
    if not blocks_shard or not state.unresolved:
        return None
    return Cause(
        kind="held by a record",
        about=shard_id,
        says="no new record is read while one of it waits: the job keeps their order "
        f"({policy.on_failure.value})",
        leads_to=THE_NEXT_RULE,
    )


def waits_for_ancestor(look: Look, shard_id: str) -> Cause | None:
    policy, state = look.now.stored.policy, look.now.states.get(shard_id)
    ancestors = look.now.unresolved_ancestors.get(shard_id, ())
    if (
        policy is None
        or policy.on_failure is OnFailure.CONTINUE
        or not ancestors
        or state is None
        or not state.unresolved
        or not _asks_for_retries(look, shard_id)
        or not has_reader(look, shard_id)
    ):
        return None
    keys = {one.key for one in look.now.states[ancestors[0]].unresolved}
    waits = (
        policy.on_failure is OnFailure.BLOCK_SHARD
        or None in keys
        or any(one.key is None or one.key in keys for one in state.unresolved)
    )
    if not waits:
        return None
    return Cause(
        kind="order over a reshard",
        about=shard_id,
        says=f"holds {records(state.unresolved_count)} that wait for earlier ones of shard "
        f"{short_shard(ancestors[0])}: the job keeps their order ({policy.on_failure.value})",
        leads_to=ancestors[0],
    )


class Besides(NamedTuple):
    """A clause about a shard's unresolved records, and what to do; both empty where it has none."""

    says: str = ""
    advice: tuple[Advice, ...] = ()


def unresolved_besides(look: Look, shard_id: str) -> Besides:
    """What else is to be said of a shard that has more to read, and so is held by none of them."""
    state = look.now.states.get(shard_id)
    if state is None or not state.unresolved:
        return Besides()
    refused = look.now.refused_letters_for(shard_id)
    if refused is not None:
        told = refusal_told(look, refused)
        return Besides(f"; besides, it holds {_held(state)}: {told}", (CORRECT_SINK,))
    record = _first_to_go(look, state)
    return Besides(
        f"; besides, it holds {_held(state)}{_told(look, state, record)}",
        ()
        if outage_until_ms(look, shard_id) is not None
        else _correct_what_is_seen(shard_id, record),
    )


def letters_wait(look: Look, shard_id: str) -> Cause | None:
    """The shard's records wait for their dead letters, which are refused."""
    state, refused = look.now.states.get(shard_id), look.now.refused_letters_for(shard_id)
    if (
        state is None
        or refused is None
        or not _asks_for_retries(look, shard_id)
        or not has_reader(look, shard_id)
    ):
        return None
    return Cause(
        kind="letters refused",
        about=shard_id,
        says=f"holds {_held(state)}: {refusal_told(look, refused)}",
        advice=(CORRECT_SINK, *_given_up_reason(state)),
    )


def retries(look: Look, shard_id: str) -> Cause | None:
    state = look.now.states.get(shard_id)
    if state is None or not state.unresolved or not _asks_for_retries(look, shard_id):
        return None
    record = _first_to_go(look, state)
    read = "was read to its end, but holds" if is_at_end(look, shard_id) else "holds"
    says = f"{read} {_held(state)}"
    whole = f"{says}{_told(look, state, record)}"
    if not has_reader(look, shard_id):
        return Cause(
            kind="retries",
            about=shard_id,
            says=whole,
            advice=() if _is_given_up(look, shard_id, record) else _correct(record),
            leads_to=THE_JOB,
        )
    if _is_under_way(look, shard_id, record):
        return Cause(
            kind="retry under way",
            about=shard_id,
            says=f"{whole}; the batch under way delivers it",
            advice=()
            if outage_until_ms(look, shard_id) is not None
            else _correct_what_is_seen(shard_id, record),
            leads_to=THE_JOB,
        )
    if look.now.is_spout and record.first_failure_ms is None:
        return _unanswered(look, state, record, says)
    if _is_given_up(look, shard_id, record):
        when = "next" if look.now.is_spout else "with the next batch"
        return Cause(
            kind="to be dead-lettered",
            about=shard_id,
            says=f"{whole}; it goes to the dead letters {when}",
            advice=(
                Advice(Act.WAIT, "wait until its letter is written"),
                Advice(
                    Act.LOOK,
                    "if it stays so, read in the log why its letter cannot be written: it is "
                    "acked only with its letter",
                ),
            ),
            leads_to=THE_JOB,
        )
    return _waits_for_its_time(look, state, record, whole)


def keeps_the_end(look: Look, shard_id: str) -> Cause | None:
    """A record that the program of a spout has, and that is all that is left of a closed shard: its
    end, and its children, come once the record was answered.
    """
    state, tip = look.now.states.get(shard_id), look.tips.get(shard_id)
    if state is None or tip is None or tip.next_ms is not None or not look.now.is_spout:
        return None
    out = [one for one in state.unresolved if one.first_failure_ms is None and not one.reason]
    if not out or is_at_end(look, shard_id) or not has_reader(look, shard_id):
        return None
    says = (
        "is closed, and all its records were read; its end, and so its children, come once each is "
        f"answered, and it holds {_held(state)}"
    )
    return _unanswered(look, state, out[0], says)


def _unanswered(look: Look, state: ShardState, record: UnresolvedRecord, says: str) -> Cause:
    shard_id, failing = state.shard_id, _failing_besides(look, state)
    return Cause(
        kind="unanswered",
        about=shard_id,
        says=f"{says}; record {_number(record)} was delivered, and nobody has answered yet"
        f"{_out_since(look, shard_id, record)}{failing.says}",
        advice=(*_answer(look, shard_id, record), *failing.advice),
    )


def _waits_for_its_time(
    look: Look, state: ShardState, record: UnresolvedRecord, says: str
) -> Cause:
    now_ms, shard_id = look.now.now_ms, state.shard_id
    if record.due_ms <= now_ms or outage_until_ms(look, shard_id) is not None:
        return Cause(
            kind="retry due" if record.due_ms <= now_ms else "retry in an outage",
            about=shard_id,
            says=says,
            advice=_beside_waiting(look, shard_id, record),
            leads_to=THE_JOB,
        )
    wait = Advice(
        Act.WAIT,
        f"or, if a retry may cure it: wait until {moment(record.due_ms, now_ms)}, when it is tried "
        "again"
        if _correct(record)
        else f"wait until {moment(record.due_ms, now_ms)}, when it is tried again",
        until_ms=record.due_ms,
    )
    return Cause(
        kind="retry waits",
        about=shard_id,
        says=says,
        advice=(
            *(_correct_what_is_seen(shard_id, record) or (wait, _see(shard_id, record))),
            *((wait,) if _correct(record) else ()),
            *_other_ways(look, shard_id, record),
        ),
    )


def _answer(look: Look, shard_id: str, record: UnresolvedRecord) -> tuple[Advice, ...]:
    """A record that was out all the time is rather kept than worked on."""
    owner = look.now.owner_of(shard_id)
    run = None if owner is None else run_of(look, owner)
    timeout_ms = None if run is None else run.message_timeout_ms
    told = "message_timeout_s or --message-timeout fails it, 30 s unless set"
    if timeout_ms:
        told = f"message_timeout_s, or --message-timeout, fails it after {duration(timeout_ms)}"
    elif timeout_ms == 0:
        told = "there is no message_timeout_s that would fail it"
    wait = Advice(Act.WAIT, f"wait for its ack or failure ({told})")
    see = Advice(
        Act.LOOK,
        "see why the program, or the command of --exec, keeps the record: it may hang",
        mends=ANSWERS,
    )
    return (see, wait) if _out_since(look, shard_id, record) else (wait, see)


def _is_under_way(look: Look, shard_id: str, record: UnresolvedRecord) -> bool:
    planned = look.now.planned.get(shard_id)
    return planned is not None and any(
        one.first <= record.first <= one.end for one in planned.slice.retries
    )


def _asks_for_retries(look: Look, shard_id: str) -> bool:
    """Whether what is left of the shard are its unresolved records: nothing else is to be read, or
    they hold it.
    """
    return (
        is_at_end(look, shard_id)
        or look.keeps_up(shard_id) is True
        or held_by_order(look, shard_id) is not None
    )


def _first_to_go(look: Look, state: ShardState) -> UnresolvedRecord:
    """The record on which the others wait, or which is due first."""
    policy = look.now.stored.policy
    ordered = sorted(state.unresolved, key=lambda one: one.first)
    if policy is None or policy.on_failure is OnFailure.CONTINUE:
        return min(ordered, key=lambda one: one.due_ms)
    if policy.on_failure is OnFailure.BLOCK_SHARD:
        return ordered[0]
    heads: dict[str | None, UnresolvedRecord] = {}
    for one in ordered:
        if None in heads:
            break
        if one.key is not None or not heads:  # an unknown key waits for all before it
            heads.setdefault(one.key, one)
    return min(heads.values(), key=lambda one: one.due_ms)


def _is_given_up(look: Look, shard_id: str, record: UnresolvedRecord) -> bool:
    return record.rejected or is_exhausted(retry_policy(look, shard_id), look, record)


def _given_up_reason(state: ShardState) -> tuple[Advice, ...]:
    """What made the records dead letters. Their letters keep it, so it comes second."""
    reason = next((one.reason for one in state.unresolved if one.reason), None)
    if reason is None:
        return ()
    what = f"correct what fails with {quoted(reason)}, or more records end so"
    return (Advice(Act.CHANGE, what),)


def _held(state: ShardState) -> str:
    verb = "is" if state.unresolved_count == 1 else "are"
    return f"{records(state.unresolved_count)} that {verb} not acked"


def _failing_besides(look: Look, state: ShardState) -> Besides:
    """The records that failed, beside those that are out with the program."""
    failing = [one for one in state.unresolved if one.reason]
    if not failing:
        return Besides()
    first = min(failing, key=lambda one: one.due_ms)
    count = sum(one.count for one in failing)
    return Besides(
        f"; {count:,} of them failed ({_record_told(look, state.shard_id, first)})",
        (Advice(Act.CHANGE, f"correct what fails with {quoted(first.reason or '')}"),),
    )


def _out_since(look: Look, shard_id: str, record: UnresolvedRecord) -> str:
    """Since when the record is out, at the latest: the history tells it of a shard's first one, the
    look itself of all. Nothing where neither does.
    """
    was = look.before.states.get(shard_id)
    known = [] if was is None or record not in was.unresolved else [look.before.now_ms]
    state, held_ms = look.now.states[shard_id], look.now.stored.held_since_ms.get(shard_id)
    if held_ms is not None and state.unresolved[0].first == record.first:
        known.append(held_ms)
    if not known or min(known) >= look.now.now_ms:
        return ""
    ago = duration(look.now.now_ms - min(known))
    return f"; it is out since {moment(min(known), look.now.now_ms)} or earlier ({ago} at least)"


def _told(look: Look, state: ShardState, record: UnresolvedRecord) -> str:
    """`: record ..123 is on attempt 3 of 4, due 14:02:10, failing with 'no rates'`. Where others
    wait behind those that failed, how many of each there are.
    """
    told = _record_told(look, state.shard_id, record)
    policy = look.now.stored.policy
    waiting = sum(one.count for one in state.unresolved if one.blocked)
    failed = state.unresolved_count - waiting
    if policy is None or policy.on_failure is OnFailure.CONTINUE or not waiting or not failed:
        return f": {told}"
    others = "1 other waits" if waiting == 1 else f"{waiting:,} others wait"
    behind = "it" if failed == 1 else "them"
    if policy.on_failure is OnFailure.BLOCK_KEY:
        keys = {one.key for one in state.unresolved if not one.blocked}
        behind = "its key" if len(keys) == 1 else "their keys"
    return f": {records(failed)} failed ({told}); {others} behind {behind}, and did not fail"


def _record_told(look: Look, shard_id: str, record: UnresolvedRecord) -> str:
    if record.first_failure_ms is None and not record.reason:
        return f"record {_number(record)} was delivered, and never answered"
    policy = retry_policy(look, shard_id)
    of = "" if policy is None else f" of {policy.retry_limit + 1}"
    attempt = f"is on attempt {record.attempts + 1}{of}"
    if _is_given_up(look, shard_id, record):
        attempt = "is rejected" if record.rejected else f"failed {record.attempts} times"
    due = f", due {moment(record.due_ms, look.now.now_ms)}" if record.due_ms else ""
    if record.due_ms and record.due_ms <= look.now.now_ms:
        due = ", due now"
    why = f", failing with {quoted(record.reason)}" if record.reason else ""
    if record.reason == TIMED_OUT:
        why = ", as its program did not answer within its timeout (message_timeout_s)"
        why += _none_acked(look, shard_id)
    if record.blocked:
        why = ", held back by an earlier record"
    old_ms = None if record.first_failure_ms is None else look.now.now_ms - record.first_failure_ms
    gone = (
        "; it failed first so long ago that the stream no longer keeps it"
        if old_ms is not None and old_ms > look.now.stream.retention_ms
        else ""
    )
    letter = ""
    if look.now.was_spout and not _is_given_up(look, shard_id, record) and not record.blocked:
        letter = "; after its last attempt it is a dead letter"
    return f"record {_number(record)} {attempt}{due}{why}{letter}{gone}"


def _number(record: UnresolvedRecord) -> str:
    return shortened(str(record.first))


def _beside_waiting(look: Look, shard_id: str, record: UnresolvedRecord) -> tuple[Advice, ...]:
    if outage_until_ms(look, shard_id) is not None:
        return ()
    see = _see(shard_id, record)
    return (*_correct(record), see, *_other_ways(look, shard_id, record))


def _none_acked(look: Look, shard_id: str) -> str:
    """That no answer came at all during the look, as far as the checkpoint tells."""
    was, state = look.before.states.get(shard_id), look.now.states[shard_id]
    if was is None or not look.window_ms or was.checkpoint_text != state.checkpoint_text:
        return ""
    return f"; nor did the checkpoint move in {duration(look.window_ms)}"


def _correct(record: UnresolvedRecord) -> tuple[Advice, ...]:
    if not record.reason:
        return ()
    if record.reason == TIMED_OUT:
        return (ANSWER_IN_TIME,)
    if record.reason.startswith(UNANSWERED):  # nothing is known against the record of one attempt
        return (ENDS_ITS_PROCESS,) if record.attempts > 1 else ()
    return (Advice(Act.CHANGE, f"correct what fails with {quoted(record.reason)}"),)


def _correct_what_is_seen(shard_id: str, record: UnresolvedRecord) -> tuple[Advice, ...]:
    """Of a record that holds nothing but itself: it gets its retries meanwhile."""
    deed = _correct(record)
    return (*deed, _see(shard_id, record)) if deed else ()


def _see(shard_id: str, record: UnresolvedRecord) -> Advice:
    return Advice(Act.LOOK, "see the record", ("peek", shard_id, str(record.first.whole)))


def _other_ways(look: Look, shard_id: str, record: UnresolvedRecord) -> tuple[Advice, ...]:
    return (
        *_dead_letter(look),
        Advice(
            Act.RUN,
            "or, if the record is not needed: stop the job and give the record up",
            ("checkpoint", "skip", "--shard", shard_id, str(record.first)),
        ),
    )


def _dead_letter(look: Look) -> tuple[Advice, ...]:
    """Nothing for a spout: what it does with its letters is its program's matter."""
    if look.now.was_spout:
        return ()
    says = (
        "or, once it is a dead letter after its last attempt: put it back (PATH: where its "
        "DeadLetter writes)"
    )
    return (Advice(Act.RUN, says, ("redrive", "PATH")),)
