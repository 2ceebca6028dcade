"""HTTP server of the exporter, with or without TLS, for a few scrapers.

Each connection has its own thread and serves one request. If there are too many connections, the oldest one is closed,
so that clients that connect but send nothing cannot block others.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from gpumon.common.errors import GpumonError
from gpumon.common.net import LOCAL, host_of
from gpumon.common.paths import require_readable
from gpumon.export.exposition import CONTENT_TYPE, accepts_gzip, compress
from gpumon.export.scrape import Exporter

PATH = "/metrics"
HEALTHY, READY = "/-/healthy", "/-/ready"
MAX_CONNECTIONS = 128
_TIMEOUT = 10.0
"""A client may take at most this many seconds for each of these steps: TLS handshake, sending the request, receiving
the answer."""
_TEXT = "text/plain; charset=utf-8"


def tls_context(certificate: str, key: str, client_ca: str = "") -> ssl.SSLContext:
    """Return the TLS context of a server.

    `certificate`, `key`, `client_ca`: PEM files. With `client_ca`, clients must present a certificate signed by this
    authority. Raises GpumonError with a message that names the invalid file.
    """

    def refuse_passphrase() -> str:
        # Without this callback, OpenSSL would ask for a passphrase at the terminal.
        raise GpumonError(f"the key {key} is encrypted with a passphrase: use an unencrypted key")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        require_readable(certificate)
        require_readable(key)
        context.load_cert_chain(certificate, key, refuse_passphrase)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or error
        raise GpumonError(f"cannot use the certificate {certificate} with the key {key}: {reason}") from error
    if client_ca:
        try:
            require_readable(client_ca)
            context.load_verify_locations(client_ca)
        except (OSError, ssl.SSLError) as error:
            raise GpumonError(f"cannot use the CA file {client_ca}: {error.strerror or error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class ScrapeServer(ThreadingHTTPServer):
    """Serves an exporter on a socket that is already listening. `serve_forever` runs until `shutdown` is called."""

    def __init__(
        self, exporter: Exporter, listener: socket.socket, context: ssl.SSLContext | None = None,
        names: frozenset[str] | None = None,
    ) -> None:  # fmt: skip
        """`names`: the host names that requests may use. None allows any name.

        Without this check, a web page of another site that is open in a browser on this machine could read the metrics
        by DNS rebinding.
        """
        super().__init__(("", 0), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.exporter, self.names = exporter, names
        self._context = context
        self._open: dict[socket.socket, None] = {}
        """Open connections, oldest first."""
        self._lock = Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        connection.settimeout(_TIMEOUT)
        if self._context is not None:  # the handshake takes place at the first read, in the thread of the connection
            connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):  # the client has closed it
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error. The client is gone or too slow, or uses another protocol."""


class _Request(BaseHTTPRequestHandler):
    """Handles one request. As in HTTP/1.0, the connection is closed after the response."""

    server: ScrapeServer
    wbufsize = -1

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self._has_own_host():
            self._send(HTTPStatus.FORBIDDEN, b"Use a name of this machine, such as localhost, or its address.\n")
        elif path == PATH:
            body, headers = self.server.exporter.scrape(), {"Vary": "Accept-Encoding"}
            if accepts_gzip(self.headers.get("Accept-Encoding", "")):
                body, headers["Content-Encoding"] = compress(body), "gzip"
            self._send(HTTPStatus.OK, body, CONTENT_TYPE, headers)
        elif path == HEALTHY:
            self._send(HTTPStatus.OK, b"healthy\n")
        elif path == READY:
            is_ready = self.server.exporter.is_ready()
            self._send(HTTPStatus.OK, b"ready\n") if is_ready else self._send(
                HTTPStatus.SERVICE_UNAVAILABLE, b"no daemon samples the GPUs now\n"
            )
        elif path == "/":
            self._send(HTTPStatus.OK, f"gpumon export: {PATH}\n".encode())
        else:
            self._send(HTTPStatus.NOT_FOUND, f"Not found: metrics are at {PATH}.\n".encode())

    do_HEAD = do_GET

    def _send(
        self, status: HTTPStatus, body: bytes, content_type: str = _TEXT, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _has_own_host(self) -> bool:
        """Return True if the request is for an allowed host name, or if any name is allowed."""
        names = self.server.names
        if names is None:
            return True
        # Every browser sends the header Host. A client of HTTP/1.0 may omit it.
        host = self.headers.get("Host")
        return "Origin" not in self.headers and (host is None or _is_named(host, names))

    def version_string(self) -> str:
        return "gpumon"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because there are thousands of scrapes a day."""


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
