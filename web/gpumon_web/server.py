"""The uvicorn server: its settings, the links to print, and stopping on signals."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from time import monotonic
from typing import Any

import uvicorn
from dash import Dash

from gpumon.common.net import LOCAL, Address
from gpumon_web.auth.rate_limit import CONNECTIONS, IDLE_SECONDS
from gpumon_web.connections import OTHER_FILES, Connection
from gpumon_web.http.error_log import ErrorLog, capture_logger

PORT = 8050
TOKEN_FILE = "web-token"
_CHECK_SECONDS = 1.0
"""Seconds between checks of timeouts."""
_SWITCH_SECONDS = 0.001
"""Longest time for which a thread that computes keeps the event loop waiting, while there is one."""


class WebServer(uvicorn.Server):
    """Server of an app on listening sockets; `run` serves until `stop`."""

    def __init__(self, app: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                loop="asyncio",
                lifespan="off",  # else Dash would answer every unknown path with its page
                timeout_keep_alive=IDLE_SECONDS,
                proxy_headers=False,  # only the prefix and the scheme are used, and both are validated
                server_header=False,
                access_log=False,
                log_config=None,
                backlog=CONNECTIONS,
            )
        )
        self.on_ready: Callable[[], object] = lambda: None
        """Called once the server accepts requests."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Stop serving, from any thread or from a signal handler."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._stopped.set)

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave the signals to `Stop`."""
        return nullcontext()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.on_ready()
        while not await self.on_tick(0):
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection):
                    connection.close_if_overdue(monotonic())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), _CHECK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections. Requests that are being answered are canceled."""
        for server in self.servers:
            server.close()
        for sock in sockets or ():
            sock.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()


def create_server(app: Dash) -> WebServer:
    """Create the server of an app."""
    capture_logger("uvicorn.error", ErrorLog())
    _raise_file_limit()
    return WebServer(app.server)


def _raise_file_limit() -> None:
    """Raise the limit on open files, because each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        top = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))


def links(address: Address, port: int, token: str | None, prefix: str = "") -> Sequence[str]:
    """Return what to print on the terminal: the link to open, or how to reach a unix socket."""
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
    """Handler of the signals that stop the server.

    While serving, the first signal only wakes the server, as an exception would interrupt it halfway through its work.
    A second signal, or one before serving, raises KeyboardInterrupt, which also ends a call that hangs.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self.wake: Callable[[], object] | None = None

    def __call__(self, *_: object) -> None:
        is_first, self.is_requested = not self.is_requested, True
        if self.wake is None or not is_first:
            raise KeyboardInterrupt
        self.wake()


def serve(app: Dash, listener: socket.socket, on_ready: Callable[[], object], stop: Stop | None = None) -> None:
    """Serve until interrupted or stopped by `stop`; `on_ready` is called once the server accepts requests."""
    server = create_server(app)
    capture_logger("asyncio", ErrorLog())
    sys.setswitchinterval(_SWITCH_SECONDS)
    stop = stop or Stop()
    server.on_ready = on_ready
    try:
        stop.wake = server.stop
        server.run([listener])
    finally:
        stop.wake = None
