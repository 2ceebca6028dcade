"""Connections of the server, with limits that keep one client from delaying the others.

uvicorn parses and answers requests. This adds what it does not have: a limit on the size of headers and bodies, a
deadline for sending a request and for reading an answer, and which connections are closed when there are too many.
"""

from __future__ import annotations

import resource
from asyncio import Transport
from collections import Counter
from collections.abc import Collection
from http import HTTPStatus
from time import monotonic
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gpumon_web.auth.gate import PEER
from gpumon_web.auth.rate_limit import BODY_BYTES, CONNECTIONS, HEADER_BYTES, IDLE_SECONDS, REQUEST_SECONDS, peer_of
from gpumon_web.auth.request_checks import CONNECTION

OTHER_FILES = 256
"""Number of open files besides connections: the ring, the ledger, the files of a source."""
_ROOM = 0.05
"""Share of the connections closed at once, so that many new clients cost little."""
_LINGER_SECONDS = 2.0
"""Seconds for which the rest of a refused request is read, as closing at once could destroy the answer."""


class Connection(HttpToolsProtocol):
    """One client connection."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.peer = ""
        self.is_proven = False
        """Whether it has sent a valid token or session cookie."""
        self.since = monotonic()
        """When it was opened or last answered a request (CLOCK_MONOTONIC)."""
        self._reading_since: float | None = self.since
        """Since when a request is expected or being received; None between requests."""
        self._is_in_head = False
        self._head_bytes = 0
        """Bytes of the address and headers that the parser has passed on."""
        self._raw_head_bytes = 0
        """Bytes received of the headers, without the parts in which they begin and end."""
        self._body_bytes = 0
        self._requests = 0
        self._refusal = 400
        self._is_over = False
        """Whether it is closed after the answers to the requests received so far."""
        self._closes_at: float | None = None
        self._unsent = 0
        self._unsent_since = self.since

    # Events of the transport

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.peer = peer_of(transport.get_extra_info("socket"), transport.get_extra_info("peername"))
        if len(self.connections) > max_connections():
            make_room([connection for connection in self.connections if isinstance(connection, Connection)])

    def data_received(self, data: bytes) -> None:
        # In parts, because the parser keeps an incomplete header to itself, however long it gets.
        for start in range(0, len(data), HEADER_BYTES):
            if self._is_over or self.transport.is_closing():
                return
            was_in_head, requests = self._is_in_head, self._requests
            part = data[start : start + HEADER_BYTES]
            super().data_received(part)
            if was_in_head and self._is_in_head and requests == self._requests:
                self._raw_head_bytes += len(part)
                if self._raw_head_bytes > 2 * HEADER_BYTES:
                    self._refusal = 431
                    self.send_400_response("")

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn closes the connection
        """Keep a connection open for an answer although the client sends nothing more, such as `nc -N`."""
        if not self.is_busy() or self.cycle.more_body:
            return False
        self._close_after_answers()
        return True

    # Events of the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope.update({PEER: self.peer, CONNECTION: self})
        self._requests += 1
        self._is_in_head = True
        self._head_bytes = self._raw_head_bytes = self._body_bytes = 0
        if self._reading_since is None:
            self._reading_since = monotonic()

    def on_url(self, url: bytes) -> None:
        self._add_to_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._add_to_head(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        values: dict[bytes, list[bytes]] = {}
        for name, value in self.headers:
            values.setdefault(name, []).append(value)
        # Proxies may parse these differently; the parser itself refuses two lengths and folded lines.
        codings = values.get(b"transfer-encoding", [])
        if codings and (codings[0].lower() != b"chunked" or self.parser.get_http_version() == "1.0"):
            self._refuse(400)
        if len(codings) > 1 or len(values.get(b"host", [])) > 1:
            self._refuse(400)
        if int(values.get(b"content-length", [b"0"])[0]) > BODY_BYTES:
            self._refuse(413)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES:
            self._refuse(413)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._reading_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self.since = monotonic()
        if self._reading_since is not None:  # of the next request, which was not read meanwhile
            self._reading_since = self.since
        super().on_response_complete()

    # Limits

    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def close_if_overdue(self, now: float) -> None:
        """Close it after a timeout: for sending a request, for reading an answer, or for being idle."""
        if self._is_overdue(now):
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that was not received completely, and close the connection. `msg` is not used."""
        if self.is_busy():
            # The client would take a response now for the response to its previous request.
            if self.cycle.more_body:
                self.transport.abort()
            else:
                self._close_after_answers()
            return
        self._is_over = True
        text = HTTPStatus(self._refusal).phrase.encode()
        self.transport.write(
            STATUS_LINE[self._refusal]
            + b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\n"
            + b"content-length: %d\r\n\r\n%s" % (len(text), text)
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._closes_at = monotonic() + _LINGER_SECONDS

    def _close_after_answers(self) -> None:
        self._is_over = True
        self.cycle.keep_alive = False  # the newest one; others before it may still wait

    def _refuse(self, status: int) -> None:
        """Refuse the request that is being parsed."""
        self._refusal = status
        raise ValueError("refused")  # the parser then has `send_400_response` called

    def _add_to_head(self, length: int) -> None:
        self._head_bytes += length
        if self._head_bytes > HEADER_BYTES:
            self._refuse(431)

    def _is_overdue(self, now: float) -> bool:
        if self._closes_at is not None:
            return now > self._closes_at
        unsent = self.transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        if unsent:
            return now - self._unsent_since > IDLE_SECONDS
        if self._reading_since is not None and (self.cycle is None or not self.is_busy() or self.cycle.more_body):
            return now - self._reading_since > REQUEST_SECONDS
        return not self.is_busy() and now - self.since > IDLE_SECONDS


def max_connections() -> int:
    """Return the number of connections that may be open, which is lower if few files may be."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if files == resource.RLIM_INFINITY else max(1, min(CONNECTIONS, files - OTHER_FILES))


def make_room(connections: Collection[Connection]) -> None:
    """Close some connections of the peer that has the most, counted separately for those that are proven.

    Idle connections are closed first, the longest idle one before the others, so that new clients have time to send a
    request.
    """
    counts = Counter((connection.peer, connection.is_proven) for connection in connections)

    def priority(connection: Connection) -> tuple[float, ...]:
        has_unsent = bool(connection.transport.get_write_buffer_size())
        return -counts[connection.peer, connection.is_proven], connection.is_busy(), has_unsent, connection.since

    for connection in sorted(connections, key=priority)[: max(1, int(len(connections) * _ROOM))]:
        connection.transport.abort()
        connection.connections.discard(connection)  # not only when the event loop comes to it
