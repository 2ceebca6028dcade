"""The server of an exporter: HTTP/1.1, with or without TLS, for a few scrapers that keep their connections.

A thread for each connection. Of too many, the one that has been silent longest is closed: whoever opens connections
and says nothing keeps nobody out. One that is being answered is not; of too many answers at once, one more is refused.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import Lock, Thread
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gpumon.common.net import LOCAL
from gpumon.export.auth import Doors, Opened, TooManyChecks, is_allowed
from gpumon.export.negotiation import TIMEOUT, patience_of
from gpumon.export.scrape import Exporter

PATH = "/metrics"
HEALTHY, READY = "/-/healthy", "/-/ready"
CONNECTIONS = 256
ANSWERS = 64
"""Requests that are answered at once."""
_IDLE = 150.0
"""Seconds for which a connection may be silent between two scrapes."""
_SLOW = 10.0
"""Seconds that a client may take to say what it wants, and to take the answer."""
_TEXT = "text/plain; charset=utf-8"


class ScrapeAnswer(NamedTuple):
    """An answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT
    headers: tuple[tuple[str, str], ...] = ()


class ScrapeServer:
    """Serves an exporter on a socket that listens, until `close`.

    `names`: those under which it may be asked, where anybody who connects is let in; then a page of another site, which
    a browser of this machine shows, cannot read it under a name of its own. None: any name.
    """

    def __init__(
        self, exporter: Exporter, opened: socket.socket, doors: Doors, names: frozenset[str] | None = None
    ) -> None:
        self.exporter, self.doors = exporter, doors
        self.names = names
        self._socket = opened
        self._open: dict[socket.socket, float] = {}
        """Connections, and when each was heard last."""
        self._encrypted: dict[socket.socket, socket.socket] = {}
        """Sockets of TLS, by connection."""
        self._answering: set[socket.socket] = set()
        """Connections that wait for an answer now."""
        self._lock = Lock()
        self._is_closed = False

    def run(self) -> None:
        """Serve until `close`."""
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(0.1)  # no descriptor is left, or the client has gone
                continue
            self.heard(connection)
            self._make_room()
            Thread(target=self._serve, args=(connection,), name="gpumon-scrape", daemon=True).start()

    def close(self) -> None:
        """End `run` and all connections."""
        self._is_closed = True
        for one in (self._socket, *self._connections()):
            self._shut(one)
        self._socket.close()

    def heard(self, connection: socket.socket) -> None:
        """Note that a connection is in use."""
        with self._lock:
            self._open[connection] = time.monotonic()

    @contextmanager
    def answering(self, connection: socket.socket) -> Iterator[bool]:
        """Keep a connection while it is answered. Yields whether there is room for one more answer."""
        with self._lock:
            has_room = len(self._answering) < ANSWERS
            if has_room:
                self._answering.add(connection)
        try:
            yield has_room
        finally:
            with self._lock:
                self._answering.discard(connection)

    def _connections(self) -> list[socket.socket]:
        with self._lock:
            return sorted(self._open, key=self._open.__getitem__)

    def _make_room(self) -> None:
        with self._lock:
            waiting = set(self._open) - self._answering
            too_many = len(self._open) - CONNECTIONS
        for one in [one for one in self._connections() if one in waiting][: max(0, too_many)]:
            self._shut(one)

    def _shut(self, connection: socket.socket) -> None:
        with suppress(OSError):  # it is gone already
            self._encrypted.get(connection, connection).shutdown(socket.SHUT_RDWR)

    def _serve(self, connection: socket.socket) -> None:
        served = connection
        try:
            connection.settimeout(_SLOW)
            opened = self.doors.now()
            if opened is not None and opened.context is not None:
                served = opened.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                self._encrypted[connection] = served
                served.do_handshake()
                if not is_allowed(served, opened.config.tls.allowed_names if opened.config.tls else ()):
                    return
            elif opened is None and self.doors.had_tls:
                return  # not in clear what is else encrypted
            _Requests(served, self, connection, opened.context if opened else None)
        except (OSError, ValueError):
            return  # the client has gone, is too slow, or speaks something else
        finally:
            with self._lock:
                self._open.pop(connection, None)
            self._encrypted.pop(connection, None)
            served.close()


