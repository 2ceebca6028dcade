"""Real processes that do nothing, for process lists whose pids can be looked up."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """The pids of `count` processes that sleep until the end of the block."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            children.append(subprocess.Popen(["sleep", "86400"], stdin=subprocess.DEVNULL))
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()
