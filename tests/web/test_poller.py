"""Waiting for connections: each is asked again only after something happened to it, and none is forgotten."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gpumon_web.server.connections import Poller
from gpumon_web.server.server import Stop
from tests.builders import sample, tick
from tests.programs import PATIENCE, until
from tests.web.served import HOST, TOKEN, Served, running

_TICK = f"GET /api/delta HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
_PAGE = f"GET / HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


@contextmanager
def serving() -> Iterator[tuple[Any, int]]:
    """A server with one frame to tell of, and its port."""
    with running(Served([tick(1, [sample(0), sample(1)])])) as server:
        yield server, server.socket.getsockname()[1]


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


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


def test_ticks_and_pages_asked_for_in_one_breath_are_answered_in_their_order() -> None:
    with serving() as (_, port), connect(port) as one:
        one.sendall((_TICK + _PAGE + _TICK + _TICK + _PAGE) * 4)
        for at, body in enumerate(answers(one, 20)):
            if at % 5 in (1, 4):
                assert b"<html" in body
            else:
                assert json.loads(body)["seq"] == 1


def test_whoever_asks_for_hundreds_of_ticks_at_once_keeps_nobody_else_waiting() -> None:
    with serving() as (server, port), connect(port) as greedy, connect(port) as other:
        greedy.sendall(_TICK * 100)
        other.sendall(_TICK)
        assert len(answers(other, 1)) == 1
        assert len(answers(greedy, 100)) == 100
        assert len(server.active_channels) == 2


def test_a_connection_that_its_owner_closes_is_forgotten_and_its_number_serves_the_next_one() -> None:
    with serving() as (server, port):
        for _ in range(30):
            with connect(port) as one:
                one.sendall(_TICK)
                answers(one, 1)
        with connect(port) as one:  # gone in the middle of a question
            one.sendall(_TICK[:20])
        until(lambda: not server.active_channels)
        with connect(port) as one:
            one.sendall(_TICK)
            assert len(answers(one, 1)) == 1


def test_a_round_asks_no_connection_to_which_nothing_happened() -> None:
    with serving() as (server, port):
        idle = [connect(port) for _ in range(50)]
        try:
            until(lambda: len(server.active_channels) == 50)
            asked = []
            for channel in list(server.active_channels.values()):
                channel.readable = lambda channel=channel: asked.append(channel) or True
            with connect(port) as one:
                for _ in range(20):
                    one.sendall(_TICK)
                    answers(one, 1)
            assert len(asked) <= 50, "each at most once, for the event of its own opening"
        finally:
            for one in idle:
                one.close()


def test_a_connection_that_the_kernel_no_longer_watches_is_forgotten_all_the_same() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poller = Poller({})
        poller._epoll.register(ours.fileno(), select.EPOLLIN)
        poller._registered[ours.fileno()] = select.EPOLLIN
        poller._epoll.unregister(ours.fileno())  # as where a signal interrupts `_tell` between the two
        poller.forget(ours.fileno())
        assert not poller._registered
        poller.close()


def test_the_first_signal_wakes_a_server_and_the_second_one_interrupts_it() -> None:
    stop, woken = Stop(), []
    stop.wake = lambda: woken.append(True)
    stop()
    assert stop.is_requested
    assert woken == [True]
    with pytest.raises(KeyboardInterrupt):
        stop()
    assert woken == [True]


def test_a_signal_before_a_server_serves_interrupts() -> None:
    stop = Stop()
    with pytest.raises(KeyboardInterrupt):
        stop()
    assert stop.is_requested
