"""The worker process of `jobs.WorkerProcess`: python -m gpumon_web.worker DESCRIPTOR.

It receives tasks over an inherited socket, and exits when the socket is closed.
"""

from __future__ import annotations

import gc
import os
import sys
from multiprocessing.connection import Connection

from gpumon.storage.sqlite.read import set_lock_timeout

NICER = 10
"""Niceness relative to the server, whose ticks have priority."""
LOCKED_FOR = 0.25
"""Seconds that a task waits for a file locked by another program; after that the page shows it and retries."""


def serve(connection: Connection) -> None:
    """Announce the worker, then run jobs until the server closes the connection.

    Garbage is only collected between tasks: a run of thousands of epochs creates hundreds of thousands of live objects,
    and collecting while they are created would double the time.
    """
    set_lock_timeout(LOCKED_FOR)
    gc.disable()
    connection.send((True, None))
    while True:
        try:
            task, arguments = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, task(*arguments))
        except Exception as error:
            answer = (False, f"{type(error).__name__}: {error}")
        connection.send(answer)
        del task, arguments, answer
        gc.collect()


if __name__ == "__main__":
    os.nice(NICER)
    try:
        serve(Connection(int(sys.argv[1])))
    except OSError:
        sys.exit(1)  # the server is gone
