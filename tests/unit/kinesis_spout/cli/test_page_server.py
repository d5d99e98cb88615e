"""The server of pages: whom it answers, what each address has, and that nobody holds it up."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any

import pytest

from kinesis_spout.cli.page_server import (
    HEADERS,
    MAX_CONNECTIONS,
    Answer,
    PageServer,
    text,
)
from kinesis_spout.cli.ui import MAX_OPEN, Observed, PageAnswers, Watcher
from kinesis_spout.errors import ConfigError
from kinesis_spout.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


class Echo:
    """Answers with the address; fails where that is asked for."""

    def answer(self, target: str) -> Answer:
        if target == "/tagged":
            return Answer(HTTPStatus.OK, "text/plain", b"body", '"1"')
        if target == "/fail":
            raise RuntimeError("a secret")
        return text(HTTPStatus.OK, target)


@pytest.fixture
def server() -> Iterator[PageServer]:
    with PageServer(Echo().answer, 0) as made:
        yield made


def test_an_address_that_cannot_be_listened_on_is_told_from_its_port(server: PageServer) -> None:
    with pytest.raises(ConfigError, match=r"--port: .* choose another port"):
        PageServer(Echo().answer, server.port)
    with pytest.raises(ConfigError, match=r"--host: .* pass an address of this machine"):
        PageServer(Echo().answer, 0, "192.0.2.1")  # an address of documentation


def asked(
    server: PageServer, method: str = "GET", target: str = "/", **headers: str
) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def raw(server: PageServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        found = b""
        while more := connection.recv(65_536):
            found += more
        return found


def test_every_answer_forbids_what_a_page_does_not_need(server: PageServer) -> None:
    """Errors included. Nothing is stored, framed or guessed."""
    for method, target in (("GET", "/a?b=c"), ("GET", "/fail"), ("POST", "/"), ("HEAD", "/")):
        answer, _ = asked(server, method, target)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.headers["Server"] == "kinesis-spout"
    assert HEADERS["Content-Security-Policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert HEADERS["Cache-Control"] == "no-store"


def test_get_and_head_are_all_that_is_answered(server: PageServer) -> None:
    found, body = asked(server, target="/a?b=c")
    assert (found.status, body) == (200, b"/a?b=c\n")
    head, nothing = asked(server, "HEAD", "/a?b=c")
    assert (head.status, nothing, head.headers["Content-Length"]) == (200, b"", "7")
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
        refused, _ = asked(server, method)
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")


def test_who_has_an_answer_gets_no_body_again(server: PageServer) -> None:
    first, body = asked(server, target="/tagged")
    assert (first.status, first.headers["ETag"], body) == (200, '"1"', b"body")
    again, nothing = asked(server, target="/tagged", **{"If-None-Match": '"1"'})
    assert (again.status, nothing) == (304, b"")


def test_a_fault_of_a_page_is_named_by_its_class_only(server: PageServer) -> None:
    answer, body = asked(server, target="/fail")
    assert answer.status == 500
    assert b"RuntimeError" in body
    assert b"secret" not in body


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "LOCALHOST", "127.0.0.1:9", "[::1]:1"]
)
def test_names_of_this_machine_are_served_at_any_port(server: PageServer, host: str) -> None:
    """A tunnel has another port."""
    assert asked(server, Host=host)[0].status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "10.0.0.1", "127.0.0.1.evil.example", ""]
)
def test_other_names_are_refused(server: PageServer, host: str) -> None:
    """A page of another site can make its name mean this machine."""
    answer, body = asked(server, Host=host)
    assert answer.status == 421
    assert b"http://localhost:" in body


def test_a_request_has_one_host(server: PageServer) -> None:
    assert raw(server, b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 400")
    two = b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"
    assert raw(server, two).startswith(b"HTTP/1.0 400")


def test_connections_that_say_nothing_do_not_keep_others_out(server: PageServer) -> None:
    """The oldest is ended for a new one."""
    silent = [
        socket.create_connection(("127.0.0.1", server.port), timeout=20)
        for _ in range(MAX_CONNECTIONS)
    ]
    try:
        assert asked(server)[0].status == 200
        assert silent[0].recv(1) == b""
    finally:
        for one in silent:
            one.close()


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
