"""A tick whose headers are the same bytes as before is answered without asking again who asks - and nothing else is."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpumon_web.auth.rate_limit import Buckets
from gpumon_web.http.prefix import TICK
from gpumon_web.routes import ticks
from tests.builders import sample, tick
from tests.programs import PATIENCE
from tests.web.served import TOKEN, Served, on_waitress

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes between two questions, one follows soon upon the other."""
    monkeypatch.setattr(ticks, "PERMISSION_SECONDS", 1e9)


class Counted(Served):
    """An app that counts the requests that went the whole way."""

    def __init__(self, **settings: Any) -> None:
        super().__init__([tick(1, [sample(0), sample(1)])], **settings)
        self.whole = 0
        self.app.server.before_request(self._count)

    def _count(self) -> None:
        self.whole += 1


@contextmanager
def connected(served: Served) -> Iterator[http.client.HTTPConnection]:
    with on_waitress(served) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            yield connection
        finally:
            connection.close()


def ask(
    connection: http.client.HTTPConnection, path: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    """The status, headers and body of one answer."""
    connection.request("GET", path, headers=BEARER if headers is None else headers)
    answer = connection.getresponse()
    return answer.status, {name: value for name, value in answer.getheaders() if name != "Date"}, answer.read()


def test_the_next_tick_of_a_connection_is_answered_like_the_first_with_less_to_do() -> None:
    served = Counted()
    with connected(served) as connection:
        first = ask(connection, f"{TICK}?page=fleet&boot=&since=0")
        again = [ask(connection, f"{TICK}?page=fleet&boot=&since=0") for _ in range(5)]
        assert served.whole == 1
        assert all(answer == first for answer in again)
        assert "Content-Security-Policy" in first[1]
        served.writer.append(tick(2, [sample(0), sample(1)]))
        boot = json.loads(first[2])["boot"]
        assert json.loads(ask(connection, f"{TICK}?page=fleet&boot={boot}&since=1")[2])["seq"] == 2
        assert served.whole == 1


def test_the_next_tick_is_compressed_as_the_first_was() -> None:
    served, headers = Counted(), {**BEARER, "Accept-Encoding": "gzip"}
    with connected(served) as connection:
        found = [ask(connection, f"{TICK}?page=fleet&boot=&since=0", headers) for _ in range(2)]
        assert found[0] == found[1]
        assert found[0][1]["Content-Encoding"] == "gzip"
        assert json.loads(gzip.decompress(found[1][2]))["seq"] == 1
        boot = json.loads(gzip.decompress(found[1][2]))["boot"]
        found = [ask(connection, f"{TICK}?page=fleet&boot={boot}&since=1", headers) for _ in range(2)]
        assert [answer[0] for answer in found] == [200, 200]
        assert served.whole == 1


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer not-the-token-at-all"}, 401),
        ({**BEARER, "Origin": "http://elsewhere.example"}, 403),
        ({**BEARER, "Host": "elsewhere.example"}, 421),
        ({**BEARER, "Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_other_headers_on_the_same_connection_are_asked_who_they_are(headers: dict[str, str], status: int) -> None:
    served = Counted()
    with connected(served) as connection:
        assert ask(connection, f"{TICK}?page=fleet&boot=&since=0")[0] == 200
        assert ask(connection, f"{TICK}?page=fleet&boot=&since=0", headers)[0] == status


@pytest.mark.parametrize(
    "query",
    [
        "",
        "page=fleet&boot=&since=-1",
        "boot=&since=0",
        "since=0",
        "page=fleet&boot=%00&since=0",
        "page=fleet&boot=&since=0&token=x",
        "page=fleet&boot=&since=0&id=%00",
    ],
)
def test_a_question_that_pages_do_not_ask_goes_the_whole_way(query: str) -> None:
    served = Counted()
    with connected(served) as connection:
        ask(connection, f"{TICK}?page=fleet&boot=&since=0")
        assert ask(connection, f"{TICK}?{query}")[0] == 200
        assert served.whole == 2


def test_a_tick_of_a_page_with_its_arguments_is_answered_so_too() -> None:
    served = Counted()
    with connected(served) as connection:
        first = ask(connection, f"{TICK}?page=fleet&boot=&since=0")
        assert ask(connection, f"{TICK}?page=fleet&boot=&since=0") == first
        assert json.loads(first[2])["page"] == "fleet"
        assert served.whole == 1


def test_a_session_that_is_ended_gets_no_further_tick_on_any_connection() -> None:
    served = Counted()
    with connected(served) as connection, on_waitress(served) as port:
        cookie = ask(connection, f"/?token={TOKEN}", {})[1]["Set-Cookie"].partition(";")[0]
        headers = {"Cookie": cookie}
        assert [ask(connection, f"{TICK}?page=fleet&boot=&since=0", headers)[0] for _ in range(3)] == [200] * 3
        other = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        other.request("POST", "/sign-out", headers={**headers, "Sec-Fetch-Site": "same-origin"})
        assert other.getresponse().status == 303
        other.close()
        assert ask(connection, f"{TICK}?page=fleet&boot=&since=0", headers)[0] == 401


def test_ticks_count_against_the_limit_of_whoever_asks_for_them() -> None:
    served = Counted(buckets=Buckets(burst=1.0, per_second=0.0))  # a program may ask twenty times
    with connected(served) as connection:
        found = [ask(connection, f"{TICK}?page=fleet&boot=&since=0")[0] for _ in range(25)]
    assert found == [200] * 20 + [429] * 5
