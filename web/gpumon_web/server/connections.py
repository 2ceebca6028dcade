"""Connections of the waitress server, hardened against slow and hostile clients, and the epoll loop that serves them.

No thread blocks on a connection, neither for an answer that is still being made nor for a client that does not read.
Requests that proxies may parse differently, with folded headers or two lengths, are rejected.
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
    """Request parser that rejects requests which proxies are known to parse differently."""

    path = ""
    """Default for a malformed request: waitress logs the path if the client has disconnected."""
    head = b""
    """The header lines, without the request line."""

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the header. Raises ParsingError, on which waitress answers 400 and closes the connection."""
        self.head = header_plus.partition(b"\n")[2]
        if _FOLDED.search(header_plus):
            raise ParsingError("Header lines must not be folded")
        super().parse_header(header_plus)
        # waitress removes a Transfer-Encoding that it understands; what is left is unknown, or sent with HTTP/1.0.
        if "TRANSFER_ENCODING" in self.headers or (self.chunked and "CONTENT_LENGTH" in self.headers):
            raise ParsingError("A request has one length")


class Task(WSGITask):
    """A request whose WSGI environment includes facts about its connection."""

    def get_environment(self) -> dict[str, Any]:
        environ: dict[str, Any] = super().get_environment()
        channel: Any = self.channel
        environ[CHANNEL] = channel
        environ[PEER] = channel.peer
        environ[HEAD] = getattr(self.request, "head", b"")
        environ[JOB] = channel.finished_job(self.request)
        return environ


class Channel(HTTPChannel):
    """One client connection."""

    task_class = Task
    parser_class = Parser
    server: Any
    _fileno: int

    def __init__(self, server: Any, sock: socket.socket, addr: Any, adj: Any, map: Any = None) -> None:
        self.peer = peer_of(sock, addr)
        self.is_proven = False
        """Whether it has sent a valid token or session cookie."""
        self.allowed: Any = None
        """Permission of its last tick (`routes.ticks.Allowed`)."""
        self._job: tuple[Any, Future[Any]] | None = None
        self.since = monotonic()
        """When it was opened or last answered a request (CLOCK_MONOTONIC)."""
        self._request_since = self.since
        self._last_write = self.since
        self._reading: Any = None
        self._has_requested = False
        self._is_parked = False
        super().__init__(server, sock, addr, adj, map=map)
        server.poller.mark_changed(self)

    def del_channel(self, map: Any = None) -> None:
        self.server.poller.forget(self._fileno)
        super().del_channel(map)

    def is_overdue(self, now: float) -> bool:
        """Whether it exceeded a timeout: for sending a request, for reading an answer, or for being idle."""
        if self.total_outbufs_len:
            return now - self._last_write > IDLE_SECONDS
        if self.requests:
            return False
        if self._reading is not None or not self._has_requested:
            return now - self._request_since > REQUEST_SECONDS
        return now - self.since > IDLE_SECONDS

    def received(self, data: bytes) -> bool:
        is_complete: bool = super().received(data)
        if self.request is not self._reading:
            self._reading = self.request
            self._request_since = monotonic()
        return is_complete

    def finished_job(self, request: Any) -> Future[Any] | None:
        """Return the finished job that the request was waiting for; None if there is none."""
        job = self._job
        return job[1] if job is not None and job[0] is request else None

    def is_tick_request(self) -> bool:
        """Whether the current request is a tick, which is answered from memory in less than a millisecond."""
        request: Any = self.requests[0] if self.requests else None
        return request is not None and not request.error and request.path == TICK

    def service(self) -> None:
        """Answer the current request, unless the thread would have to wait."""
        self.server.poller.begin(self)
        try:
            self._serve()
        finally:
            self.server.poller.end(self)

    def _serve(self) -> None:
        # A client that pipelines requests without reading the answers gets the next one only after reading.
        if self.total_outbufs_len > UNREAD:
            self._is_parked = True
            return
        self._has_requested = True
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
            self._last_write = monotonic()
        return moved


_READ = select.EPOLLIN | select.EPOLLPRI
_MAX_WAIT = 1.0
"""Longest wait in seconds; the server's `maintenance` is due about as often."""


class Poller:
    """Waits for events of the connections in waitress's socket map. One thread polls; any may call `look_at`."""

    def __init__(self, connections: Mapping[int, Any]) -> None:
        """`connections` has only the listening socket and the trigger so far; both are checked before each wait."""
        self._connections = connections
        self._always = tuple(connections.values())
        self._served: set[Any] = set()
        self._changed: deque[Any] = deque()  # not a set: threads append while the other one empties it
        self._epoll = select.epoll()
        self._registered: dict[int, int] = {}
        """Events registered with the kernel, by descriptor."""

    def mark_changed(self, connection: Any) -> None:
        """Mark a channel whose events may have changed. This does not wake the poller."""
        self._changed.append(connection)

    def begin(self, connection: Any) -> None:
        """Mark the channel as being served by a thread: until `end`, its events may change at any time."""
        self._served.add(connection)

    def end(self, connection: Any) -> None:
        self._changed.append(connection)
        self._served.discard(connection)

    def forget(self, fd: int) -> None:
        """Unregister the descriptor of a connection that is about to be closed."""
        if self._registered.pop(fd, 0):
            # A signal that stops the server may have interrupted between updating epoll and `_waits_for`.
            with suppress(FileNotFoundError):
                self._epoll.unregister(fd)

    def poll(self, waits: bool = True) -> None:
        """Handle pending events; with `waits`, wait up to a second for one."""
        for connection in (*self._always, *self._served.copy()):
            self._update_events(connection)
        while self._changed:
            self._update_events(self._changed.popleft())
        for fd, events in self._epoll.poll(_MAX_WAIT if waits else 0.0):
            connection = self._connections.get(fd)
            if connection is not None:  # else an earlier event of this round closed it
                self._changed.append(connection)
                readwrite(connection, events)

    def close(self) -> None:
        self._epoll.close()

    def _update_events(self, connection: Any) -> None:
        fd = connection._fileno  # None when it is closed
        if fd not in self._connections or self._connections[fd] is not connection:
            return
        events = _READ if connection.readable() else 0
        if connection.writable() and not connection.accepting:
            events |= select.EPOLLOUT
        registered = self._registered.get(fd, 0)
        if events == registered:
            return
        if not events:
            self._epoll.unregister(fd)  # epoll would still report EPOLLHUP for an empty event mask
        elif registered:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._registered[fd] = events
