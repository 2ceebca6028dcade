"""Fork and exit handling of boards.

A forked child (a worker of a DataLoader) leaves the boards to its parent. A process that ends closes
what is still open, so that a run without a `with` ends as finished, or as failed or interrupted when an
exception brought the process down. An exception that is caught elsewhere is seen by a `with` alone.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Lasting(Protocol):
    """A resource that must not outlive its process: a board."""

    must_end: bool
    """Whether it has failed if it is still open at the end of the process."""
    is_left: bool

    def leave(self) -> None: ...
    def set_back(self) -> None: ...
    def close(self, *, failed: bool = False, interrupted: bool = False, stopped: bool = False) -> None: ...


class Ending(NamedTuple):
    """The ways in which a run ends."""

    failed: bool = False
    interrupted: bool = False
    """By its user: it has also failed."""
    stopped: bool = False
    """On purpose, by its program."""


_STOPS = (
    ("optuna", "TrialPruned"), ("asyncio", "CancelledError"), ("concurrent", "CancelledError"), ("trio", "Cancelled"),
    ("lightning", "SIGTERMException"), ("pytorch_lightning", "SIGTERMException"), ("unittest", "SkipTest"),
)  # fmt: skip
"""Exceptions of libraries by which a program stops something on purpose: the package, and the class."""
_INTERRUPTS = (("click", "Abort"), ("typer", "Abort"), ("bdb", "BdbQuit"))
"""Those by which its user does."""
_EXITS = (("click", "Exit"), ("typer", "Exit"))
"""Those that stand for SystemExit, with an `exit_code`."""

_open: weakref.WeakSet[Lasting] = weakref.WeakSet()
_kept: list[Lasting] = []


def ending(error: BaseException | None) -> Ending:
    """Return the way a run ends that `error` has left; None: it was left without an error."""
    if error is None:
        return Ending()
    if isinstance(error, BaseExceptionGroup):
        return _joined([ending(part) for part in error.exceptions])
    if is_stop(error):
        return Ending(stopped=True)
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return Ending()
    if _is_one_of(error, _EXITS) and getattr(error, "exit_code", None) == 0:
        return Ending()
    return Ending(failed=True, interrupted=isinstance(error, KeyboardInterrupt) or _is_one_of(error, _INTERRUPTS))


def _joined(parts: Sequence[Ending]) -> Ending:
    """Return the worst of several ways to end: failed, interrupted, stopped."""
    failed = any(part.failed for part in parts)
    interrupted = failed and all(part.interrupted for part in parts if part.failed)
    return Ending(failed, interrupted, stopped=not failed and any(part.stopped for part in parts))


def is_stop(error: BaseException) -> bool:
    """Whether `error` is how a program stops something on purpose, and no failure as long as something catches it."""
    if isinstance(error, StopIteration | StopAsyncIteration | GeneratorExit):
        return True
    return _is_one_of(error, _STOPS)


def _is_one_of(error: BaseException, kinds: Sequence[tuple[str, str]]) -> bool:
    return any((kind.__module__.partition(".")[0], kind.__name__) in kinds for kind in type(error).__mro__)


def watch(board: Lasting) -> None:
    """See to `board` from now on, for as long as it is referenced."""
    _open.add(board)
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        # A forked child of multiprocessing ends without `atexit`; it has finalizers of its own.
        util.Finalize(None, close_all, exitpriority=1)


def keep(board: Lasting) -> None:
    """Keep `board`, which has no other reference, until the process ends."""
    _kept.append(board)
    _open.add(board)


def close_all() -> None:
    """End what is still open."""
    how = ending(_brought_down())
    failed = how.failed or how.stopped  # nothing has caught it
    for board in [*_open]:
        if board.must_end and not failed:
            board.set_back()  # its exception was caught long ago
        board.close(failed=failed or board.must_end, interrupted=how.interrupted, stopped=board.is_left)
    _kept.clear()


def _brought_down() -> BaseException | None:
    error = sys.exc_info()[1]
    if error is None and not hasattr(sys, "ps1"):  # an interactive session outlives its exceptions
        error = getattr(sys, "last_value", None)
    return error


def _leave_to_parent() -> None:
    # The lock did not come along into the child; the descriptors and the mapping did.
    for board in list(_open):
        board.leave()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(close_all)
