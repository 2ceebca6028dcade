"""Connections: what is asked in one breath, what is refused before the app sees it, and who is closed after a while."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from gpumon_web import connections
from gpumon_web.auth.gate import Gate
from gpumon_web.auth.rate_limit import BODY_BYTES, HEADER_BYTES
from gpumon_web.server import Stop, WebServer
from tests.builders import sample, tick
from tests.programs import PATIENCE, until
from tests.web.asked import HOST
from tests.web.served import TOKEN, Served, running

_HEAD = f"Host: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n"
_TICK = f"GET /api/delta HTTP/1.1\r\n{_HEAD}\r\n".encode()
_PAGE = f"GET / HTTP/1.1\r\n{_HEAD}\r\n".encode()
_FILE = (
    f"GET /_dash-component-suites/dash/dash-renderer/build/dash_renderer.min.js HTTP/1.1\r\n{_HEAD}\r\n"
).encode()  # fmt: skip


@contextmanager
def serving(**settings: Any) -> Iterator[tuple[WebServer, int]]:
    """A server with one frame to tell of, and its port."""
    with running(Served([tick(1, [sample(0), sample(1)])], **settings)) as found:
        yield found


def connect(port: int, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE, source_address=(address, 0))


def answers(one: socket.socket, number: int) -> list[bytes]:
    """So many answers of one connection, in order."""
    found = []
    with one.makefile("rb") as stream:
        for _ in range(number):
            assert stream.readline().startswith(b"HTTP/1.1 200"), "an answer"
            length = 0
            while (line := stream.readline()).strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            found.append(stream.read(length))
    return found


def everything(one: socket.socket) -> bytes:
    """All that comes until the other end closes."""
    found = b""
    while part := one.recv(65536):
        found += part
    return found


class TestPipelining:
    def test_ticks_and_pages_are_answered_in_their_order(self) -> None:
        with serving() as (_, port), connect(port) as one:
            one.sendall((_TICK + _PAGE + _TICK + _TICK + _PAGE) * 4)
            for at, body in enumerate(answers(one, 20)):
                if at % 5 in (1, 4):
                    assert b"<html" in body
                else:
                    assert json.loads(body)["seq"] == 1

    def test_hundreds_of_ticks_at_once_keep_no_one_waiting(self) -> None:
        with serving() as (server, port), connect(port) as greedy, connect(port) as other:
            greedy.sendall(_TICK * 100)
            other.sendall(_TICK)
            assert len(answers(other, 1)) == 1
            assert len(answers(greedy, 100)) == 100
            assert len(server.server_state.connections) == 2

    def test_a_request_that_follows_a_refused_one_is_not_answered(self) -> None:
        with serving() as (_, port), connect(port) as one:
            one.sendall(b"NONSENSE\r\n\r\n" + _TICK)
            found = everything(one)
            assert found.startswith(b"HTTP/1.1 400")
            assert found.count(b"HTTP/1.1") == 1

    @pytest.mark.parametrize("more", [b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"])
    def test_requests_before_a_refused_one_are_answered(self, more: bytes) -> None:
        with serving() as (server, port), connect(port) as one:
            one.sendall(_PAGE + _TICK + more)
            found = everything(one)
            assert (found.count(b"HTTP/1.1 200"), found.count(b"HTTP/1.1")) == (2, 2)
            until(lambda: not server.server_state.connections)

    def test_who_sends_nothing_more_is_answered(self) -> None:
        with serving() as (server, port), connect(port) as one:
            one.sendall(_PAGE + _TICK)
            one.shutdown(socket.SHUT_WR)
            assert everything(one).count(b"HTTP/1.1 200") == 2
            until(lambda: not server.server_state.connections)


class TestRefusedRequests:
    @pytest.mark.parametrize(
        ("request_bytes", "status"),
        [
            (b"GET /" + b"a" * HEADER_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
            (b"GET / HTTP/1.1\r\n" + b"X: yyyyyyyy\r\n" * (HEADER_BYTES // 8) + b"\r\n", 431),
            (b"GET / HTTP/1.1\r\nX: " + b"a" * 20 * HEADER_BYTES, 431),
            (b"POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES + 1), 413),
            (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
            (b"GET / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
            (b"GET / HTTP/1.1\nHost: x\n\n", 400),
            (b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        ],
    )
    def test_is_answered_and_closed(self, request_bytes: bytes, status: int) -> None:
        with serving() as (server, port), connect(port) as one:
            one.sendall(request_bytes)
            assert everything(one).startswith(b"HTTP/1.1 %d " % status)
            one.close()
            until(lambda: not server.server_state.connections)

    def test_headers_just_below_the_limit_are_taken_in_pieces_of_any_size(self) -> None:
        cookie = b"Cookie: other=" + b"x" * (HEADER_BYTES - 1000) + b"\r\nHost"
        with serving() as (_, port):
            for size in (97, 4096, 10**6):
                with connect(port) as one:
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    question = _TICK.replace(b"Host", cookie)
                    for start in range(0, len(question), size):
                        one.sendall(question[start : start + size])
                    assert len(answers(one, 1)) == 1

    def test_a_long_body_in_chunks_is_not_taken(self) -> None:
        with serving() as (server, port), connect(port) as one:
            one.sendall(b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(1000):
                    one.sendall(b"ff\r\n" + b"a" * 255 + b"\r\n")
                everything(one)
            except OSError:
                pass
            until(lambda: not server.server_state.connections)

    def test_a_browser_that_would_like_another_protocol_gets_this_one(self) -> None:
        with serving() as (_, port):
            for protocol in (b"websocket", b"h2c"):
                with connect(port) as one:
                    one.sendall(_TICK.replace(b"Host", b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\nHost"))
                    assert len(answers(one, 1)) == 1

    def test_head_gets_the_headers_of_an_answer_alone(self) -> None:
        with serving() as (_, port), connect(port) as one:
            one.sendall(_PAGE.replace(b"GET", b"HEAD") + _TICK.replace(b"Host", b"Connection: close\r\nHost"))
            head, _, rest = everything(one).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200")
            assert rest.startswith(b"HTTP/1.1 200")


class TestTimeouts:
    def test_a_request_whose_body_drips_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "REQUEST_SECONDS", 1.0)
        with serving() as (server, port), connect(port) as one:
            one.sendall(b"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n")
            one.sendall(b"Content-Type: application/x-www-form-urlencoded\r\n\r\n")
            until(lambda: _is_gone(one, b"a"))
            until(lambda: not server.server_state.connections)

    def test_the_next_request_that_drips_is_closed_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving() as (_, port), connect(port) as one:
            one.sendall(_TICK)
            assert answers(one, 1)
            monkeypatch.setattr(connections, "REQUEST_SECONDS", 1.0)
            one.sendall(b"GET / HTTP/1.1\r\n")
            until(lambda: _is_gone(one, b"X: y\r\n"))

    def test_an_idle_one_is_closed_though_it_sends_empty_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving() as (_, port), connect(port) as one:
            one.sendall(_TICK)
            assert answers(one, 1)
            monkeypatch.setattr(connections, "IDLE_SECONDS", 1.0)
            until(lambda: _is_gone(one, b"\r\n"))

    def test_one_that_does_not_read_is_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "IDLE_SECONDS", 1.0)
        with serving() as (server, port), connect(port) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(_FILE * 50)
            until(lambda: server.server_state.connections)
            until(lambda: not server.server_state.connections)

    def test_one_that_reads_slowly_is_not_closed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving() as (server, port), connect(port) as one:
            one.sendall(_TICK)
            assert answers(one, 1)
            (connection,) = server.server_state.connections
            assert isinstance(connection, connections.Connection)
            now, sizes = time.monotonic(), iter(range(10**6, 0, -1000))
            monkeypatch.setattr(connection.transport, "get_write_buffer_size", lambda: next(sizes))
            for seconds in range(0, 1000, 20):
                connection.close_if_overdue(now + seconds)
            assert not connection.transport.is_closing()
            monkeypatch.undo()
            one.sendall(_TICK)
            assert len(answers(one, 1)) == 1

    def test_who_waits_for_an_answer_is_not_idle(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entered, let = threading.Event(), threading.Event()
        credentials = Gate.credentials

        async def slow(self: Gate, request: Any, now: float) -> Any:
            entered.set()
            while not let.is_set():
                await asyncio.sleep(0.05)
            return await credentials(self, request, now)

        with serving() as (_, port), connect(port) as one:
            monkeypatch.setattr(Gate, "credentials", slow)
            one.sendall(_TICK)
            assert entered.wait(PATIENCE)
            for name in ("IDLE_SECONDS", "REQUEST_SECONDS"):
                monkeypatch.setattr(connections, name, 0.5)
            time.sleep(2.5)  # the server looks once a second
            monkeypatch.undo()
            let.set()
            assert len(answers(one, 1)) == 1

    def test_a_thousand_that_ask_nothing_keep_no_one_waiting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with serving() as (server, port), ExitStack() as stack:
            for number in range(1000):
                stack.enter_context(connect(port, f"127.0.0.{2 + number % 3}"))
            for _ in range(5):
                with connect(port) as one:
                    one.sendall(_TICK)
                    assert len(answers(one, 1)) == 1
            monkeypatch.setattr(connections, "REQUEST_SECONDS", 1.0)
            until(lambda: not server.server_state.connections)


def _is_gone(one: socket.socket, drop: bytes) -> bool:
    """Whether the other end has closed; sends another drop."""
    try:
        one.sendall(drop)
        one.setblocking(False)
        return one.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        one.setblocking(True)


class TestClosedConnections:
    def test_are_forgotten(self) -> None:
        with serving() as (server, port):
            for _ in range(30):
                with connect(port) as one:
                    one.sendall(_TICK)
                    answers(one, 1)
            with connect(port) as one:  # gone in the middle of a question
                one.sendall(_TICK[:20])
            until(lambda: not server.server_state.connections)
            with connect(port) as one:
                one.sendall(_TICK)
                assert len(answers(one, 1)) == 1


class TestSignals:
    def test_the_first_one_wakes_a_server_and_the_second_one_interrupts_it(self) -> None:
        stop, woken = Stop(), []
        stop.wake = lambda: woken.append(True)
        stop()
        assert stop.is_requested
        assert woken == [True]
        with pytest.raises(KeyboardInterrupt):
            stop()
        assert woken == [True]

    def test_one_before_a_server_serves_interrupts(self) -> None:
        stop = Stop()
        with pytest.raises(KeyboardInterrupt):
            stop()
        assert stop.is_requested
