"""HTTP/1.1 server of the exporter, with or without TLS, for a few scrapers that keep their connections open.

Each connection has a thread. If there are too many, the connection without a request for the longest time is closed, so
that a client that opens connections and sends nothing does not block others. A connection is not closed while it is
being answered. If too many answers are in progress, further requests are refused.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from gpumon.common.net import LOCAL, host_of
from gpumon.export.auth import Authenticator, AuthState, TooManyChecks, has_allowed_name
from gpumon.export.negotiation import TIMEOUT_HEADER, parse_timeout
from gpumon.export.scrape import Exporter

PATH = "/metrics"
HEALTHY, READY = "/-/healthy", "/-/ready"
MAX_CONNECTIONS = 256
MAX_ANSWERS = 64
"""Maximum number of requests that are answered at the same time."""
_IDLE_TIMEOUT = 150.0
"""Maximum seconds between two scrapes on a connection before it is closed."""
_REQUEST_TIMEOUT = 10.0
"""Maximum seconds that a client may take to send a request, and again to receive the answer."""
_TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Response:
    """Response to one request."""

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT
    headers: tuple[tuple[str, str], ...] = ()


class ScrapeServer:
    """Serves an exporter on a socket that is already listening, until `close` is called."""

    def __init__(
        self, exporter: Exporter, listener: socket.socket, auth: Authenticator, names: frozenset[str] | None = None
    ) -> None:
        """`names`: the host names that requests may use if no credentials are required. None allows any name.

        The check keeps a web page of another site, opened in a browser on this machine, from reading the metrics by DNS
        rebinding.
        """
        self.exporter, self.auth = exporter, auth
        self.names = names
        self._listener = listener
        self._last_used: dict[socket.socket, float] = {}
        """Time of the last use of each connection."""
        self._encrypted: dict[socket.socket, socket.socket] = {}
        """The TLS socket of each encrypted connection."""
        self._answering: set[socket.socket] = set()
        """Connections with a request that is being answered."""
        self._lock = Lock()
        self._is_closed = False

    def run(self) -> None:
        """Serve until `close` is called."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(0.1)  # out of file descriptors, or the client has gone
                continue
            self.touch(connection)
            self._close_idle()
            Thread(target=self._serve, args=(connection,), name="gpumon-scrape", daemon=True).start()

    def close(self) -> None:
        """Make `run` return, and close all connections."""
        self._is_closed = True
        for connection in (self._listener, *self._connections()):
            self._shut_down(connection)
        self._listener.close()

    def touch(self, connection: socket.socket) -> None:
        """Record that a connection was used just now."""
        with self._lock:
            self._last_used[connection] = time.monotonic()

    @contextmanager
    def answering(self, connection: socket.socket) -> Iterator[bool]:
        """Protect a connection from being closed during the `with` block, in which a request is answered.

        Yield False if too many answers are in progress.
        """
        with self._lock:
            is_allowed = len(self._answering) < MAX_ANSWERS
            if is_allowed:
                self._answering.add(connection)
        try:
            yield is_allowed
        finally:
            with self._lock:
                self._answering.discard(connection)

    def _connections(self) -> list[socket.socket]:
        """Return all connections, starting with the one that was used least recently."""
        with self._lock:
            return sorted(self._last_used, key=self._last_used.__getitem__)

    def _close_idle(self) -> None:
        with self._lock:
            idle = set(self._last_used) - self._answering
            surplus = len(self._last_used) - MAX_CONNECTIONS
        for connection in [connection for connection in self._connections() if connection in idle][: max(0, surplus)]:
            self._shut_down(connection)

    def _shut_down(self, connection: socket.socket) -> None:
        with suppress(OSError):  # already closed
            self._encrypted.get(connection, connection).shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket) -> None:
        stream = connection
        try:
            connection.settimeout(_REQUEST_TIMEOUT)
            state = self.auth.current()
            if state is not None and state.context is not None:
                stream = state.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                self._encrypted[connection] = stream
                stream.do_handshake()
                if not has_allowed_name(stream, state.config.tls.allowed_names if state.config.tls else ()):
                    return
            elif state is None and self.auth.uses_tls:
                return  # never answer in plain text if connections are normally encrypted
            _Requests(stream, self, connection, state.context if state else None)
        except (OSError, ValueError):
            return  # the client has gone, is too slow, or speaks another protocol
        finally:
            with self._lock:
                self._last_used.pop(connection, None)
            self._encrypted.pop(connection, None)
            stream.close()


