"""The threads of a daemon share one heap: memory that one of them frees serves the others."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from tests.programs import PATIENCE

_THREADS = 6
_PROGRAM = f"""
import ctypes, sys, threading
from gpumon.daemon import service

if sys.argv[1] == "shared":
    service.limit_malloc_arenas()
all_have = threading.Barrier({_THREADS})

def take():
    block = bytearray(5000)  # more than Python's own allocator serves
    all_have.wait()

threads = [threading.Thread(target=take) for _ in range({_THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
stdout = libc.fdopen(1, b"w")
libc.malloc_info(0, ctypes.c_void_p(stdout))
libc.fflush(ctypes.c_void_p(stdout))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="this C library is not glibc: no arenas")
def test_threads_of_a_daemon_take_their_memory_from_one_arena() -> None:
    def arenas(how: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        return done.stdout.count("<heap nr=")

    assert arenas("own") > 1, "else this test shows nothing"
    assert arenas("shared") == 1
