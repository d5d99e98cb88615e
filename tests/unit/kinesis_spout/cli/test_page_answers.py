"""Which answer an address has."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

from kinesis_spout.cli.ui import MAX_OPEN, Observed, PageAnswers, Watcher
from kinesis_spout.testing import ManualClock


class MadeUp(Observed):
    """Observes what it was given."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def observe(self) -> dict[str, Any]:
        return self._data


def observed(data: dict[str, Any]) -> Watcher:
    watcher = Watcher(MadeUp(data), slow_s=1_000.0, clock=ManualClock())
    watcher.open()
    return watcher


def test_each_address_has_an_answer_and_hostile_ones_cost_no_more() -> None:
    watcher = observed({"kind": "application", "status": {"application": "etl"}})
    with closing(PageAnswers(watcher)) as answers:
        statuses = {
            target: int(answers.answer(target).status)
            for target in (
                "/",
                "/page.json",
                "/page.json?application=%00%ff&stream=other&shard=%3Cscript%3E",
                "/status.json",
                "/page.js",
                "/../etc/passwd",
                "/page.json?" + "&".join(["a=1"] * 99),
                "http://[",
                "*",
            )
        }
        assert [*statuses.values()] == [200] * 4 + [404] * 2 + [400] * 2 + [404]
        first, again = (answers.answer("/page.json") for _ in range(2))
        assert first.tag == again.tag
        assert json.loads(answers.answer("/status.json").body) == {"application": "etl"}


def test_an_application_of_the_list_is_opened_once_and_others_are_not_found() -> None:
    opened: list[str] = []

    def open_(application: str, stream: str) -> Watcher | None:
        if stream != "orders":
            return None
        opened.append(application)
        return observed({"kind": "application", "status": {"application": application}})

    first = observed({"kind": "applications", "applications": []})
    with closing(PageAnswers(first, open_)) as answers:
        names = [f"a{index}" for index in range(MAX_OPEN + 1)]
        for name in (*names, *names[1:]):
            answer = answers.answer(f"/page.json?application={name}&stream=orders")
            assert json.loads(answer.body)["status"]["application"] == name
        assert opened == names
        assert answers.answer("/page.json?application=a&stream=other").status == 404
        assert json.loads(answers.answer("/page.json").body)["kind"] == "applications"
