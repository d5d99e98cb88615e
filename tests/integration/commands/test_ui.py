"""`kinesis-spout ui` as users run it: beside a consumer at work, on a FakeKinesis and a real
ZooKeeper.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.testing import error
from state.retry_policy import RetryPolicy
from tests.support.html.parsed_page import ParsedPage, get, page_json
from tests.support.kinesis.services import serve
from tests.support.shell.consuming import LIMIT_S, run, running
from tests.support.spout.spouts import spout_on
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake

HOSTILE = "<script>alert('no rates')</script>"


@pytest.fixture(scope="module")
def orders() -> Iterator[ServedFake]:
    with serve() as fake:
        fake.model.create("orders", shards=2)
        for number in range(20):
            fake.model.put("orders", str(number), b"data")
        yield fake


@pytest.fixture(scope="module")
def words(orders: ServedFake, zookeeper: str) -> list[str]:
    """The command, and where the application is."""
    place = ("--application", "etl", "--stream", "orders", "--zookeeper", f"{zookeeper}/test-ui")
    return ["ui", "--port", "0", "--window", "2s", *place]


@pytest.fixture(scope="module")
def consumer(orders: ServedFake, zookeeper: str) -> Iterator[None]:
    """A spout at work on two shards. One record fails, and waits long for its retry."""
    retry = RetryPolicy(retry_limit=100, first_delay_ms=600_000, max_delay_ms=600_000)
    spout = spout_on(orders, application="etl", zookeeper=f"{zookeeper}/test-ui", retry=retry)
    ends, seen = threading.Event(), threading.Semaphore(0)

    def consume() -> None:
        with spout:
            for emission in spout.emissions(ends.is_set):
                if emission.partition_key == "7":
                    emission.fail(HOSTILE)
                else:
                    emission.ack()
                seen.release()

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        for _ in range(20):
            assert seen.acquire(timeout=60)
        yield
    finally:
        ends.set()
        thread.join(60)


@pytest.fixture(scope="module")
def url(consumer: None, words: list[str], orders: ServedFake) -> Iterator[str]:
    """The address that a running command has printed, once it has seen the record that fails.
    SIGTERM ends it.
    """
    with running(orders, *words) as process:
        assert process.stdout is not None
        printed = process.stdout.readline().strip()
        wait_until(lambda: page_json(printed)["records"]["list"] != [])
        yield printed
        process.terminate()
        assert process.wait(LIMIT_S) == 143


def test_a_consumer_at_work_is_seen_while_it_continues(url: str) -> None:
    """Its verdict, its shards, and the record that fails, with its reason."""
    assert url.startswith("http://127.0.0.1:")
    assert get(url)[0] == 200
    data = page_json(url)
    assert (data["kind"], data["status"]["verdict"]) == ("application", "ok")
    assert len(data["lanes"]) == 2
    found = json.loads(get(url, "/status.json")[1])
    assert (found["application"], len(found["shards"])) == ("etl", 2)
    holder = next(one["shardId"] for one in found["shards"] if one["unresolved"])
    detail = page_json(url, shard=holder)["shard"]
    assert detail["records"]["list"][0]["reason"] == HOSTILE
    assert detail["explain"][0]["shards"] == [holder]
    assert page_json(url, shard="99")["shard"] is None


def test_without_an_application_the_page_begins_with_all_of_them(
    consumer: None, words: list[str], orders: ServedFake, tmp_path: Path
) -> None:
    """Each opens with its own data. A file has the list alone."""
    place = words[words.index("--zookeeper") :]
    with running(orders, "ui", "--port", "0", "--window", "2s", *place) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        data = page_json(url)
        assert data["kind"] == "applications"
        named = [(one["application"], one["stream"]) for one in data["applications"]]
        assert named == [("etl", "orders")]

        def opened() -> dict[str, Any]:
            found: dict[str, Any] = page_json(url, application="etl", stream="orders")
            return found

        wait_until(lambda: opened()["kind"] == "application")
        assert opened()["status"]["application"] == "etl"
        assert get(url, "/page.json?application=etl&stream=another")[0] == 404
        process.terminate()
        assert process.wait(LIMIT_S) == 143
    ended = run(orders, "ui", "--once", str(tmp_path / "all.html"), "--window", "2s", *place)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (
        ParsedPage((tmp_path / "all.html").read_text()).data["applications"][0]["stream"]
        == "orders"
    )


def test_while_kinesis_does_not_answer_the_last_observation_is_shown(
    url: str, orders: ServedFake
) -> None:
    """With the reason, until it answers again."""
    assert page_json(url)["trouble"] is None
    denied = error("AccessDeniedException", "not for you")
    orders.model.faults.add(denied, operation="ListShards", times=None)
    wait_until(lambda: page_json(url)["trouble"] is not None, timeout_s=90)
    status, text = get(url, "/status.json")
    assert (status, json.loads(text)["application"]) == (503, "etl")
    assert "ListShards" in page_json(url)["trouble"]["says"]
    orders.model.faults.clear()
    wait_until(lambda: page_json(url)["trouble"] is None, timeout_s=90)
    assert get(url, "/status.json")[0] == 200


def test_a_page_in_a_file_and_letters_by_reason(
    consumer: None, words: list[str], orders: ServedFake, tmp_path: Path
) -> None:
    """For a post-mortem: the file needs no server."""
    letter: dict[str, Any] = {
        "id": "shardId-000000000000:5:2",
        "stream": "orders",
        "sequence": "5",  # as of old
        "shard": "shardId-000000000000",
        "attempts": 3,
        "reason": "late",
    }
    (tmp_path / "dead.jsonl").write_text(json.dumps(letter) + "\n")
    files = ("--once", str(tmp_path / "page.html"), "--dead-letters", str(tmp_path / "dead.jsonl"))
    ended = run(orders, *words, *files)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    page = ParsedPage((tmp_path / "page.html").read_text())
    assert page.data["letters"]["reasons"][0]["reason"] == "late"
    assert "connect-src" not in str(page.tags)
