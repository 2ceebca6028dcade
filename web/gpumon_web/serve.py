"""Serving the app with waitress, on a port of this machine or on a unix socket.

waitress takes connections in one thread and answers in a few others, so a client that sends or reads
slowly keeps nobody waiting.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from dash import Dash

from gpumon.common.net import LOCAL, Address
from gpumon_web import limits
from gpumon_web.complaints import Complaints, listen_to

PORT = 8050
TOKEN_FILE = "web-token"


def server_of(app: Dash, opened: socket.socket) -> Any:
    """A waitress server on a socket that listens; `run()` serves until `close()`."""
    from gpumon_web.crowd import make_server

    listen_to("waitress", Complaints())
    return make_server(
        app.server,
        opened,
        threads=limits.THREADS,
        connection_limit=2**31,  # `crowd` closes connections instead of leaving people at the door
        asyncore_use_poll=True,  # select() knows no descriptor above 1023
        cleanup_interval=1,
        max_request_header_size=limits.HEADER_BYTES,
        max_request_body_size=limits.BODY_BYTES,
        clear_untrusted_proxy_headers=False,  # only the prefix and the scheme are looked at, each checked
        ident=None,
        expose_tracebacks=False,
    )


def links(address: Address, port: int, token: str | None, prefix: str = "") -> Sequence[str]:
    """Return the links to open, as lines for the terminal."""
    query = f"{prefix}/?token={token}" if token else f"{prefix}/"
    if address.path:
        return (
            f"on your own machine: ssh -L {PORT}:{address.path} {socket.gethostname()}",
            f"then open http://127.0.0.1:{PORT}{query}",
        )
    host = f"[{address.host}]" if ":" in address.host else address.host
    host = LOCAL[0] if host in ("0.0.0.0", "[::]") else host
    return (f"http://{host}:{port}{query}",)


class Stop:
    """Handler of the signals that end the server.

    While it serves, it is only woken: an exception would leave whatever it does half done. The second signal raises
    KeyboardInterrupt, as the first does before, also out of what hangs.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self.wake: Callable[[], object] | None = None

    def __call__(self, *_: object) -> None:
        is_first, self.is_asked = not self.is_asked, True
        if self.wake is None or not is_first:
            raise KeyboardInterrupt
        self.wake()


def serve(app: Dash, opened: socket.socket, tell: Callable[[], object], stop: Stop | None = None) -> None:
    """Serve until interrupted, or until `stop` is asked to; `tell` is called once requests are answered."""
    server = server_of(app, opened)
    stop = stop or Stop()
    server.is_over = lambda: stop.is_asked
    tell()
    try:
        stop.wake = server.trigger.pull_trigger
        server.run()
    finally:
        stop.wake = None
        server.close()
