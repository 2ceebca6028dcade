"""Memory of a daemon that lives for months: it looks for garbage seldom, and its threads share one heap."""

from __future__ import annotations

import ctypes
import gc

_MANY_OBJECTS = 50_000
"""Objects that have come and not gone by themselves when garbage is looked for: some MB."""
_M_ARENA_MAX = -8
"""Of glibc's malloc.h."""


def collect_seldom() -> None:
    """Leave what is there by now to the end, and look for garbage in cycles seldom.

    Ticks make none: what they leave behind goes by itself. But each keeps some objects until history has taken it, and
    Python would go through these every few ticks unasked, and now and then, for some 20 ms, through all that there are.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_MANY_OBJECTS)


def share_one_arena() -> None:
    """Let all threads take their memory from one arena of the C library; call it before any begins.

    Else glibc gives each thread its own, up to eight a core, and what one of them frees serves no other. Threads of the
    driver's calls come and go, and one holds Python's lock at a time, so that they never wait for each other's arena.
    Source: mallopt(3). Other C libraries have no arenas, or no mallopt; they keep their ways.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)
