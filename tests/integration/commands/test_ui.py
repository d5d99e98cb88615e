"""`kinesis-spout ui` as users run it: beside a consumer at work, on a FakeKinesis and a real
ZooKeeper.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from kinesis_spout.testing import error
from state.retry_policy import RetryPolicy
from state.zookeeper.embedded import ensure_running, stop
from tests.support.html.parsed_page import ParsedPage
from tests.support.kinesis.services import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.shell.command_line import call_cli, command_line, environment
from tests.support.spout.spouts import spout_on
from tests.support.state.zookeeper import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kinesis.services import ServedFake

HOSTILE = "<script>alert('no rates')</script>"


@pytest.fixture
def words(fake_kinesis: ServedFake, zookeeper_chroot: str) -> list[str]:
    """The command, and where the application is."""
    place = ("--application", "etl", "--stream", "orders", "--zookeeper", zookeeper_chroot)
    service = ("--endpoint-url", fake_kinesis.endpoint_url, "--region", REGION)
    return ["ui", "--port", "0", "--window", "2s", *place, *service]


@pytest.fixture
def consumer(fake_kinesis: ServedFake, zookeeper_chroot: str) -> Iterator[None]:
    """A spout at work on two shards. One record fails, and waits long for its retry."""
    fake_kinesis.model.create("orders", shards=2)
    for number in range(20):
        fake_kinesis.model.put("orders", str(number), b"data")
    retry = RetryPolicy(retry_limit=100, first_delay_ms=600_000, max_delay_ms=600_000)
    spout = spout_on(fake_kinesis, application="etl", zookeeper=zookeeper_chroot, retry=retry)
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


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return call_cli(
        *arguments, cwd=folder, AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY
    )


@contextmanager
def served(words: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command, and the address that it has printed."""
    process = subprocess.Popen(
        command_line(*words),
        cwd=folder,
        env=environment(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def get(url: str, target: str = "/") -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_a_consumer_at_work_is_seen_while_it_goes_on(
    consumer: None, words: list[str], tmp_path: Path
) -> None:
    """Its verdict, its shards, and the record that fails, with its reason as text."""
    with served(words, tmp_path) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        wait_until(lambda: HOSTILE in ParsedPage(get(url)[1]).text())
        status, text = get(url)
        page = ParsedPage(text)
        assert (status, page.faults) == (200, [])
        assert page.texts["h1"] == ["ok"]
        assert {f"/shard/shardId-00000000000{one}" for one in (0, 1)} <= {*page.values("a", "href")}
        found = json.loads(get(url, "/status.json")[1])
        assert (found["application"], len(found["shards"])) == ("etl", 2)
        holder = next(one["shardId"] for one in found["shards"] if one["unresolved"])
        status, text = get(url, f"/shard/{holder}")
        assert (status, HOSTILE in ParsedPage(text).text(), HOSTILE in text) == (200, True, False)
        assert get(url, "/shard/shardId-000000000099")[0] == 404
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143


def test_while_kinesis_does_not_answer_the_last_look_is_shown(
    consumer: None, words: list[str], fake_kinesis: ServedFake, tmp_path: Path
) -> None:
    """With a banner, until it answers again."""
    with served(words, tmp_path) as (_, url):
        assert "No new look" not in get(url)[1]
        denied = error("AccessDeniedException", "not for you")
        fake_kinesis.model.faults.add(denied, operation="ListShards", times=None)
        wait_until(lambda: "No new look" in get(url)[1], timeout_s=90)
        status, text = get(url, "/status.json")
        assert (status, json.loads(text)["application"]) == (503, "etl")
        assert "not for you" in get(url)[1] or "ListShards" in get(url)[1]
        fake_kinesis.model.faults.clear()
        wait_until(lambda: "No new look" not in get(url)[1], timeout_s=90)
        assert get(url, "/status.json")[0] == 200


@pytest.fixture
def own_directory(tmp_path: Path) -> Iterator[Path]:
    """Of a ZooKeeper that the test may stop; it keeps its port."""
    directory = tmp_path / "zookeeper"
    try:
        yield directory
    finally:
        stop(directory)


def test_while_zookeeper_is_stopped_the_last_look_is_shown(
    own_directory: Path, fake_kinesis: ServedFake, tmp_path: Path
) -> None:
    """The banner names ZooKeeper. When it is started again, looks go on by themselves."""
    fake_kinesis.model.create("orders")
    fake_kinesis.model.put("orders", "key", b"data")
    address = ensure_running(own_directory)
    words = ["--application", "etl", "--zookeeper", address]
    service = ["--endpoint-url", fake_kinesis.endpoint_url, "--region", REGION]
    consumed = run("consume", "orders", *words, "--until", "now", *service, folder=tmp_path)
    assert consumed.returncode == 0, consumed.stderr
    page = ["ui", "--port", "0", "--window", "2s", "--stream", "orders", *words, *service]
    with served(page, tmp_path) as (process, url):
        assert "No new look" not in get(url)[1]
        for _ in range(2):
            stop(own_directory)
            wait_until(lambda: "No new look" in get(url)[1], timeout_s=90)
            wait_until(lambda: "ZooKeeper" in banner(url), timeout_s=90)
            status, text = get(url, "/status.json")
            assert (status, json.loads(text)["application"]) == (503, "etl")
            assert get(url, "/shard/shardId-000000000000")[0] == 200
            assert ensure_running(own_directory) == address
            wait_until(lambda: "No new look" not in get(url)[1], timeout_s=90)
            assert get(url, "/status.json")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 143


def banner(url: str) -> str:
    """What the page says of the looks that fail."""
    return get(url)[1].partition("No new look")[2].partition("</p>")[0]


def test_ctrl_c_ends_it_at_once(consumer: None, words: list[str], tmp_path: Path) -> None:
    with served(words, tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130


def test_a_page_in_a_file_and_letters_by_reason(
    consumer: None, words: list[str], tmp_path: Path
) -> None:
    """For a post-mortem."""
    letter = {"id": "a", "stream": "orders", "shard": "s", "reason": "late", "attempts": 3}
    (tmp_path / "dead.jsonl").write_text(json.dumps(letter) + "\n")
    ended = run(*words, "--once", "page.html", "--dead-letters", "dead.jsonl", folder=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    page = ParsedPage((tmp_path / "page.html").read_text())
    assert (page.faults, page.count("script")) == ([], 0)
    assert "late" in page.texts["bdi"]


def test_what_cannot_work_ends_before_anything_is_served(
    words: list[str], fake_kinesis: ServedFake, tmp_path: Path
) -> None:
    """2: no stream, no letters. 3: no ZooKeeper. 2: a port that is taken."""
    assert run(*words, folder=tmp_path).returncode == 2
    fake_kinesis.model.create("orders")
    no_letters = run(*words, "--dead-letters", "none", folder=tmp_path)
    assert (no_letters.returncode, "does not exist" in no_letters.stderr) == (2, True)
    away = run(*words, "--zookeeper", "127.0.0.1:1", folder=tmp_path)
    assert away.returncode == 3
    port = str(urlsplit(fake_kinesis.endpoint_url).port)
    taken = run(*words, "--port", port, folder=tmp_path)
    assert (taken.returncode, "cannot be bound" in taken.stderr) == (2, True)