class _Requests(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def __init__(
        self, served: socket.socket, server: ScrapeServer, connection: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        """`context`: under which the connection was made."""
        self._scrapes, self._connection, self._context = server, connection, context
        super().__init__(served, ("", 0), server)  # type: ignore[arg-type]

    def handle_one_request(self) -> None:
        self.connection.settimeout(_IDLE)
        super().handle_one_request()

    def parse_request(self) -> bool:
        self.connection.settimeout(_SLOW)
        self._scrapes.heard(self._connection)
        if not super().parse_request():
            return False
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True  # nobody reads a body, and it must not be taken for the next request
        return True

    def do_GET(self) -> None:
        with self._scrapes.answering(self._connection) as has_room:
            self._tell(has_room)
            self.wfile.flush()
            self._scrapes.heard(self._connection)

    def _tell(self, has_room: bool) -> None:
        opened = self._scrapes.doors.now()
        if opened is not None and opened.context is not self._context:
            self.close_connection = True  # it has not shown what is asked for now: another one will
            return
        answer = self._answer(opened) if has_room else _BUSY
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (*answer.headers, *(opened.config.headers.items() if opened else ())):
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def _answer(self, opened: Opened | None) -> ScrapeAnswer:
        if opened is None:
            return ScrapeAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, b"The configuration of this exporter is wrong.\n")
        if not self._is_ours():
            return ScrapeAnswer(
                HTTPStatus.FORBIDDEN, b"Ask by a name of this machine, such as localhost, or by its address.\n"
            )
        path = urlsplit(self.path).path
        if path == HEALTHY:
            return ScrapeAnswer(HTTPStatus.OK, b"healthy\n")
        if path == READY:
            is_ready = self._scrapes.exporter.is_ready()
            return ScrapeAnswer(HTTPStatus.OK, b"ready\n") if is_ready else _unready()
        try:
            is_let_in = opened.credentials.lets_in(self.headers.get("Authorization", ""), _address(self.connection))
        except TooManyChecks:
            return _BUSY
        if not is_let_in:
            asked = (("WWW-Authenticate", opened.credentials.challenge),)
            return ScrapeAnswer(HTTPStatus.UNAUTHORIZED, b"Unauthorized\n", headers=asked)
        if path == PATH:
            return self._scraped()
        if path == "/":
            return ScrapeAnswer(HTTPStatus.OK, f"gpumon export: {PATH}\n".encode())
        return ScrapeAnswer(HTTPStatus.NOT_FOUND, f"Not found: {PATH} is here.\n".encode())

    def _scraped(self) -> ScrapeAnswer:
        told = self.headers
        patience = patience_of(told.get(TIMEOUT, ""))
        try:
            found = self._scrapes.exporter.scrape(
                ",".join(told.get_all("Accept", [])), ",".join(told.get_all("Accept-Encoding", [])), patience
            )
        except TimeoutError:
            late = f"No answer within {patience:g} s: others are being answered.\n"
            return ScrapeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, late.encode())
        vary = ("Vary", "Accept, Accept-Encoding")
        headers = (vary, ("Content-Encoding", found.encoding)) if found.encoding else (vary,)
        return ScrapeAnswer(HTTPStatus.OK, found.body, found.content_type, headers)

    def _is_ours(self) -> bool:
        names = self._scrapes.names
        if names is None or not self._scrapes.doors.are_open:
            return True
        # Every browser says whom it asks; a client of HTTP/1.0 need not.
        host = self.headers.get("Host")
        return "Origin" not in self.headers and (host is None or _is_named(host, names))

    def version_string(self) -> str:
        return "gpumon"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: there are thousands of scrapes a day."""


_BUSY = ScrapeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, b"Too many scrapes at once: try again later.\n")


def _address(connection: socket.socket) -> str:
    """The address of a client; empty on a Unix socket."""
    found = connection.getpeername()
    return str(found[0]) if isinstance(found, tuple) else ""


def own_names() -> frozenset[str]:
    """Return the names of this machine, beside its addresses."""
    return frozenset({*LOCAL, socket.gethostname().lower()})


def _is_named(host: str, names: frozenset[str]) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        return name in names or bool(ipaddress.ip_address(name.partition("%")[0]))
    except ValueError:
        return False


def _unready() -> ScrapeAnswer:
    return ScrapeAnswer(HTTPStatus.SERVICE_UNAVAILABLE, b"no daemon samples the GPUs now\n")
