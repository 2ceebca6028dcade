"""What becomes of boards when their process forks or ends.

A forked child (a worker of a DataLoader) leaves the boards to its parent. A process that ends closes
what is still open, so that a run without a `with` ends as finished, or as failed when an
exception brought the process down.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Protocol


class Lasting(Protocol):
    """What must not outlive its process: a board."""

    def leave(self) -> None: ...
    def close(self, *, failed: bool = False) -> None: ...


_open: weakref.WeakSet[Lasting] = weakref.WeakSet()


def watch(board: Lasting) -> None:
    """See to `board` from now on, for as long as anybody holds it."""
    _open.add(board)
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        # A forked child of multiprocessing ends without `atexit`; it has finalizers of its own.
        util.Finalize(None, close_all, exitpriority=1)


def close_all() -> None:
    """End what is still open."""
    failed = _brought_down()
    for board in list(_open):
        board.close(failed=failed)


def _brought_down() -> bool:
    error = sys.exc_info()[1]
    if error is None and not hasattr(sys, "ps1"):  # an interactive session outlives its exceptions
        error = getattr(sys, "last_value", None)
    return error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0))


def _leave_to_parent() -> None:
    # The lock did not come along into the child; the descriptors and the mapping did.
    for board in list(_open):
        board.leave()
    _open.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(close_all)
