"""The process that does the work of `work`: python -m gpumon_web.worker DESCRIPTOR.

It gets tasks over a socket that it inherits, and ends when that is closed.
"""

from __future__ import annotations

import gc
import os
import sys
from multiprocessing.connection import Connection

from gpumon.storage.sqlite.read import set_lock_timeout

NICER = 10
"""Steps of priority below that of the server, whose ticks come first."""
LOCKED_FOR = 0.25
"""Seconds that a task waits for a file that another program has locked: who asked is told, and asks again."""


def serve(connection: Connection) -> None:
    """Announce the worker, then run jobs until the server closes the connection.

    Garbage is collected after each answer: a run of thousands of epochs makes hundreds of thousands of objects that
    are all in use, and looking through them meanwhile takes as long as making them.
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
