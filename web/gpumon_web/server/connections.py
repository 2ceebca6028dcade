"""A connection as waitress has it, made safe from whoever is slow, greedy or says two things at once.

No thread waits in it: not for an answer that is being made, and not for a client that reads nothing. What a request
means must not depend on who reads it: folded lines and two lengths are refused.
"""

from __future__ import annotations

import re
import select
import socket
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import WSGITask
from waitress.wasyncore import readwrite

from gpumon_web.auth.rate_limit import IDLE_SECONDS, REQUEST_SECONDS, UNREAD, peer_of
from gpumon_web.http.prefix import CHANNEL, HEAD, JOB, PEER, TICK
from gpumon_web.jobs import Deferred

_FOLDED = re.compile(rb"\n[ \t]")


class Parser(HTTPRequestParser):
    """Refuses what proxies are known to understand in different ways."""

    path = ""
    """Of a request that cannot be read: waitress names it when the client has gone meanwhile."""
    head = b""
    """The header lines, without the request line."""

    def parse_header(self, header_plus: bytes) -> None:
        """Raises ParsingError: the answer is 400, and the connection is closed."""
        self.head = header_plus.partition(b"\n")[2]
        if _FOLDED.search(header_plus):
            raise ParsingError("Header lines must not be folded")
        super().parse_header(header_plus)
        # Of HTTP/1.1 the coding is taken out once it is understood; that of an older version is none that we know.
        if "TRANSFER_ENCODING" in self.headers or (self.chunked and "CONTENT_LENGTH" in self.headers):
            raise ParsingError("A request has one length")


class Task(WSGITask):
    """A request, with what its connection knows."""

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        channel: Any = self.channel
        environ[CHANNEL] = channel
        environ[PEER] = channel.peer
        environ[HEAD] = getattr(self.request, "head", b"")
        environ[JOB] = channel.job_of(self.request)
        return environ


class Channel(HTTPChannel):
    """One connection."""

    task_class = Task
    parser_class = Parser
    server: Any
    _fileno: int

    def __init__(self, server: Any, sock: socket.socket, addr: Any, adj: Any, map: Any = None) -> None:
        self.peer = peer_of(sock, addr)
        self.is_proven = False
        """Whether it brought a token or a cookie that opens the page."""
        self.allowed: Any = None
        """Permission of its last tick (`repeats`)."""
        self._job: tuple[Any, Future[Any]] | None = None
        self.since = monotonic()
        """When it opened, or its last request was answered."""
        self._asked_since = self.since
        self._moved = self.since
        self._reading: Any = None
        self._has_asked = False
        self._is_parked = False
        super().__init__(server, sock, addr, adj, map=map)
        server.poller.look_at(self)

    def del_channel(self, map: Any = None) -> None:
        self.server.poller.forget(self._fileno)
        super().del_channel(map)

    def is_overdue(self, now: float) -> bool:
        """Whether it has had its time: for a whole request, for reading an answer, or for asking again."""
        if self.total_outbufs_len:
            return now - self._moved > IDLE_SECONDS
        if self.requests:
            return False
        if self._reading is not None or not self._has_asked:
            return now - self._asked_since > REQUEST_SECONDS
        return now - self.since > IDLE_SECONDS

    def received(self, data: bytes) -> bool:
        found: bool = super().received(data)
        if self.request is not self._reading:
            self._reading = self.request
            self._asked_since = monotonic()
        return found

    def job_of(self, request: Any) -> Future[Any] | None:
        """Return the result for which a request waited, once it is there."""
        job = self._job
        return job[1] if job is not None and job[0] is request else None

    def asks_for_tick(self) -> bool:
        """Whether the request in force is answered from memory, in less than a millisecond."""
        request: Any = self.requests[0] if self.requests else None
        return request is not None and not request.error and request.path == TICK

    def service(self) -> None:
        """Answer the request in force, as far as this can be done without waiting."""
        self.server.poller.begin(self)
        try:
            self._serve()
        finally:
            self.server.poller.end(self)

    def _serve(self) -> None:
        # Whoever sends a hundred requests at once and reads no answer gets the next one when he has read the last.
        if self.total_outbufs_len > UNREAD:
            self._is_parked = True
            return
        self._has_asked = True
        request = self.requests[0]
        try:
            super().service()
        except Deferred as deferred:
            deferred.job.add_done_callback(lambda job: self._resume(request, job))
            return
        self.since = monotonic()

    def _resume(self, request: Any, job: Future[Any]) -> None:
        self._job = (request, job)
        self.server.add_task(self)

    def writable(self) -> bool:
        return bool(self.total_outbufs_len or self.will_close or self.close_when_flushed or self._is_parked)

    def handle_write(self) -> None:
        super().handle_write()
        if self._is_parked and self.total_outbufs_len <= UNREAD:
            self._is_parked = False
            self.server.add_task(self)

    def _flush_some(self, do_close: bool = True) -> bool:
        moved: bool = super()._flush_some(do_close=do_close)  # type: ignore[misc]  # the stubs lack it
        if moved:
            self._moved = monotonic()
        return moved


_READ = select.EPOLLIN | select.EPOLLPRI
_LONGEST = 1.0
"""Seconds of a wait; the server's `maintenance` is due about as often."""


class Poller:
    """The events of connections, by descriptor in a map of waitress. One thread polls; any may `look_at` one."""

    def __init__(self, connections: Mapping[int, Any]) -> None:
        """`connections` holds the listening socket and the trigger now; both are asked before each wait."""
        self._connections = connections
        self._always = tuple(connections.values())
        self._served: set[Any] = set()
        self._changed: deque[Any] = deque()  # not a set: threads append while the other one empties it
        self._epoll = select.epoll()
        self._waits_for: dict[int, int] = {}
        """Events registered with the kernel, by descriptor."""

    def look_at(self, connection: Any) -> None:
        """Look at a channel again: its events may have changed. The wait in force continues."""
        self._changed.append(connection)

    def begin(self, connection: Any) -> None:
        """A thread serves it: until `end`, what it waits for may change at any time."""
        self._served.add(connection)

    def end(self, connection: Any) -> None:
        self._changed.append(connection)
        self._served.discard(connection)

    def forget(self, fd: int) -> None:
        """Its connection is about to be closed."""
        if self._waits_for.pop(fd, 0):
            # A signal that stops the server may have come between the kernel's list and this one.
            with suppress(FileNotFoundError):
                self._epoll.unregister(fd)

    def poll(self, waits: bool = True) -> None:
        """Handle what has happened; where it `waits`, until something does, a second at most."""
        for connection in (*self._always, *self._served.copy()):
            self._tell(connection)
        while self._changed:
            self._tell(self._changed.popleft())
        for fd, events in self._epoll.poll(_LONGEST if waits else 0.0):
            connection = self._connections.get(fd)
            if connection is not None:  # else what happened before it in this round has closed it
                self._changed.append(connection)
                readwrite(connection, events)

    def close(self) -> None:
        self._epoll.close()

    def _tell(self, connection: Any) -> None:
        fd = connection._fileno  # None when it is closed
        if fd not in self._connections or self._connections[fd] is not connection:
            return
        events = _READ if connection.readable() else 0
        if connection.writable() and not connection.accepting:
            events |= select.EPOLLOUT
        told = self._waits_for.get(fd, 0)
        if events == told:
            return
        if not events:
            self._epoll.unregister(fd)  # so that it is not even told that the other end hung up
        elif told:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._waits_for[fd] = events