class _Requests(BaseHTTPRequestHandler):
    """Handles the requests of one connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def __init__(
        self, stream: socket.socket, server: ScrapeServer, connection: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        """`context`: TLS context of the connection, or None without TLS."""
        self._server, self._connection, self._context = server, connection, context
        super().__init__(stream, ("", 0), server)  # type: ignore[arg-type]

    def handle_one_request(self) -> None:
        self.connection.settimeout(_IDLE_TIMEOUT)
        super().handle_one_request()

    def parse_request(self) -> bool:
        self.connection.settimeout(_REQUEST_TIMEOUT)
        self._server.touch(self._connection)
        if not super().parse_request():
            return False
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # the body is not read, and must not be parsed as the next request
        return True

    def do_GET(self) -> None:
        with self._server.answering(self._connection) as is_allowed:
            self._send(is_allowed)
            self.wfile.flush()
            self._server.touch(self._connection)

    def _send(self, is_allowed: bool) -> None:
        state = self._server.auth.current()
        if state is not None and state.context is not self._context:
            self.close_connection = True  # the TLS settings changed: the client has to connect again
            return
        response = self._respond(state) if is_allowed else _BUSY
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (*response.headers, *(state.config.headers.items() if state else ())):
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_HEAD = do_GET

    def _respond(self, state: AuthState | None) -> Response:
        if state is None:
            return Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"The configuration of this exporter is wrong.\n")
        if not self._has_own_host():
            return Response(HTTPStatus.FORBIDDEN, b"Use a name of this machine, such as localhost, or its address.\n")
        path = urlsplit(self.path).path
        if path == HEALTHY:
            return Response(HTTPStatus.OK, b"healthy\n")
        if path == READY:
            return Response(HTTPStatus.OK, b"ready\n") if self._server.exporter.is_ready() else _NOT_READY
        try:
            is_accepted = state.credentials.accepts(self.headers.get("Authorization", ""), _address(self.connection))
        except TooManyChecks:
            return _BUSY
        if not is_accepted:
            challenge = (("WWW-Authenticate", state.credentials.challenge),)
            return Response(HTTPStatus.UNAUTHORIZED, b"Unauthorized\n", headers=challenge)
        if path == PATH:
            return self._scrape()
        if path == "/":
            return Response(HTTPStatus.OK, f"gpumon export: {PATH}\n".encode())
        return Response(HTTPStatus.NOT_FOUND, f"Not found: metrics are at {PATH}.\n".encode())

    def _scrape(self) -> Response:
        max_wait = parse_timeout(self.headers.get(TIMEOUT_HEADER, ""))
        accept, encoding = (",".join(self.headers.get_all(name, [])) for name in ("Accept", "Accept-Encoding"))
        try:
            result = self._server.exporter.scrape(accept, encoding, max_wait)
        except TimeoutError:
            text = f"No answer within {max_wait:g} s: other scrapes are being answered.\n"
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, text.encode())
        vary = ("Vary", "Accept, Accept-Encoding")
        headers = (vary, ("Content-Encoding", result.encoding)) if result.encoding else (vary,)
        return Response(HTTPStatus.OK, result.body, result.content_type, headers)

    def _has_own_host(self) -> bool:
        """Return True if the request is for an allowed host name, or if any name is allowed."""
        names = self._server.names
        if names is None or not self._server.auth.is_open:
            return True
        # Every browser sends Host. A client of HTTP/1.0 may omit it.
        host = self.headers.get("Host")
        return "Origin" not in self.headers and (host is None or _is_named(host, names))

    def version_string(self) -> str:
        return "gpumon"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because there are thousands of scrapes a day."""


_BUSY = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"Too many scrapes at once: try again later.\n")
_NOT_READY = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"no daemon samples the GPUs now\n")


def _address(connection: socket.socket) -> str:
    """Return the address of a client. It is empty for a Unix socket."""
    peer = connection.getpeername()
    return str(peer[0]) if isinstance(peer, tuple) else ""


def machine_names() -> frozenset[str]:
    """Return the host names of this machine. IP addresses are not included."""
    return frozenset({*LOCAL, socket.gethostname().lower()})


def _is_named(host: str, names: frozenset[str]) -> bool:
    """Return True if a host is an IP address or one of `names`."""
    try:
        name = host_of(host)
        return name in names or bool(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        return False
