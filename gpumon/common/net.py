"""A secret in a file: what a program shows to be let in, which only its user may read."""

from __future__ import annotations

import errno
import grp
import os
import secrets
import socket
import stat
from contextlib import suppress
from typing import NamedTuple

from gpumon.common.errors import GpumonError, UsageError, quoted
from gpumon.common.paths import open_regular

SHORTEST = 16
"""Characters of a token that somebody chose."""
_NOBODY_ELSE, _GROUP_MAY_READ = 0o077, 0o037
"""Bits of the mode of a token file that must not be set."""
VARIED = 8
"""Different characters in it at least."""


def token_from(file: str, *, make: bool, is_mounted: bool = False) -> str:
    """The token in `file`, made with mode 0600 when `make` and there is none.

    `is_mounted`: it may come from whoever hands out secrets, as systemd's credentials and Kubernetes' volumes do. Then
    links are followed, and its group may read it, too.
    Raises GpumonError when it cannot be read, is another user's, can be read by others, or is too short.
    """
    try:
        fd = open_regular(file, follow=is_mounted)
    except FileNotFoundError:
        if not make:
            raise GpumonError(f"no such token file: {file}. Write at least {SHORTEST} characters into it") from None
        return _new_token(file)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise GpumonError(f"the token file {file} is a symbolic link: pass the file that it points to") from None
        raise GpumonError(f"cannot read the token file {file}: {error.strerror or error}") from error
    found = os.fstat(fd)
    with os.fdopen(fd, encoding="utf-8", errors="replace") as opened:
        token = opened.read(1024).strip()
    if found.st_uid not in (os.getuid(), 0):
        raise GpumonError(f"the token file {file} belongs to another user: pass another --token-file")
    if stat.S_IMODE(found.st_mode) & (_GROUP_MAY_READ if is_mounted else _NOBODY_ELSE):
        raise GpumonError(
            f"other users can read the token file {file}: write a new token into it, then 'chmod 600 {quoted(file)}'"
        )
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
        why = error.strerror or error
        raise GpumonError(f"cannot keep the token in {file}: {why}; pass another --state-dir") from error
    with os.fdopen(fd, "w", encoding="ascii") as opened:
        opened.write(token + "\n")
    return token


LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that lead nowhere else."""
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT, socket.EAI_ADDRFAMILY, socket.EAI_NONAME)
_LOOPBACK = (*LOCAL, "::ffff:127.0.0.1")


class Address(NamedTuple):
    """Where to listen."""

    host: str = LOCAL[0]
    port: int = 0
    path: str = ""
    """Of a unix socket; then host and port are not used."""
    group: str = ""
    """Name or number of the group that may open the unix socket, too."""
    is_everywhere: bool = False
    """All addresses of this machine, of IPv4 and of IPv6; then the host is only how to call them."""

    @property
    def is_local(self) -> bool:
        """Whether nobody on another machine can connect."""
        if self.is_everywhere:
            return False
        return bool(self.path) or self.host in _LOOPBACK or self.host.startswith("127.")


def listen(address: Address, options: tuple[str, ...] = ("--host", "--port")) -> socket.socket:
    """A socket that listens. Raises GpumonError with what to do; `options` are those that say where."""
    if address.path:
        return _listen_on_path(address.path, address.group)
    if not 0 <= address.port < 65536:
        raise UsageError(f"{options[-1]} must be 0 to 65535, not {address.port}")
    try:
        opened = _bound_everywhere(address.port) if address.is_everywhere else _bound(address.host, address.port)
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
    """The file of a unix socket that listens now; one that another program puts in its place is not it."""

    def __init__(self, path: str) -> None:
        self._path, self._stamp = path, _inode(path)

    def remove(self) -> None:
        """Remove the file, where it is still this one. To be called before the socket is closed, else another one may
        have its number."""
        with suppress(OSError):  # somebody has removed it, or the directory
            if self._stamp is not None and _inode(self._path) == self._stamp:
                os.unlink(self._path)


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _bound_everywhere(port: int) -> socket.socket:
    try:
        return _bound("::", port)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
        return _bound("0.0.0.0", port)


def _bound(host: str, port: int) -> socket.socket:
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
        opened.close()
        hint = "make its directory" if isinstance(error, FileNotFoundError) else "pass another --socket"
        raise GpumonError(f"cannot listen on {path}: {error.strerror or error}: {hint}") from error
    finally:
        os.umask(before)
    if group:
        try:
            _give(path, group, number)
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


def _give(path: str, group: str, number: int) -> None:
    try:
        os.chown(path, -1, number)
        os.chmod(path, 0o660)
    except (OSError, OverflowError) as error:
        with suppress(OSError):
            os.unlink(path)
        why = error.strerror if isinstance(error, OSError) else error
        raise GpumonError(
            f"cannot give {path} to the group {group}: {why}: be a member of it (SupplementaryGroups= of systemd)"
        ) from error


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True  # such as a queue that is full: somebody is there
        return True
