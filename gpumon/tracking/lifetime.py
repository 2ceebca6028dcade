"""Ends boards when a process forks, exits, or raises an exception, and when a notebook cell ends.

A forked child, such as a DataLoader worker, leaves the boards to its parent. A process that exits closes its open
boards. A run without a `with` statement then counts as finished, or as failed or interrupted if an exception ended the
process. If an exception is caught before the process ends, only a `with` statement can see it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from opcode import opmap
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol


class OpenBoard(Protocol):
    """A board that must be closed before the process ends. Has only the attributes that this module uses."""

    must_end: bool
    """Whether the run counts as failed if it is still open at the end of the process."""
    is_left: bool

    def abandon(self) -> None: ...
    def abort_raised_epoch(self) -> None: ...
    def backdate_end(self) -> None: ...
    def close(self, *, failed: bool = False, interrupted: bool = False, stopped: bool = False) -> None: ...


class Ending(NamedTuple):
    """The ways in which a run can end."""

    failed: bool = False
    interrupted: bool = False
    """Whether the user interrupted the run. `failed` is then also set."""
    stopped: bool = False
    """Whether the program stopped the run on purpose."""


_STOPS = (
    ("optuna", "TrialPruned"), ("asyncio", "CancelledError"), ("concurrent", "CancelledError"), ("trio", "Cancelled"),
    ("lightning", "SIGTERMException"), ("pytorch_lightning", "SIGTERMException"), ("unittest", "SkipTest"),
)  # fmt: skip
"""Package and class of each exception with which programs stop something on purpose."""
_INTERRUPTS = (("click", "Abort"), ("typer", "Abort"), ("bdb", "BdbQuit"))
"""Package and class of each exception that reports an interruption by the user."""
_EXITS = (("click", "Exit"), ("typer", "Exit"))
"""Package and class of each exception that is used like SystemExit and has an `exit_code`."""

_open: weakref.WeakSet[OpenBoard] = weakref.WeakSet()
_kept: list[OpenBoard] = []


def ending_of(error: BaseException | None) -> Ending:
    """Return how a run ends if its code raised `error`, or raised nothing (None)."""
    if error is None:
        return Ending()
    if isinstance(error, BaseExceptionGroup):
        return _combine([ending_of(part) for part in error.exceptions])
    if is_stop(error):
        return Ending(stopped=True)
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return Ending()
    if _is_one_of(error, _EXITS) and getattr(error, "exit_code", None) == 0:
        return Ending()
    return Ending(failed=True, interrupted=isinstance(error, KeyboardInterrupt) or _is_one_of(error, _INTERRUPTS))


def _combine(parts: Sequence[Ending]) -> Ending:
    """Return the worst of several endings. From bad to good, these are failed, interrupted, stopped and finished."""
    failed = any(part.failed for part in parts)
    interrupted = failed and all(part.interrupted for part in parts if part.failed)
    return Ending(failed, interrupted, stopped=not failed and any(part.stopped for part in parts))


def is_stop(error: BaseException) -> bool:
    """Return whether `error` is an exception that programs raise to stop something on purpose.

    If such an exception is caught, the run has not failed.
    """
    if isinstance(error, StopIteration | StopAsyncIteration | GeneratorExit):
        return True
    return _is_one_of(error, _STOPS)


def _is_one_of(error: BaseException, kinds: Sequence[tuple[str, str]]) -> bool:
    return any((kind.__module__.partition(".")[0], kind.__name__) in kinds for kind in type(error).__mro__)


UNWINDING = 1_000_000_000
"""Maximum ns that an exception takes from the epoch in which it was raised to the end of the run."""
_RAISING = frozenset(
    opmap[name] for name in ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "RAISE_VARARGS", "RERAISE") if name in opmap
)
"""Instructions at which a loop is left if a call raises an exception, or the loop itself. `break` and `return` leave it
at another one."""


def code_of(frame: FrameType | None) -> CodeType | None:
    """Return the code that a frame runs."""
    return None if frame is None else frame.f_code


def was_left_by_exception(frame: FrameType | None, loop: CodeType | None) -> bool:
    """Return whether an exception has just left a `for` loop. `frame`: of the code that closes the loop's generator.

    `loop`: the code with the loop. A closed generator cannot see the exception itself, and sys.exit leaves no other
    trace. False if it is unknown.
    """
    if frame is None or frame.f_code is not loop or frame.f_lasti < 0:
        return False
    return frame.f_code.co_code[frame.f_lasti] in _RAISING


def register(board: OpenBoard) -> None:
    """Close `board` when the process ends, if it still exists then."""
    _open.add(board)
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        # A forked child of multiprocessing exits without calling the functions of `atexit`. It has finalizers of its
        # own.
        util.Finalize(None, close_all, exitpriority=1)


def keep(board: OpenBoard) -> None:
    """Keep a reference to `board` until the process ends."""
    _kept.append(board)
    _open.add(board)


def close_all() -> None:
    """End all runs that are still open."""
    ending = ending_of(_uncaught_error())
    failed = ending.failed or ending.stopped  # an exception that stops something is a failure if it is not caught
    for board in [*_open]:
        board.abort_raised_epoch()
        if board.must_end and not failed:
            board.backdate_end()  # the training ended earlier, with an exception that was caught
        board.close(failed=failed or board.must_end, interrupted=ending.interrupted, stopped=board.is_left)
    _kept.clear()


def _uncaught_error() -> BaseException | None:
    """Return the exception that ends this process, if any."""
    error = sys.exc_info()[1]
    if error is None and not hasattr(sys, "ps1"):  # an interactive session continues after an exception
        error = getattr(sys, "last_value", None)
    return error


def call_at_end_of_cell(function: Callable[[BaseException | None], object]) -> None:
    """Call `function` once when the running cell ends, with the exception that ended the cell, or None.

    Does nothing outside IPython. Does nothing in threads other than the main thread, because such threads may outlive a
    cell.
    """
    interactive = sys.modules.get("IPython")
    shell: Any = interactive.get_ipython() if interactive is not None else None
    if shell is None or threading.current_thread() is not threading.main_thread():
        return

    def end(result: Any = None) -> None:
        shell.events.unregister("post_run_cell", end)
        function(getattr(result, "error_in_exec", None))

    shell.events.register("post_run_cell", end)


def _abandon_all() -> None:
    # A forked child inherits the descriptors and the mapping, but not the lock.
    for board in list(_open):
        board.abandon()
    _open.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_abandon_all)
atexit.register(close_all)
