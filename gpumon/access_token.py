"""A secret in a file: what a program shows to be let in, which only its user may read."""

from __future__ import annotations

import errno
import os
import secrets
import stat

from gpumon.errors import GpumonError, quoted
from gpumon.regular_file import open_regular

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
