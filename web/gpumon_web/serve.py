"""Serving the app with waitress, on a port of this machine or on a unix socket.

waitress takes connections in one thread and answers in a few others, so a client that sends or reads
slowly keeps nobody waiting.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dash import Dash

from gpumon.errors import GpumonError, UsageError
from gpumon_web import limits
from gpumon_web.complaints import Complaints, listen_to
from gpumon_web.gate import LOCAL

PORT = 8050
TOKEN_FILE = "web-token"
SHORTEST = 16
"""Characters of a token that somebody chose."""
VARIED = 8
"""Different characters in it at least."""
_LOOPBACK = (*LOCAL, "::ffff:127.0.0.1")


class Address(NamedTuple):
    """Where to listen."""

    host: str = LOCAL[0]
    port: int = PORT
    path: str = ""
    """Of a unix socket; then host and port are not used."""

    @property
    def is_local(self) -> bool:
        """Whether nobody on another machine can connect."""
        return bool(self.path) or self.host in _LOOPBACK or self.host.startswith("127.")


def token_from(file: str, *, make: bool) -> str:
    """The token in `file`, made with mode 0600 when `make` and there is none.

    Raises GpumonError when it cannot be read, is another user's, can be read by others, or is too short.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        if not make:
            raise GpumonError(f"no such token file: {file}. Write at least {SHORTEST} characters into it") from None
        return _new_token(file)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GpumonError(f"the token file {file} is a symbolic link: pass the file that it points to") from None
        raise GpumonError(f"cannot read the token file {file}: {error.strerror or error}") from error
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise GpumonError(f"the token file {file} is not a regular file: pass another --token-file")
    with os.fdopen(fd, encoding="utf-8", errors="replace") as opened:
        token = opened.read(1024).strip()
    if found.st_uid not in (os.getuid(), 0):
        raise GpumonError(f"the token file {file} belongs to another user: pass another --token-file")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise GpumonError(f"other users can read the token file {file}: write a new token into it, then chmod 600 it")
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise GpumonError(f"the token in {file} must have at least {SHORTEST} printable characters without spaces")
    if is_weak(token):
        raise GpumonError(f"the token in {file} is easy to guess: replace it with the output of 'openssl rand -hex 16'")
    return token


def is_weak(token: str) -> bool:
    """Whether a token is a few characters, or the same ones again and again."""
    repeats = any(token == (token[:length] * len(token))[: len(token)] for length in range(1, len(token) // 2 + 1))
    return repeats or len(set(token)) < VARIED


def _new_token(file: str) -> str:
    token = secrets.token_urlsafe(32)
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise GpumonError(f"cannot keep the token in {file}: {error.strerror or error}") from error
    with os.fdopen(fd, "w", encoding="ascii") as opened:
        opened.write(token + "\n")
    return token


def listen(address: Address) -> socket.socket:
    """A socket that listens. Raises GpumonError with what to do."""
    if address.path:
        return _listen_on_path(address.path)
    if not 0 <= address.port < 65536:
        raise UsageError(f"--port must be 0 to 65535, not {address.port}")
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(where)
    except OSError as error:
        hint = (
            "stop the program that listens there, or pass another --port"
            if error.errno == 98
            else "pass another --host or --port"
        )
        raise GpumonError(
            f"cannot listen on {address.host}:{address.port}: {error.strerror or error}: {hint}"
        ) from error
    opened.listen(1024)
    return opened


def _listen_on_path(path: str) -> socket.socket:
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not _answers(path):
            os.unlink(path)  # left by a server that was killed
    except FileNotFoundError:
        pass
    except OSError as error:
        raise GpumonError(f"cannot listen on {path}: {error.strerror or error}") from error
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # so that there is no moment in which others could connect
    try:
        opened.bind(path)
    except OSError as error:
        raise GpumonError(f"cannot listen on {path}: {error.strerror or error}: pass another --socket") from error
    finally:
        os.umask(before)
    opened.listen(1024)
    return opened


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


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


def links(address: Address, port: int, token: str | None) -> Sequence[str]:
    """Return the links to open, as lines for the terminal."""
    query = f"?token={token}" if token else ""
    if address.path:
        return (
            f"on your own machine: ssh -L {PORT}:{address.path} {socket.gethostname()}",
            f"then open http://127.0.0.1:{PORT}/{query}",
        )
    host = f"[{address.host}]" if ":" in address.host else address.host
    host = LOCAL[0] if host in ("0.0.0.0", "[::]") else host
    return (f"http://{host}:{port}/{query}",)


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
