"""Named tokens as a running server knows them: it follows the file, and notes when each was used."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon_web.complaints import Complaints
from gpumon_web.token_file import NamedToken, TokenUse, hash_of, read_tokens, write_uses
from gpumon_web.work import Inline, Work

_LOOK = 2.0
"""Seconds between looks at the file."""
_SOON = 0.2
"""The same where an unknown token was given: it may have been added just now."""
_KEEP = 60.0
"""Seconds between writes of last uses."""
_PATIENCE = 0.5
"""Seconds to wait for such a look."""
_LONGEST = 200
"""Characters of a token; a longer one is none."""


class NamedTokens:
    """Tokens by name. Safe to use from several threads. An empty `path` has none."""

    def __init__(
        self, path: str = "", uses: str = "", work: Work | None = None, clock: Callable[[], float] = time.monotonic,
        complaints: Complaints | None = None,
    ) -> None:  # fmt: skip
        self._path = path
        self._uses_path = uses
        self._work = work or Inline()
        self._clock = clock
        self._complaints = complaints or Complaints()
        self._lock = Lock()
        self._tokens: tuple[NamedToken, ...] = ()
        self._stamp: Any = None
        self._looked = -_LOOK
        self._used: dict[str, TokenUse] = {}
        self._kept = -_KEEP
        self.changes = 0
        """Times that the tokens have changed: permissions from before must be checked again."""
        if path:
            self._read()

    def find(self, given: str) -> NamedToken | None:
        """Return the token that was given; None for one that is not known."""
        if not self._path or not 0 < len(given) <= _LONGEST:
            return None
        looked = self._look(_LOOK)
        found = self._find(given)
        if found is None:
            looked = looked or self._look(_SOON)
            if looked is not None:
                with suppress(TimeoutError):
                    looked.result(_PATIENCE)
                found = self._find(given)
        return found

    def is_there(self, tag: str) -> bool:
        """Whether the token of this tag has not been revoked."""
        if self._path:
            self._look(_LOOK)
        return any(one.tag == tag for one in self._tokens)

    def note_use(self, token: NamedToken, peer: str, now: float) -> None:
        """Remember that a token was used at `now` (s since 1970); written once a minute."""
        when = self._clock()
        with self._lock:
            self._used[token.tag] = TokenUse(int(now), peer)
            if not self._uses_path or when - self._kept < _KEEP:
                return
            self._kept = when
            used, self._used = self._used, {}
        self._work.ask(write_uses, lambda: (self._uses_path, used))

    def _find(self, given: str) -> NamedToken | None:
        """All are compared, each in the same time."""
        hashed, found = hash_of(given), None
        for one in self._tokens:
            if hmac.compare_digest(hashed, one.hash):
                found = one
        return found

    def _look(self, pause: float) -> Future[Any] | None:
        now = self._clock()
        if now - self._looked < pause:
            return None
        self._looked = now
        return self._work.ask(self._read, tuple)

    def _read(self) -> None:
        stamp = None
        with suppress(OSError):
            there = os.stat(self._path, follow_symlinks=False)
            stamp = (there.st_ino, there.st_mtime_ns, there.st_size, there.st_mode, there.st_uid)
        if stamp == self._stamp:
            return
        try:
            found = tuple(read_tokens(self._path))
        except GpumonError as error:  # then none of them opens anything
            found = ()
            self._complaints.say("named tokens", f"gpumon web: {error}")
        with self._lock:
            self._stamp = stamp
            self._tokens = found
            self.changes += 1
