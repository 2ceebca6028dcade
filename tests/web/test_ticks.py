"""Ticks: each is checked like any other request, and all viewers of a page share what is made for one."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from gpumon_web.auth.rate_limit import Buckets
from gpumon_web.live import values
from gpumon_web.live.values import PageViews
from tests.builders import sample, tick
from tests.programs import PATIENCE
from tests.web.served import TOKEN, Served, on_server

TICK = "/api/delta"
FIRST = f"{TICK}?page=fleet&boot=&since=0"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
Answer = tuple[int, dict[str, str], bytes]
GPUS = [sample(0), sample(1)]


@pytest.fixture
def served() -> Served:
    return Served([tick(1, GPUS)])


@contextmanager
def connected(served: Served) -> Iterator[http.client.HTTPConnection]:
    with on_server(served) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            yield connection
        finally:
            connection.close()


def ask(connection: http.client.HTTPConnection, path: str, headers: Mapping[str, str] = BEARER) -> Answer:
    connection.request("GET", path, headers=dict(headers))
    answer = connection.getresponse()
    return answer.status, {name: value for name, value in answer.getheaders() if name != "date"}, answer.read()


def following(answer: Answer) -> str:
    """The tick of a viewer who has got this one."""
    body = answer[2] if "content-encoding" not in answer[1] else gzip.decompress(answer[2])
    document = json.loads(body)
    return f"{TICK}?page=fleet&boot={document['boot']}&since={document['seq']}"


class TestAnswers:
    def test_the_same_question_has_the_same_answer(self, served: Served) -> None:
        with connected(served) as connection:
            first = ask(connection, FIRST)
            assert [ask(connection, FIRST) for _ in range(5)] == [first] * 5
            assert "content-security-policy" in first[1]

    def test_the_next_one_has_what_is_new(self, served: Served) -> None:
        with connected(served) as connection:
            first = ask(connection, FIRST)
            served.writer.append(tick(2, GPUS))
            assert json.loads(ask(connection, following(first))[2])["seq"] == 2

    def test_it_is_compressed_for_who_takes_that(self, served: Served) -> None:
        with connected(served) as connection:
            packed, plain = ask(connection, FIRST, {**BEARER, "Accept-Encoding": "gzip"}), ask(connection, FIRST)
            assert packed[1]["content-encoding"] == "gzip"
            assert gzip.decompress(packed[2]) == plain[2]

    def test_viewers_of_a_page_share_one(self, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[int] = []
        packed = values.packed
        monkeypatch.setattr(values, "packed", lambda body: made.append(1) or packed(body))
        with connected(served) as connection:
            address = following(ask(connection, FIRST))
            served.writer.append(tick(2, GPUS))
            del made[:]
            answers = {ask(connection, address)[2] for _ in range(20)}
        assert (len(made), len(answers)) == (1, 1)


class TestAccess:
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
    def test_a_connection_that_was_let_in_is_asked_again(
        self, served: Served, headers: dict[str, str], status: int
    ) -> None:
        with connected(served) as connection:
            assert ask(connection, FIRST)[0] == 200
            assert ask(connection, FIRST, headers)[0] == status

    def test_a_session_that_is_ended_gets_no_further_one_on_any_connection(self, served: Served) -> None:
        with connected(served) as connection, on_server(served) as port:
            cookie = ask(connection, f"/?token={TOKEN}", {})[1]["set-cookie"].partition(";")[0]
            headers = {"Cookie": cookie}
            assert [ask(connection, FIRST, headers)[0] for _ in range(3)] == [200] * 3
            other = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            other.request("POST", "/sign-out", headers={**headers, "Sec-Fetch-Site": "same-origin"})
            assert other.getresponse().status == 303
            other.close()
            assert ask(connection, FIRST, headers)[0] == 401

    def test_they_count_against_the_limit_of_whoever_asks(self) -> None:
        served = Served([tick(1, GPUS)], buckets=Buckets(burst=1.0, per_second=0.0))  # a program: twenty times that
        with connected(served) as connection:
            found = [ask(connection, FIRST)[0] for _ in range(25)]
        assert found == [200] * 20 + [429] * 5


class TestThreads:
    """What takes long is not made on the event loop, where it would delay everything else."""

    @pytest.fixture
    def threads(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Names of the threads that answered."""
        found: list[str] = []
        answer = PageViews.answer

        def noted(self: PageViews, *arguments: Any) -> Any:
            found.append(threading.current_thread().name.partition("_")[0])
            return answer(self, *arguments)

        monkeypatch.setattr(PageViews, "answer", noted)
        return found

    def test_the_first_answer_is_made_in_one_of_them_and_those_after_it_are_not(
        self, served: Served, threads: list[str]
    ) -> None:
        with connected(served) as connection:
            address = following(ask(connection, FIRST))
            for _ in range(3):
                ask(connection, address)
        assert threads[0] == "ticks"
        assert "ticks" not in threads[1:]

    def test_after_a_pause_one_is_made_there_too(
        self, served: Served, threads: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with connected(served) as connection:
            address = following(ask(connection, FIRST))
            monkeypatch.setattr(values, "AWAKE", 0.0)
            ask(connection, address)
        assert threads == ["ticks", "ticks"]

    def test_health_is_answered_while_frames_are_read(self, served: Served) -> None:
        with on_server(served) as port:
            viewer, other = (http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE) for _ in range(2))
            address = following(ask(viewer, FIRST))
            for path in (FIRST, address):
                with served.feed.lock:
                    viewer.request("GET", path, headers=BEARER)
                    assert ask(other, "/healthz")[0] == 200
                    assert ask(other, "/")[0] == 200
                assert viewer.getresponse().read()
            for one in (viewer, other):
                one.close()
