"""The page of a drill's verdict: what an engineer shows after a drill, and files with it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from kinesis_spout.drills.history.events import Step
from kinesis_spout.drills.history.lanes import first_put_ns, timeline
from kinesis_spout.drills.history.redeliveries import redeliveries
from kinesis_spout.html.element import element
from kinesis_spout.html.shell import document
from kinesis_spout.html.table import Column, table
from kinesis_spout.html.text import count, cut, plural, seconds
from kinesis_spout.html.timeline import Series
from kinesis_spout.html.timeline_picture import timeline_figure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kinesis_spout.drills.history.events import History, Told
    from kinesis_spout.drills.history.redeliveries import Redelivery
    from kinesis_spout.drills.history.verdict import Verdict
    from kinesis_spout.html.element import Element, Node
    from kinesis_spout.html.timeline import Lane, Timeline

MAX_ROWS = 100  # of a table
_MAX_PROMISE_CHARS = 600
_OF_PROMISES = frozenset({"lost", "out of order", "unexplained repeats", "to drain at the end"})
_NS = 1e9


def verdict_page(
    verdict: Verdict,
    history: History,
    about: Sequence[str] = (),
    again: Sequence[Redelivery] | None = None,
) -> str:
    """The page as text, to be stored as UTF-8. Its size depends on the number of shards up to some
    hundred, and on nothing else. `about`: lines for its end, such as the date and the versions.
    `again`: the history's redeliveries, if they are known already.
    """
    again = redeliveries(history) if again is None else again
    shown = timeline(history, verdict.faults, again)
    return document(
        f"{_title(verdict)}: {cut(verdict.drill)}",
        _banner(verdict),
        _figures(verdict),
        *_promises(verdict),
        element("h2", {}, "Shards over time"),
        timeline_figure(shown, "Shards over time"),
        *_faults(verdict),
        *_unexplained([one for one in again if not one.explained], first_put_ns(history)),
        *_letters(history),
        *_shards(shown),
        *_notes(verdict),
        element(
            "footer",
            {},
            element("p", {}, "Times count from the first put."),
            *(element("p", {}, line) for line in about),
        ),
    )


def _title(verdict: Verdict) -> str:
    if verdict.undone is not None:
        return "Not done"
    return "Kept" if verdict.ok else "Broken"


# the verdict --------------------------------------------------------------------------------------
def _banner(verdict: Verdict) -> Element:
    """A sign, a word and a colour say the same."""
    name, sign, says = (
        ("kept", "M19 33l9 9 17-19", "All promises were kept")
        if verdict.ok
        else ("broken", "M21 21l22 22M43 21L21 43", _broken(verdict))
    )
    return element(
        "header",
        {"class": f"verdict {name}"},
        element(
            "svg",
            {"viewBox": "0 0 64 64", "width": 56, "height": 56, "aria-hidden": "true"},
            element("circle", {"cx": 32, "cy": 32, "r": 30}),
            element("path", {"d": sign}),
        ),
        element(
            "div",
            {},
            element("p", {"class": "over"}, "Recovery drill ", _value(verdict.drill)),
            element("h1", {}, says),
            element("p", {}, _in_short(verdict)),
        ),
    )


def _broken(verdict: Verdict) -> str:
    if verdict.undone is not None:
        return "The drill could not do its work"
    if not verdict.broken:
        return "The drill did not end well"
    many = len(verdict.broken)
    return f"{plural(many, 'promise')} {'was' if many == 1 else 'were'} broken"


def _in_short(verdict: Verdict) -> str:
    if verdict.undone is not None:
        return f"{cut(verdict.undone, _MAX_PROMISE_CHARS)}. No promise was tested."
    faults = plural(len(verdict.faults), "fault")
    lost = "none was lost" if not verdict.lost else f"{count(verdict.lost)} were lost"
    took = [one.recovered_s for one in verdict.faults if one.recovered_s is not None]
    slowest = f" The slowest recovery took {seconds(max(took))}." if took else ""
    return f"{plural(verdict.records, 'record')} went through {faults}; {lost}.{slowest}"


def _figures(verdict: Verdict) -> Element:
    """What must be 0 is marked where it is not."""
    delays = verdict.delays
    median_s, p99_s = (None, None) if delays is None else (delays.median_s, delays.p99_s)
    figures = [
        ("records put", count(verdict.records), False),
        ("acked", count(verdict.acked), False),
        ("dead letters", count(verdict.letters), False),
        ("lost", count(verdict.lost), verdict.lost > 0),
        ("out of order", count(verdict.out_of_order), verdict.out_of_order > 0),
        ("unexplained repeats", count(verdict.unexplained), verdict.unexplained > 0),
        ("deliveries", count(verdict.deliveries), False),
        ("failures", count(verdict.failed), False),
        ("delivered again", count(verdict.duplicates), False),
        (
            "from put to delivery, median",
            _seconds(median_s),
            False,
        ),
        ("from put to delivery, 99 %", _seconds(p99_s), False),
        ("to drain at the end", _seconds(verdict.drained_s), False),
    ]
    hidden = _OF_PROMISES if verdict.undone is not None else frozenset[str]()
    return element(
        "dl",
        {"class": "figures"},
        *(
            element(
                "div",
                {"class": "bad"} if is_bad else {},
                element("dt", {}, name),
                element("dd", {}, figure),
            )
            for name, figure, is_bad in figures
            if name not in hidden
        ),
    )


def _promises(verdict: Verdict) -> Iterator[Element]:
    if verdict.broken:
        yield element("h2", {}, "Broken promises")
        yield element(
            "ul",
            {"class": "promises"},
            *(element("li", {}, cut(one, _MAX_PROMISE_CHARS)) for one in verdict.broken),
        )


def _notes(verdict: Verdict) -> Iterator[Element]:
    if verdict.notes:
        yield element("h2", {}, "Notes")
        yield element("ul", {}, *(element("li", {}, cut(one, 1000)) for one in verdict.notes))


# the tables ---------------------------------------------------------------------------------------
def _faults(verdict: Verdict) -> Iterator[Element]:
    yield element("h2", {}, "Faults")
    if not verdict.faults:
        yield element("p", {}, "Nothing was done to the job.")
        return
    numbered = list(enumerate(verdict.faults, start=1))
    chosen = sorted(numbered, key=lambda one: -(one[1].recovered_s or 0.0))[:MAX_ROWS]
    rows = [
        (
            element("span", {"class": "tag"}, str(number)),
            _value(one.fault),
            seconds(one.at_s),
            seconds(one.lasted_s),
            "nothing was due" if one.recovered_s is None else seconds(one.recovered_s),
            count(one.repeated),
        )
        for number, one in sorted(chosen, key=lambda each: each[0])
    ]
    columns = [
        Column("No.", number=True),
        Column("Fault"),
        Column("Began at", number=True),
        Column("Lasted", number=True),
        Column("Recovered after", number=True),
        Column("Records repeated", number=True),
    ]
    yield table(_most(rows, numbered, "fault", "with the slowest recoveries"), columns, rows)


def _unexplained(again: Sequence[Redelivery], began_ns: int) -> Iterator[Element]:
    if not again:
        return
    yield element("h2", {}, "Repeats without a reason")
    columns = [
        Column("Key and number"),
        Column("Shard"),
        Column("Sequence number"),
        Column("Came again", number=True),
        Column("In"),
        Column("Before that", number=True),
        Column("In"),
    ]
    rows = [
        (
            _value(f"{one.told.key} {one.told.number}"),
            _id(one.told.shard_id),
            _id(str(one.told.sequence) if one.told.sub is None else _numbers(one.told)),
            *_when(one.told, began_ns),
            *_when(one.since, began_ns),
        )
        for one in again[:MAX_ROWS]
    ]
    yield table(_most(rows, again, "repeat", "that came first"), columns, rows)


def _numbers(told: Told) -> str:
    return f"{told.sequence}.{told.sub}"


def _when(told: Told, began_ns: int) -> tuple[Node, Node]:
    return f"{told.step} at {seconds((told.at_ns - began_ns) / _NS)}", _id(told.run)


def _letters(history: History) -> Iterator[Element]:
    yield element("h2", {}, "Dead letters by reason")
    letters: dict[str, list[Told]] = defaultdict(list)
    for told in history.told:
        if told.step is Step.LETTER:
            letters[told.reason].append(told)
    if not letters:
        yield element("p", {}, "No record was dead-lettered.")
        return
    by_count = sorted(letters.items(), key=lambda one: (-len(one[1]), one[0]))
    rows = [
        (
            _value(reason or "no reason given", 300),
            count(len({told.record for told in found})),
            _attempts(found),
            _value(f"{found[0].key} {found[0].number}"),
        )
        for reason, found in by_count[:MAX_ROWS]
    ]
    columns = [
        Column("Reason"),
        Column("Records", number=True),
        Column("Attempts", number=True),
        Column("First: key and number"),
    ]
    yield table(_most(rows, by_count, "reason", "with the most records"), columns, rows)


def _attempts(letters: Sequence[Told]) -> str:
    least, most = (of(told.attempt for told in letters) for of in (min, max))
    return count(least) if least == most else f"{count(least)} to {count(most)}"


def _shards(shown: Timeline) -> Iterator[Element]:
    yield element("h2", {}, "Shards")
    if not shown.lanes:
        yield element("p", {}, "No shard was seen.")
        return
    totals = [_Totals.of(lane) for lane in shown.lanes]
    most = sorted(totals, key=lambda one: (-one.left, -one.letters, -one.again, -one.put))
    chosen = {one.lane.name for one in most[:MAX_ROWS]}
    columns = [
        Column("Shard"),
        Column("Parents"),
        Column("Created at", number=True),
        Column("Closed at", number=True),
        *(Column(name, number=True) for name in ("Put", "Delivered", "Again")),
        *(Column(name, number=True) for name in ("Failures", "Dead letters", "Not checkpointed")),
    ]
    rows = [one.cells() for one in totals if one.lane.name in chosen]
    yield table(_most(rows, totals, "shard", "with the most to tell"), columns, rows)
    if len(chosen) < len(totals):
        others = [one for one in totals if one.lane.name not in chosen]
        yield element(
            "p",
            {"class": "soft"},
            f"Left out: {plural(len(others), 'shard')}, in which "
            f"{plural(sum(one.put for one in others), 'record was', 'records were')} put.",
        )


class _Totals(NamedTuple):
    lane: Lane
    put: int
    read: int
    again: int
    failures: int
    letters: int
    left: int

    @classmethod
    def of(cls, lane: Lane) -> _Totals:
        def total(series: Series) -> int:
            return sum(many for _, many in lane.events.get(series, ()))

        return cls(
            lane,
            put=total(Series.PUT),
            read=total(Series.READ),
            again=total(Series.REPEATED),
            failures=total(Series.FAILED),
            letters=total(Series.DEAD_LETTER),
            left=total(Series.PUT) - total(Series.CHECKPOINTED),
        )

    def cells(self) -> tuple[Node, ...]:
        lane = self.lane
        return (
            _id(lane.name),
            _value(", ".join(lane.parents)) if lane.parents else "",
            "before" if lane.began_s < 0 else seconds(lane.began_s),
            "open" if lane.ended_s is None else seconds(lane.ended_s),
            *(count(one) for one in self[1:]),
        )


def _most(rows: Sequence[object], there: Sequence[object], one: str, which: str) -> str:
    """A table's caption."""
    if len(rows) == len(there):
        return plural(len(rows), one)
    return f"{count(len(rows))} of {plural(len(there), one)}: those {which}"


def _value(text: str, max_chars: int = 100) -> Element:
    """A name that somebody else gave: cut, and apart from the direction of the text around it."""
    return element("bdi", {"class": "value"}, cut(text, max_chars))


def _id(text: str) -> Element:
    """A name that is short as a rule, and is not broken over lines."""
    return element("bdi", {"class": "value id"}, cut(text, 40))


def _seconds(s: float | None) -> str:
    return "not measured" if s is None else seconds(s)
