"""Access tokens in files that only their owner can read, and listening sockets."""

from __future__ import annotations

import errno
import grp
import os
import re
import secrets
import socket
import stat
from contextlib import suppress
from typing import NamedTuple

from gpumon.common.errors import GpumonError, UsageError, quoted
from gpumon.common.paths import open_regular

SHORTEST = 16
"""Minimum length of a token that a user chose, in characters."""
_LONGEST = 1024
_NOT_PRIVATE = 0o077
"""Mode bits that a token file must not have."""
VARIED = 8
"""A token must contain at least this many different characters."""
_NETLOC = re.compile(r"(?:\[([^\[\]@]+)\]|([^\[\]:@]+))(?::[0-9]*)?")
"""Matches a host, with or without brackets, and a port. `urlsplit` is not used because it accepts `[::1]other` and
`user@host`."""


def token_from(file: str, *, make: bool) -> str:
    """Return the token in `file`. `make`: if the file does not exist, create it (mode 0600) with a new token.

    Raises GpumonError if the file cannot be read, belongs to another user, or can be read by others, or if the token is
    too weak.
    """
    try:
        fd = open_regular(file)
    except FileNotFoundError:
        if not make:
            raise GpumonError(
                f"no such token file: {file}. Create it with a token of at least {SHORTEST} characters"
            ) from None
        return _new_token(file)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GpumonError(f"the token file {file} is a symbolic link: pass the file that it points to") from None
        raise GpumonError(f"cannot read the token file {file}: {error.strerror or error}") from error
    status = os.fstat(fd)
    with os.fdopen(fd, encoding="utf-8", errors="replace") as opened:
        token = opened.read(_LONGEST + 1).strip()
    if status.st_uid not in (os.getuid(), 0):
        raise GpumonError(f"the token file {file} belongs to another user: pass another --token-file")
    if stat.S_IMODE(status.st_mode) & _NOT_PRIVATE:
        raise GpumonError(
            f"other users can read the token file {file}: write a new token into it, then 'chmod 600 {quoted(file)}'"
        )
    if len(token) > _LONGEST:
        raise GpumonError(f"the token in {file} must have at most {_LONGEST} characters")
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise GpumonError(f"the token in {file} must have at least {SHORTEST} printable characters without spaces")
    if is_weak(token):
        raise GpumonError(f"the token in {file} is easy to guess: replace it with the output of 'openssl rand -hex 16'")
    return token


def host_of(netloc: str) -> str:
    """Return the host in a Host header, in lower case, without port and final dot; empty if the header is invalid."""
    match = _NETLOC.fullmatch(netloc.lower())
    return (match[1] or match[2]).rstrip(".") if match else ""


def is_weak(token: str) -> bool:
    """Return whether a token is easy to guess because it has few different characters or repeats a substring."""
    repeats = any(token == (token[:length] * len(token))[: len(token)] for length in range(1, len(token) // 2 + 1))
    return repeats or len(set(token)) < VARIED


def _new_token(file: str) -> str:
    token = secrets.token_urlsafe(32)
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        why = error.strerror or error
        raise GpumonError(f"cannot store the token in {file}: {why}; pass another --state-dir") from error
    with os.fdopen(fd, "w", encoding="ascii") as opened:
        opened.write(token + "\n")
    return token


LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names of the loopback interface."""
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT, socket.EAI_ADDRFAMILY, socket.EAI_NONAME)
_LOOPBACK = (*LOCAL, "::ffff:127.0.0.1")


class Address(NamedTuple):
    """An address to listen on."""

    host: str = LOCAL[0]
    port: int = 0
    path: str = ""
    """Path of a unix socket; empty for a TCP socket. With a path, host and port are not used."""
    group: str = ""
    """Name or number of a group whose members may also connect to the unix socket."""
    is_everywhere: bool = False
    """Whether to listen on all IPv4 and IPv6 addresses. If so, `host` is used only in messages."""

    @property
    def is_local(self) -> bool:
        """Whether other machines cannot connect."""
        if self.is_everywhere:
            return False
        return bool(self.path) or self.host in _LOOPBACK or self.host.startswith("127.")


def listen(address: Address, options: tuple[str, ...] = ("--host", "--port")) -> socket.socket:
    """Return a socket that listens on `address`. Raises GpumonError with a message that says what to do.

    `options`: names of the command's options for host and port, for the message.
    """
    if address.path:
        return _listen_on_path(address.path, address.group)
    if not 0 <= address.port < 65536:
        raise UsageError(f"{options[-1]} must be 0 to 65535, not {address.port}")
    try:
        opened = _bind_everywhere(address.port) if address.is_everywhere else _bind(address.host, address.port)
    except OSError as error:
        hint = (
            f"stop the program that listens there, or pass another {options[-1]}"
            if error.errno == errno.EADDRINUSE
            else f"pass another {' or '.join(options)}"
        )
        raise GpumonError(
            f"cannot listen on {address.host}:{address.port}: {error.strerror or error}: {hint}"
        ) from error
    opened.listen(1024)
    return opened


class SocketFile:
    """The file of a unix socket. It is not removed if another program has replaced it."""

    def __init__(self, path: str) -> None:
        self._path, self._stamp = path, _inode(path)

    def remove(self) -> None:
        """Remove the file unless another program has replaced it.

        Call this before the socket is closed. Afterward, the inode number of the file may be reused.
        """
        with suppress(OSError):  # the file or its directory is gone
            if self._stamp is not None and _inode(self._path) == self._stamp:
                os.unlink(self._path)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _bind_everywhere(port: int) -> socket.socket:
    try:
        return _bind("::", port)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
        return _bind("0.0.0.0", port)


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]  # fmt: skip
    opened = socket.socket(family, kind, protocol)
    try:
        if host == "::":
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(where)
    except OSError:
        opened.close()
        raise
    return opened


def _listen_on_path(path: str, group: str) -> socket.socket:
    number = _group(group) if group else -1
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode) and not _has_server(path):
            os.unlink(path)  # a killed server left it behind
    except FileNotFoundError:
        pass
    except OSError as error:
        raise GpumonError(f"cannot listen on {path}: {error.strerror or error}") from error
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # so that other users cannot connect at any time
    try:
        opened.bind(path)
    except OSError as error:
        opened.close()
        hint = "make its directory" if isinstance(error, FileNotFoundError) else "pass another --socket"
        raise GpumonError(f"cannot listen on {path}: {error.strerror or error}: {hint}") from error
    finally:
        os.umask(before)
    if group:
        try:
            _set_group(path, group, number)
        except GpumonError:
            opened.close()
            raise
    opened.listen(1024)
    return opened


def _group(name: str) -> int:
    try:
        return int(name) if name.isascii() and name.isdigit() else grp.getgrnam(name).gr_gid
    except (KeyError, ValueError) as error:
        raise GpumonError(f"this machine has no group {name}: pass another --socket-group") from error


def _set_group(path: str, group: str, number: int) -> None:
    try:
        os.chown(path, -1, number)
        os.chmod(path, 0o660)
    except (OSError, OverflowError) as error:
        with suppress(OSError):
            os.unlink(path)
        why = error.strerror if isinstance(error, OSError) else error
        raise GpumonError(
            f"cannot give {path} to the group {group}: {why}: add this user to it (SupplementaryGroups= of systemd)"
        ) from error


def _has_server(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True  # a server listens, but its queue may be full
        return True
