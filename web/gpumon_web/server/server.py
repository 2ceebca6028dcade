"""The waitress server: its main loop, fair sharing of connections, the links to print, and stopping on signals.

A connection is only refused when there is no room. Then connections of the peer that has the most are closed, counted
separately for those that have sent a valid token and those that have not. Idle connections are closed first, the
longest idle one before the others, so that new clients have time to send a request.
"""

from __future__ import annotations

import errno
import resource
import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence
from threading import get_ident
from time import monotonic
from typing import Any

from dash import Dash
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer, UnixWSGIServer
from waitress.task import ThreadedTaskDispatcher

from gpumon.common.net import LOCAL, Address
from gpumon_web.auth import rate_limit
from gpumon_web.auth.rate_limit import CONNECTIONS
from gpumon_web.http.error_log import ErrorLog, capture_logger
from gpumon_web.server.connections import Channel, Poller

_ROOM = 0.05
"""Share of the connections closed at once, so that many new clients cost little."""
_OTHERS = 256
"""Number of other open files: the ring, the ledger, the files of a source."""


class _FairServer:
    channel_class: Any = Channel
    active_channels: Any
    task_dispatcher: Any
    _map: dict[int, Any]
    is_over: Any = staticmethod(lambda: False)
    """Returns whether to stop: waitress may have swallowed the KeyboardInterrupt."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.poller = Poller(self._map)
        self._polling_thread = 0
        self._ticks: deque[Channel] = deque()

    def run(self) -> None:
        self._polling_thread = get_ident()
        try:
            while self._map and not self.is_over():
                self.poller.poll(waits=not self._ticks)
                for _ in range(len(self._ticks)):
                    self._ticks.popleft().service()
        except (SystemExit, KeyboardInterrupt):
            pass
        self.task_dispatcher.shutdown()

    def add_task(self, task: Any) -> None:
        """Queue a request; a tick stays in this thread, as handing it over would cost more than answering it."""
        if get_ident() == self._polling_thread and task.is_tick_request():
            self._ticks.append(task)
        else:
            super().add_task(task)  # type: ignore[misc]

    def pull_trigger(self) -> None:
        if get_ident() != self._polling_thread:  # the polling thread is awake, and checks before it waits again
            super().pull_trigger()  # type: ignore[misc]

    def close(self) -> None:
        for channel in list(self.active_channels.values()):
            channel.handle_close()
        super().close()  # type: ignore[misc]
        self.poller.close()

    def handle_accept(self) -> None:
        super().handle_accept()  # type: ignore[misc]
        if len(self.active_channels) > CONNECTIONS:
            self._make_room()

    def accept(self) -> Any:
        try:
            return super().accept()  # type: ignore[misc]
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self._make_room()  # else the pending connection would be retried in a busy loop
            return None

    def maintenance(self, now: float) -> None:
        """Close overdue connections; `now` is not used, because the wall clock may jump."""
        del now
        current = monotonic()
        for channel in list(self.active_channels.values()):
            if channel.is_overdue(current):
                channel.will_close = True
                self.poller.mark_changed(channel)

    def _make_room(self) -> None:
        channels = list(self.active_channels.values())
        counts = Counter((channel.peer, channel.is_proven) for channel in channels)

        def priority(channel: Channel) -> tuple[float, ...]:
            busy = bool(channel.requests), bool(channel.total_outbufs_len)
            return -counts[channel.peer, channel.is_proven], *busy, channel.since

        for channel in sorted(channels, key=priority)[: max(1, int(len(channels) * _ROOM))]:
            channel.handle_close()


class _TcpServer(_FairServer, TcpWSGIServer):
    """Server on a TCP port."""


class _UnixServer(_FairServer, UnixWSGIServer):
    """Server on a unix socket."""


def make_server(application: Any, listener: socket.socket, **settings: Any) -> Any:
    """Create a server on a listening socket; `run()` serves until `close()`."""
    _raise_file_limit()
    adjustments = Adjustments(**settings)
    dispatcher = ThreadedTaskDispatcher()
    dispatcher.set_thread_count(adjustments.threads)
    kind = _UnixServer if listener.family == socket.AF_UNIX else _TcpServer
    return kind(
        application,
        {},
        True,
        listener,
        dispatcher=dispatcher,
        adj=adjustments,
        sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
        bind_socket=False,
    )


def _raise_file_limit() -> None:
    """Raise the limit on open files: one per connection, and one per answer that waitress buffers in a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * CONNECTIONS + _OTHERS
    if soft != resource.RLIM_INFINITY and soft < needed:
        top = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, hard))


PORT = 8050
TOKEN_FILE = "web-token"


def create_server(app: Dash, listener: socket.socket) -> Any:
    """Create the server of an app on a listening socket; `run()` serves until `close()`."""

    capture_logger("waitress", ErrorLog())
    return make_server(
        app.server,
        listener,
        threads=rate_limit.THREADS,
        connection_limit=2**31,  # `_make_room` closes connections instead of refusing new ones
        asyncore_use_poll=True,  # select() fails for descriptors above 1023
        cleanup_interval=1,
        max_request_header_size=rate_limit.HEADER_BYTES,
        max_request_body_size=rate_limit.BODY_BYTES,
        clear_untrusted_proxy_headers=False,  # only the prefix and the scheme are used, and both are validated
        ident=None,
        expose_tracebacks=False,
    )


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
    server = create_server(app, listener)
    stop = stop or Stop()
    server.is_over = lambda: stop.is_requested
    on_ready()
    try:
        stop.wake = server.trigger.pull_trigger
        server.run()
    finally:
        stop.wake = None
        server.close()
